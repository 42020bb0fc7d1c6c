"""`diffenergy plan`: the best plan with which GPUs train a model."""

from typing import Any

from ... import parallel
from ...estimator import start_jax
from ..flags.plan import Flags
from ..progress import points
from ..run import Outcome, outcome


def run(flags: Flags) -> Outcome:
    """Searches what the flags ask for."""
    start_jax()
    for name in ("num_gpus", "global_batch"):
        if getattr(flags, name) is None:
            raise ValueError(f"`{name}` is missing; give `--{name.replace('_', '-')}`.")
    with points("plans") as told:
        found = parallel.plan(
            flags.model,
            flags.gpu or "h100-sxm",
            num_gpus=flags.num_gpus or (),
            global_batch=flags.global_batch or 0,
            plan=flags.plan,
            told=told,
            **_given(flags),
        )
    return outcome(found)


def _given(flags: Flags) -> dict[str, Any]:
    """What was given of the groups, one clock and limit each."""
    groups = (flags.training, flags.search, flags.point)
    given = {k: x for part in groups for k, x in vars(part).items() if x is not None}
    for name in ("sm_clock", "mem_clock", "power_limit"):
        if len(given.get(name, ())) > 1:
            raise ValueError(f"`{name}` is a list; a search takes one value.")
    single = {x: given[x][0] for x in ("sm_clock", "power_limit") if x in given}
    return given | single
