"""Requests about a running service: `WindowsRequest`, `ServiceRequest`."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from .. import reading
from ..nodes import WallRequest
from ..requests import Clocks, Dtype, Flag, Limits, Note, Request, Text, Whole
from ..serving import ENGINE, EngineName, Sampling
from ..workload import ModelName

Arrivals = Literal["auto", "open", "closed"]
_Seconds = Annotated[float, Text("S", reading.seconds, unit="s")]
_ZONE: Final = Flag(
    "Offset from UTC of logs whose clock names no zone, such as +02:00 [UTC].",
    "OFFSET",
)


class WindowsRequest(Request):
    """What served the tokens of logs, and how they are cut into windows."""

    model: Annotated[
        ModelName | None,
        Flag("Model of the service: name or config.json.", "NAME|FILE"),
    ] = None
    gpu: Annotated[str | None, "GPU of the service [as the logs name it]."] = None
    tp: Annotated[
        Whole | None, Flag("GPUs of a replica of the service [all].", "T")
    ] = None
    num_gpus: Annotated[
        Whole | None, "GPUs of the service; of more in the logs the busiest [--tp]."
    ] = None
    engine: Annotated[EngineName | None, ENGINE] = None
    dtype: Annotated[
        Dtype | None, "Type of the service's linear layers [the checkpoint's]."
    ] = None
    kv_dtype: Annotated[
        Dtype | None, "Type of its KV cache [as the checkpoint, else 16 bit]."
    ] = None
    every: Annotated[
        _Seconds | None,
        "Length of a window of metrics [300 s; of long logs a 200th].",
    ] = None
    time_zone: Annotated[str | None, _ZONE] = None

    @property
    def gpus(self) -> int:
        """GPUs of the service."""
        return self.num_gpus or self.tp or 1


class ServedRequest(WindowsRequest, WallRequest):
    """A service whose windows are predicted."""

    ep: Annotated[Whole | None, "GPUs of a replica that share its experts [1]."] = None
    sampling: Annotated[
        Sampling | None, "Sampling of the service [top-p for vllm, else random]."
    ] = None
    sm_clock: Annotated[Clocks | None, "SM clock of the service [the highest]."] = None
    power_limit: Annotated[Limits | None, "Power limit of its GPUs [TDP]."] = None
    arrivals: Annotated[
        Arrivals,
        Flag(
            "Load of a window: its rate (open), its running requests (closed) or auto: "
            "open if fewer than 8 run in the mean.",
            "WHAT",
        ),
    ] = "auto"


class ServiceRequest(ServedRequest):
    """Logs of a service, and what served them."""

    logs: Annotated[
        Sequence[str] | str, Note("Logs of power, metrics and benchmarks: paths.")
    ] = dataclasses.field(kw_only=False)
    corrections: Annotated[
        Any | None, Note("Fitted constants: a file or none [the shipped ones].")
    ] = None


class ReadRequest(WindowsRequest):
    """Logs of a service that are measurements."""

    logs: Annotated[
        Sequence[str] | str, Note("Logs of power, metrics and benchmarks: paths.")
    ] = dataclasses.field(kw_only=False)
