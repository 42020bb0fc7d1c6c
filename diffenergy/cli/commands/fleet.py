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
    with _reason(flags.as_json), keeping(), phases() as progress:
        found = fleet.plan(**part(FleetRequest, flags, progress=progress))
    written = f" and written to '{flags.out}'" if flags.out else ""
    cut = f"interrupted; the best plan so far is shown{written}."
    return outcome(
        found,
        texts={".csv": found.to_csv},
        interrupted=cut if found.solved.interrupted else "",
    )


@contextlib.contextmanager
def _reason(as_json: bool) -> Iterator[None]:
    """Within it, why there is no plan is told as JSON too."""
    try:
        yield
    except fleet.NoPlan as refused:
        if as_json:
            content = {"status": "infeasible", "reason": refused.reason}
            print(json_text(content), end="")
            sys.stdout.flush()
        raise
