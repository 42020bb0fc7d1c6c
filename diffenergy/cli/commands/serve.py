"""`diffenergy serve`: what a served token costs under load."""

from ... import serving
from ...estimator import start_jax
from ...requests import part
from ..run import Outcome, outcome
from .serve_flags import Flags


def run(flags: Flags) -> Outcome:
    """Computes a server in steady state, or simulates a trace."""
    start_jax()
    load = part(serving.LoadRequest, flags)
    if flags.apart:
        request = part(serving.ApartRequest, flags, load=serving.Load(**load))
        return outcome(serving.apart(**request))
    if flags.trace is None:
        request = part(serving.ServeRequest, flags, load=serving.Load(**load))
        return outcome(serving.steady_state(**request))
    request = part(serving.TraceRequest, flags, load=load)
    return outcome(serving.simulate(**request))
