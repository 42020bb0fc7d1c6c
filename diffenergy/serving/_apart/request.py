"""`ApartRequest`: two pools of servers, one that reads prompts and one that decodes."""

import functools
from collections.abc import Mapping
from typing import Annotated, Any, Final

from msgspec import Meta

from ... import reading
from ...hardware import GpuName
from ...requests import Clocks, Flag, Limits, Needs, Request, Text, Whole, declared
from .._request import DeployRequest

_SHARED: Final = {
    "dtype": "both pools have the same weights",
    "kv_dtype": "the KV cache goes from one pool to the other",
}
"""Keys that are of both pools, and why."""


class PoolRequest(Request):
    """Servers of one pool; what is None is as without pools."""

    gpu: Annotated[GpuName | None, "GPU name or .toml file."] = None
    tp: Annotated[Whole | None, "GPUs of a worker."] = None
    ep: Annotated[Whole | None, "GPUs of a worker that share its experts."] = None
    workers: Annotated[Whole | None, "Number of workers."] = None
    sm_clock: Annotated[Clocks | None, "SM clock."] = None
    power_limit: Annotated[Limits | None, "Power limit."] = None


class DecodeRequest(PoolRequest):
    """Servers of the decode pool."""

    attention_dp: Annotated[Whole | None, "Groups of a worker's attention."] = None

    max_batch: Annotated[
        Annotated[float, Meta(ge=1, description="allowed is a number from 1 on")]
        | None,
        Flag("Maximum number of running requests of a worker.", "B", reading.positive),
    ] = None


def _pool(kind: Any, name: str, value: Any) -> Any:
    """A pool from `KEY=VALUE,...`, or from its fields as a dict."""
    if value is None or isinstance(value, kind):
        return value
    fields = {field.name: flag for field, flag in declared(kind)}
    if isinstance(value, str):
        values = dict[str, Any]()
        for pair in value.split(","):
            key, equals, text = pair.partition("=")
            key = key.strip().replace("-", "_")
            if not equals or not text.strip() or key in values:
                raise ValueError(
                    f"`{name}` has '{pair}'; give KEY=VALUE,... with each of "
                    f"{', '.join(fields)} at most once."
                )
            _check_key(name, key, fields)
            read = fields[key].read
            text = text.strip()
            values[key] = read(f"{name} {key}", text) if read else text
        value = values
    if not isinstance(value, Mapping):
        raise TypeError(f"`{name}` is a {type(value).__name__}; allowed is dict.")
    for key in value:
        _check_key(name, key, fields)
    try:
        return kind(**value)
    except ValueError as error:
        raise ValueError(f"`{name}`: {error}") from None


def _check_key(name: str, key: str, fields: Mapping[str, Any]):
    if key in _SHARED:
        raise ValueError(
            f"`{name}` has '{key}', but {_SHARED[key]}; give `{key}` once for both."
        )
    if key not in fields:
        raise ValueError(
            f"`{name}` has '{key}', which is no key of a pool; allowed are "
            f"{', '.join(fields)}."
        )


_prefill: Final = functools.partial(_pool, PoolRequest)
_decode: Final = functools.partial(_pool, DecodeRequest)
PREFILL: Final = Flag(
    "Prefill pool: gpu, tp, ep, workers, sm_clock, power_limit [workers: the least "
    "that carry the rate; else as without pools].",
    "KEY=VALUE[,...]",
    _prefill,
)
DECODE: Final = Flag(
    "Decode pool: the same keys, attention_dp and max_batch.",
    "KEY=VALUE[,...]",
    _decode,
)
LINK: Final = Flag(
    "Rate at which a GPU sends KV cache to the other pool [50 GB/s].",
    "GB/S",
    functools.partial(reading.positive, unit="GB/s"),
)
Link = Annotated[float, Meta(gt=0, description="allowed is a number above 0")]


class PoolsRequest(Request):
    """The pools and the link between them."""

    prefill: Annotated[
        Annotated[Any, Text("", take=_prefill)], PREFILL, Needs("apart")
    ] = None
    decode: Annotated[
        Annotated[Any, Text("", take=_decode)], DECODE, Needs("apart")
    ] = None
    kv_link: Annotated[
        Annotated[Link, Text("", unit="B/s")] | None, LINK, Needs("apart")
    ] = None


class ApartRequest(PoolsRequest, DeployRequest):
    """A model served by two pools, under a load."""
