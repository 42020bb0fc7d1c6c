"""Measurement models of known campaigns (`data/corrections/instruments.toml`)."""

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ._sensors import SENSOR_CONSTANTS

_FILE: Final = Path(__file__).parents[1] / "data" / "corrections" / "instruments.toml"


@functools.cache
def instruments() -> Mapping[str, Mapping[str, Any]]:
    """Measurement model of each campaign, campaign:op and campaign:op@gpu."""
    file = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    (first, model), *others = file["campaign"].items()
    models = {first: _model(model, file["shared"]), **_calls(file["calls"])}
    for name, model in others:
        models.setdefault(name, {}).update(_model(model, file["shared"]))
    return models


def _model(
    own: Mapping[str, Any], shared: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """What a campaign shares with others, what is its own, its sensor."""
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
        own = {"softmax": "softmax", "layernorm": "norm", "elementwise": "tensors"}
        for op, kind in own.items():
            models[f"{campaign}:{op}@{gpu}"] = {
                "call_seconds": events,
                "loop_seconds": host[kind] - events,
            }
        models[f"{campaign}:elementwise@{gpu}"] |= {
            f"loop_seconds_{word}u": host["scalar"] - events
            for word in ("add", "mul", "div", "pow")
        }
    return models
