"""Flags of `diffenergy import`."""

from typing import Annotated

from ...imports import ImportRequest
from ...measurements import LogRequest
from ...requests import Argument, Flag
from ...service import WindowsRequest
from ...workload import ModelName
from .. import arguments
from ..flags import Json, out_file


class Flags(ImportRequest, LogRequest, WindowsRequest):
    """A trace, graph or report as a kernel listing; a power log as measured runs.

    FILE is a PyTorch profiler (Kineto) or Chrome trace (.json, .json.gz), an ONNX
    graph, an export (.sqlite) or summary (.csv) of Nsight Systems, a table (.csv) of
    Nsight Compute, or a Chakra execution trace (.et); its content decides. `estimate`
    and `evaluate` take the same files.

    A log of nvidia-smi (--query-gpu=... --format=csv), ZeusMonitor, CodeCarbon or the
    DCGM exporter becomes a table of measured runs, which `fit` and `evaluate` read.

    Results of vLLM's, SGLang's or genai-perf's benchmark and range exports of
    Prometheus become, with logs of power, a table of measured servers for `fit`.

    \b
    Examples:
      diffenergy import trace.json --out listing.jsonl
      diffenergy import log.csv --workload gpt2 --passes 100 --out runs.csv
      diffenergy import bench.json power.csv --model qwen3-8b --out servers.csv
    """

    files: Annotated[
        tuple[str, ...],
        Argument(
            "Trace, graph, report or log; several logs of one service.",
            "FILE",
            many=True,
            files=arguments.file,
        ),
    ]
    model: Annotated[
        ModelName | None,
        Flag("Model of a serving engine's trace or of a service.", "NAME|FILE"),
    ] = None
    as_json: Json = False
    out: Annotated[
        str | None,
        out_file(
            "Also write the listing (.jsonl), .json, or counters and logs as "
            "measurements (.csv).",
            ".jsonl", ".json", ".csv",
        ),
    ] = None  # fmt: skip
