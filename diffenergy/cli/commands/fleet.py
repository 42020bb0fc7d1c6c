"""`diffenergy fleet`: which model on which GPUs, at which clock, under my watts."""

import contextlib
import sys
from collections.abc import Iterator

from ... import fleet
from ...estimator import start_jax
from ...fleet import FleetRequest
from ...keys import json_text
from ...requests import part
from ..interruption import keeping
from ..progress import phases
from ..run import Outcome, outcome
from .fleet_flags import Flags


def run(flags: Flags) -> Outcome:
    """Plans the fleet of the flags."""
    start_jax()
    with _reason(flags.as_json), keeping(), phases() as report:
        result = fleet.plan(**part(FleetRequest, flags, progress=report))
    written = f" and written to '{flags.out}'" if flags.out else ""
    cut = f"interrupted; the best plan so far is shown{written}."
    return outcome(
        result,
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
