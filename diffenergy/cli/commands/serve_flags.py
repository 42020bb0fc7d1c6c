"""Flags of `diffenergy serve`."""

from typing import Annotated

from ...power_time import SMOOTH_HELP, STEP_HELP, PowerStep, Smooth
from ...requests import Excludes, Needs
from ...serving import SKIP, TRACE, LoadRequest, ServeRequest
from ..flags import Json, out_file, plot_file, power_file


class Flags(LoadRequest, ServeRequest):
    """Estimate latencies, power and energy per token of a served model under load.

    The load is one of --max-batch (saturated), --concurrency (closed loop), --rate
    (open loop) and --trace. Exits with status 3 if the server cannot sustain the rate,
    and names the highest rate that it can.

    \b
    Examples:
      diffenergy serve qwen3-8b --rate 8 --input-len lognormal:512:1
      diffenergy serve llama-3.1-70b --tp 4 --concurrency 64 --json
      diffenergy serve qwen3-8b --rate 8 --slo-tpot 30ms --optimize energy
    """

    trace: Annotated[
        str | None,
        TRACE,
        Excludes(("optimize", "sensitivity"), "it is simulated; give a `rate`"),
    ] = None
    skip_too_long: Annotated[bool, SKIP, Needs("trace")] = False
    power_trace: Annotated[str | None, power_file(), Needs("trace")] = None
    power_step: Annotated[PowerStep | None, STEP_HELP, Needs("trace")] = None
    smooth: Annotated[Smooth | None, SMOOTH_HELP, Needs("trace")] = None
    plot: Annotated[str | None, plot_file()] = None
    as_json: Json = False
    out: Annotated[str | None, out_file("Also write .json.", ".json")] = None
