"""Flags of `diffenergy serve`."""

from typing import Annotated

from ...requests import Excludes, Flag, Needs
from ...serving import SKIP, TRACE, LoadRequest, PoolsRequest, ServeRequest
from ..flags import Json, out_file, plot_file


class Flags(LoadRequest, PoolsRequest, ServeRequest):
    """Estimate latencies, power and energy per token of a served model under load.

    The load is one of --max-batch (saturated), --concurrency (closed loop), --rate
    (open loop) and --trace. Exits with status 3 if the server cannot sustain the rate,
    and names the highest rate that it can.

    \b
    Examples:
      diffenergy serve qwen3-8b --rate 8 --input-len lognormal:512:1
      diffenergy serve llama-3.1-70b --tp 4 --concurrency 64 --json
      diffenergy serve qwen3-8b --rate 8 --slo-tpot 30ms --optimize energy
      diffenergy serve qwen3-8b --rate 8 --apart --decode max_batch=128
    """

    trace: Annotated[
        str | None,
        TRACE,
        Excludes(("optimize", "sensitivity"), "it is simulated; give a `rate`"),
    ] = None
    apart: Annotated[
        bool,
        Flag("Read prompts on GPUs of their own, and decode on others."),
        Excludes(
            ("trace", "optimize", "sensitivity", "schedule", "waves", "num_gpus"),
            "pools apart have a `rate` or a `concurrency`, and `workers` each",
        ),
    ] = False
    skip_too_long: Annotated[bool, SKIP, Needs("trace")] = False
    plot: Annotated[str | None, plot_file()] = None
    as_json: Json = False
    out: Annotated[str | None, out_file("Also write .json.", ".json")] = None
