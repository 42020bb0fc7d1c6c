"""`diffenergy plan`: clocks for the stages of a training plan."""

from ... import parallel
from ...estimator import start_jax
from ..flags.plan import Flags
from ..run import Outcome, outcome


def run(flags: Flags) -> Outcome:
    """Solves what the flags ask for."""
    if not flags.stage_clocks:
        raise ValueError(
            "`--stage-clocks` is missing; give it for clocks of the stages of `--plan`."
        )
    start_jax()
    found = parallel.stage_clocks(
        flags.model,
        flags.gpu,
        **vars(flags.clocks),
        **vars(flags.request),
        **vars(flags.sharing),
        **vars(flags.point),
    )
    return outcome(found, texts={".csv": found.to_csv, ".py": found.to_script})
