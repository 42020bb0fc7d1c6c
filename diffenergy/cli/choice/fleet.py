"""`diffenergy fleet`: which model on which GPUs, at which clock, under my watts."""

import contextlib
import sys
from collections.abc import Iterator

from ... import fleet
from ...estimator import start_jax
from ...keys import json_text
from ..progress import phases
from ..run import Outcome, outcome
from .fleet_flags import Flags, series


def run(flags: Flags) -> Outcome:
    """Plans the fleet of the flags."""
    start_jax()
    asked = {x: y for x, y in vars(flags).items() if x in _ASKED}
    with _reason(flags.as_json), phases() as told:
        found = fleet.plan(
            flags.fleet,
            told=told,
            power_budget=series(flags.power_budget, "W"),
            carbon=series(flags.carbon),
            price=flags.price,
            **asked,
        )
    return outcome(found, texts={".csv": found.to_csv})


_ASKED = ("objective", "demand", "points", "max_gap", "effort", "time_limit")


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
