"""`diffenergy fleet`: which model on which GPUs, at which clock, under my watts."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterator

from ... import fleet
from ...estimator import start_jax
from ...fleet import FleetRequest
from ...keys import json_text
from ...power_time import power_profile
from ...requests import part
from ..interruption import keeping
from ..progress import phases
from ..run import Outcome, outcome, power_table
from .fleet_flags import Flags


def run(flags: Flags) -> Outcome:
    """Plans the fleet of the flags."""
    start_jax()
    with _reason(flags.as_json), keeping(), phases() as report:
        result = fleet.plan(**part(FleetRequest, flags, progress=report))
    written = f" and written to '{flags.out}'" if flags.out else ""
    cut = f"interrupted; the best plan so far is shown{written}."
    curves = {} if flags.power_trace is None else result.curves
    if curves:
        profile = power_profile(curves["site"], "site")
        summary = {**result.summary, "power_profile": profile}
        result = dataclasses.replace(result, summary=summary)
    return outcome(
        result,
        beside=power_table(flags.power_trace, curves, result.summary["slot_s"]),
        texts={".csv": result.to_csv},
        interrupted=cut if result.solved.interrupted else "",
    )


@contextlib.contextmanager
def _reason(as_json: bool) -> Iterator[None]:
    """Context that also prints as JSON why no plan is feasible."""
    try:
        yield
    except fleet.NoPlan as refused:
        if as_json:
            content = {"status": "infeasible", "reason": refused.reason}
            print(json_text(content), end="")
            sys.stdout.flush()
        raise
