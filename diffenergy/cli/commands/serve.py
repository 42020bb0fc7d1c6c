"""`diffenergy serve`: what a served token costs under load, where it costs least."""

import dataclasses
from typing import Any

from ... import serving
from ...estimator import start_jax
from ...files import csv_text
from ...requests import BadRequest, part
from ..flags import POWER_STEP, as_flags
from ..progress import points
from ..run import Outcome, outcome, power_table
from .serve_flags import LISTED, Flags


def run(flags: Flags) -> Outcome:
    """Computes servers in steady state, searches one, or simulates a trace."""
    start_jax()
    load = part(serving.LoadRequest, flags)
    if flags.search is not None:
        return _searched(flags, load)
    if flags.apart == "auto":
        raise BadRequest(
            "`apart` is auto without `search`; give both.", "apart", "search"
        )
    if flags.apart == "only":
        _check_single(flags, "a pool")
        load = serving.Load(**load)
        return outcome(serving.apart(**flags.single(serving.ApartRequest, load)))
    if flags.trace is not None:
        _check_single(flags, "a trace")
        return _simulated(flags, load)
    load = serving.Load(**load)
    if not flags.several:
        return outcome(serving.steady_state(**flags.single(serving.ServeRequest, load)))
    with points("servers") as show:
        more = {"progress": lambda done, total: show(done, total, "")}
        request = part(serving.ListedRequest, flags, load=load, **more)
        result = serving.sweep(**request)
    entries = [
        x | {"error": as_flags(x["error"], Flags)} if "error" in x else x
        for x in result.summary["points"]
    ]
    result = dataclasses.replace(result, summary=result.summary | {"points": entries})
    return outcome(result, texts={".csv": lambda: csv_text(result.rows())})


def _check_single(flags: Flags, what: str):
    for name, values in flags.lists.items():
        if name in LISTED and len(values) > 1:
            raise ValueError(f"`{name}` is a list; {what} takes one value.")


def _searched(flags: Flags, load: dict[str, Any]) -> Outcome:
    """The best deployment."""
    with points("deployments") as show:
        more = {"progress": lambda done, total: show(done, total, "")}
        request = part(
            serving.SearchRequest, flags, load=load, objective=flags.search, **more
        )
        result = serving.search(**request)
    return outcome(result, texts={".csv": result.points_csv})


def _simulated(flags: Flags, load: dict[str, Any]) -> Outcome:
    """A trace of requests through one server."""
    step = flags.power_step or (flags.power_trace and POWER_STEP) or None
    request = flags.single(serving.TraceRequest, load)
    result = serving.simulate(**{**request, "power_step": step})
    beside = power_table(flags.power_trace, result.curves, step)
    return outcome(result, beside=beside)
