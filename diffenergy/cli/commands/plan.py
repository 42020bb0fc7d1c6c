"""`diffenergy plan`: the best plan for training, and clocks for the stages of one."""

from typing import Any

from ... import parallel
from ...estimator import start_jax
from ...parallel import PlanRequest, StageClocksRequest
from ...requests import part, values_of
from ..progress import points
from ..run import Outcome, outcome
from .plan_flags import Flags


def run(flags: Flags) -> Outcome:
    """Searches a plan, or the clocks of its stages."""
    start_jax()
    if not flags.stage_clocks:
        with points("plans") as show:
            return outcome(parallel.plan(**part(PlanRequest, flags, progress=show)))
    numbers: Any = values_of(flags.num_gpus) or (None,)
    if len(numbers) > 1:
        raise ValueError("`num_gpus` is a list; clocks are those of one plan.")
    request = part(StageClocksRequest, flags, num_gpus=numbers[0])
    result = parallel.stage_clocks(**request)
    return outcome(result, texts={".csv": result.to_csv, ".py": result.to_script})
