"""`diffenergy plan`: the best plan for training, and clocks for the stages of one."""

from typing import Any

from ... import parallel
from ...estimator import start_jax
from ..progress import points
from ..run import Outcome, outcome
from .plan_flags import Flags


def run(flags: Flags) -> Outcome:
    """Answers what the flags ask for."""
    start_jax()
    return _clocks(flags) if flags.stage_clocks else _search(flags)


def _search(flags: Flags) -> Outcome:
    """The best plan."""
    sharing, clocks = _given(flags.sharing), _given(flags.clocks)
    for name in clocks:
        raise ValueError(f"`{name}` is given without `--stage-clocks`; give both.")
    if "tp" in sharing:
        raise ValueError("`tp` is given; a search holds it as `--plan tp=N`.")
    for name in ("num_gpus", "global_batch"):
        if name not in sharing:
            raise ValueError(f"`{name}` is missing; a search needs it.")
    point = _given(flags.point)
    for name in ("sm_clock", "power_limit"):
        if len(point.get(name, ())) > 1:
            raise ValueError(f"`{name}` is a list; a search takes one value.")
    single = {x: point[x][0] for x in ("sm_clock", "power_limit") if x in point}
    asked = {**sharing, **_given(flags.request), **_given(flags.search), **point}
    with points("plans") as told:
        found = parallel.plan(
            flags.model, flags.gpu or "h100-sxm", told=told, **{**asked, **single}
        )
    return outcome(found)


def _clocks(flags: Flags) -> Outcome:
    """Clocks for stages."""
    sharing = _given(flags.sharing)
    for name in _given(flags.search):
        raise ValueError(f"`{name}` is given beside `--stage-clocks`; leave one out.")
    if len(sharing.get("num_gpus", ())) > 1:
        raise ValueError("`num_gpus` is a list; clocks are those of one plan.")
    single = {"num_gpus": sharing["num_gpus"][0]} if "num_gpus" in sharing else {}
    found = parallel.stage_clocks(
        flags.model,
        flags.gpu,
        **_given(flags.clocks),
        **vars(flags.request),
        **{**sharing, **single},
        **vars(flags.point),
    )
    return outcome(found, texts={".csv": found.to_csv, ".py": found.to_script})


def _given(group: Any) -> dict[str, Any]:
    """Flags of a group that were given."""
    given = vars(group).items()
    return {name: x for name, x in given if x is not None and x is not False}
