"""Measurement models of known campaigns (`instruments.toml`), and what is fitted of
their sensors of power."""

import functools
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from jax import Array
from jaxtyping import Float

from diffenergy.corrections import Constant, CorrectionsFile, constant, constants_of
from diffenergy.records import Record

_FILE: Final = Path(__file__).with_name("instruments.toml")

_sensor = partial(
    constant,
    closes="power of one kernel in runs of 0.1 to 10 s",
    source="Instruments",
    levels=("gpu",),
)
_contents = partial(
    constant,
    closes="power of the same products with random and with left-over weights",
    source="Instruments",
    levels=("gpu",),
)


class Sensor(Record):
    """What is fitted of a campaign's power readings on a GPU; defaults are prior
    centres.

    The share of the sensor's second before the first sample that was as hot as the
    kernel itself is `warm` (runs back to back), `cold` (idle before: heated by the
    launches of the warm-up alone) or `fresh`; or a `gap` lies between two runs.
    """

    background: Float[Array, ""] = _sensor(138.0, 0.05, "W", "board before a run")
    warm_share: Float[Array, ""] = _sensor(1.0, 0.3, "1/s", "warm before, per s")
    warm_least: Float[Array, ""] = _sensor(0.22, 0.3, "-", "warm before, at least")
    cold_share: Float[Array, ""] = _sensor(0.26, 0.4, "-", "cold, at 60 us")
    cold_narrow: Float[Array, ""] = _sensor(0.03, 0.7, "-", "the same, 8-bit blocks")
    cold_rows: Float[Array, ""] = _sensor(0.4, 0.4, "-", "power of rows/128 in it")
    cold_limit: Float[Array, ""] = _sensor(0.8, 0.15, "-", "most of it")
    fresh_share: Float[Array, ""] = _sensor(0.25, 0.4, "-", "fresh process, at 1 ms")
    fresh_narrow: Float[Array, ""] = _sensor(0.05, 0.7, "-", "the same, 8-bit blocks")
    previous_power: Float[Array, ""] = _sensor(660.0, 0.05, "W", "before 8-bit runs")
    fresh_saving: Float[Array, ""] = _contents(0.25, 0.4, "-", "zeros, fresh process")
    huge_saving: Float[Array, ""] = _contents(0.5, 0.3, "-", "zero pages, huge weights")
    huge_bytes: Float[Array, ""] = _contents(20e9, 0.3, "B", "weights with zero pages")
    weight_saving: Float[Array, ""] = _contents(
        0.3, 0.5, "-", "left-over weights: energy of their bytes"
    )
    math_saving: Float[Array, ""] = _contents(
        0.3, 0.5, "-", "left-over weights: energy of the math"
    )
    gap: Float[Array, ""] = _sensor(0.2, 0.7, "s", "idle between two runs")
    gap_sequence: Float[Array, ""] = _sensor(
        1e-4, 1.0, "s", "the same per sequence or unit of expert load"
    )
    gap_byte: Float[Array, ""] = _sensor(3e-11, 1.0, "s/B", "the same per new byte")


SENSOR_CONSTANTS: Final[Mapping[str, Constant]] = constants_of(Sensor)


@functools.cache
def instruments() -> Mapping[str, Mapping[str, Any]]:
    """Measurement model of each campaign, campaign:op and campaign:op@gpu."""
    file = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    (first, model), *others = file["campaign"].items()
    models = {first: _model(model, file["shared"]), **_calls(file["calls"])}
    for name, model in others:
        models.setdefault(name, {}).update(_model(model, file["shared"]))
    return models


def model_of(
    corrections: CorrectionsFile, campaign: str, op: str, gpu: str = ""
) -> dict[str, Any]:
    """Measurement model of a campaign, with what is special to one op (on one GPU: its
    host); what was fitted of it comes before its prior."""
    names = (campaign, f"{campaign}:{op}", f"{campaign}:{op}@{gpu}")
    files = (instruments(), corrections.instruments)
    return {
        key: value
        for name in names
        for file in files
        for key, value in file.get(name, {}).items()
    }


def _model(
    own: Mapping[str, Any], shared: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Numbers of a campaign: shared ones, its own, and its sensor's."""
    rest = {key: value for key, value in own.items() if key not in ("like", "sensor")}
    like = [shared[name] for name in own.get("like", ())]
    sensor = {name: SENSOR_CONSTANTS[name].centre for name in own.get("sensor", ())}
    return {key: value for part in (*like, rest, sensor) for key, value in part.items()}


def _calls(calls: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Models of a campaign that times calls: the host of a product adds to its kernel;
    of other operators the longer of host and kernel counts."""
    campaign, events = calls["campaign"], calls["events"]
    models = {
        f"{campaign}:gemm@{gpu}": {
            "call_seconds": host["call"],
            "call_seconds_linear": host["call"] + host["linear"],
        }
        for gpu, host in calls["product"].items()
    }
    for gpu, host in calls["vector"].items():
        fields = {"softmax": "softmax", "layernorm": "norm", "elementwise": "tensors"}
        for op, kind in fields.items():
            models[f"{campaign}:{op}@{gpu}"] = {
                "call_seconds": events,
                "loop_seconds": host[kind] - events,
            }
        models[f"{campaign}:elementwise@{gpu}"] |= {
            f"loop_seconds_{word}u": host["scalar"] - events
            for word in ("add", "mul", "div", "pow")
        }
    return models
