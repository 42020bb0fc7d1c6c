"""`Sensor`: what is fitted of the way a campaign reads power."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from jax import Array
from jaxtyping import Float

from ..records import Record
from ._constant import constant


class Sensor(Record):
    """What is fitted of a campaign's power readings; defaults are prior centres.

    The share of the sensor's second before the first sample that was as hot as the
    kernel itself is `warm` (runs back to back), `cold` (idle before: heated by the
    launches of the warm-up alone) or `fresh`; or a `gap` lies between two runs.
    """

    background: Float[Array, ""] = constant(138.0, 0.05, "W", "board before a run")
    warm_share: Float[Array, ""] = constant(1.0, 0.3, "1/s", "warm before, per s")
    warm_least: Float[Array, ""] = constant(0.22, 0.3, "-", "warm before, at least")
    cold_share: Float[Array, ""] = constant(0.26, 0.4, "-", "cold, at 60 us")
    cold_narrow: Float[Array, ""] = constant(0.03, 0.7, "-", "the same, 8-bit blocks")
    cold_rows: Float[Array, ""] = constant(0.4, 0.4, "-", "power of rows/128 in it")
    cold_limit: Float[Array, ""] = constant(0.8, 0.15, "-", "most of it")
    fresh_share: Float[Array, ""] = constant(0.25, 0.4, "-", "fresh process, at 1 ms")
    fresh_narrow: Float[Array, ""] = constant(0.05, 0.7, "-", "the same, 8-bit blocks")
    previous_power: Float[Array, ""] = constant(660.0, 0.05, "W", "before 8-bit runs")
    fresh_saving: Float[Array, ""] = constant(0.25, 0.4, "-", "zeros, fresh process")
    huge_saving: Float[Array, ""] = constant(0.5, 0.3, "-", "zero pages, huge weights")
    huge_bytes: Float[Array, ""] = constant(20e9, 0.3, "B", "weights with zero pages")
    weight_saving: Float[Array, ""] = constant(0.12, 0.5, "-", "left-over weights")
    gap: Float[Array, ""] = constant(0.2, 0.7, "s", "idle between two runs")
    gap_sequence: Float[Array, ""] = constant(
        1e-4, 1.0, "s", "the same per sequence or unit of expert load"
    )
    gap_byte: Float[Array, ""] = constant(3e-11, 1.0, "s/B", "the same per new byte")


SENSOR_CONSTANTS: Final[Mapping[str, dataclasses.Field[Any]]] = {
    field.name: field for field in dataclasses.fields(Sensor)
}


def sensor_centre(constant: str) -> float:
    """Prior centre of a constant of a sensor."""
    default: Any = SENSOR_CONSTANTS[constant].default
    return default
