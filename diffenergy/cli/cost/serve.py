"""`diffenergy serve`: what a served token costs under load."""

from ... import serving
from ...estimator import start_jax
from ..run import Outcome, outcome
from .serve_flags import Flags


def run(flags: Flags) -> Outcome:
    """Answers what the flags ask for."""
    start_jax()
    given = vars(flags.load)
    if flags.trace is not None:
        return _trace(flags, flags.trace)
    if flags.skip_too_long:
        raise ValueError("`skip_too_long` is given without `trace`; leave it out.")
    found = serving.steady_state(
        flags.model,
        flags.gpu,
        serving.Load(**given),
        optimize=flags.optimize,
        sensitivity=flags.sensitivity or (),
        **vars(flags.server),
        **vars(flags.point),
    )
    return outcome(found)


def _trace(flags: Flags, trace: str) -> Outcome:
    """Runs a trace of requests."""
    for name in ("optimize", "sensitivity"):
        if getattr(flags, name):
            raise ValueError(
                f"`{name}` is given beside `trace`, which is simulated; give a `rate`."
            )
    found = serving.simulate(
        trace,
        flags.model,
        flags.gpu,
        vars(flags.load),
        skip_too_long=flags.skip_too_long,
        **vars(flags.server),
        **vars(flags.point),
    )
    return outcome(found)
