"""`diffenergy serve`: what a served token costs under load."""

from ... import serving
from ...estimator import start_jax
from ...requests import part
from ..flags import POWER_STEP
from ..run import Outcome, outcome, power_table
from .serve_flags import Flags


def run(flags: Flags) -> Outcome:
    """Computes a server in steady state, or simulates a trace."""
    start_jax()
    load = part(serving.LoadRequest, flags)
    if flags.trace is None:
        request = part(serving.ServeRequest, flags, load=serving.Load(**load))
        return outcome(serving.steady_state(**request))
    step = flags.power_step or (flags.power_trace and POWER_STEP) or None
    request = part(serving.TraceRequest, flags, load=load, power_step=step)
    result = serving.simulate(**request)
    beside = power_table(flags.power_trace, result.curves, step)
    return outcome(result, beside=beside)
