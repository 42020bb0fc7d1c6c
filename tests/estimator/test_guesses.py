"""Widths that guessed numbers of a GPU file add, by hand."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from diffenergy.corrections import Corrections, Forecast
from diffenergy.estimator._answer.guesses import guessed_widths
from diffenergy.hardware import GpuCard, read_gpu
from diffenergy.physics import COMPONENTS

C = Corrections(leakage_efold=40.0)  # pyright: ignore[reportArgumentType]
FIELDS = ("vf_slope", "idle_constant", "thermal_resistance")


def card(**quality: str) -> GpuCard:
    """An A100 with these qualities of three numbers, else measured."""
    read = read_gpu("a100-pcie-40gb")
    fields = {x: {"quality": quality.get(x, "measured")} for x in FIELDS}
    return dataclasses.replace(read, provenance={**read.provenance, **fields})


FLOOR = float(card().values["vf_floor_voltage"])


def phase(volts: float, warmer: float, **watts: float) -> dict[str, Any]:
    """One phase of 1 s at `volts`, `warmer` K above ambient."""
    parts = np.array([[watts.get(x, 0.0) for x in COMPONENTS]])
    return {
        "energy": parts.sum(1),
        "components": parts,
        "voltage": np.array([volts]),
        "warmer": np.array([warmer]),
    }


RUN = phase(
    FLOOR / 0.8, 30.0, tensor=80, clock_tree=20, dram=60, link=10, idle=20, leakage=10
)
"""200 W, 100 W of them on the core's rail; the voltage is a fifth of itself above its
floor; leakage has grown by 30 K over e-folds of 40 K."""
CORE = (2 * 0.5 + 4 * 0.05) * 0.2
IDLE, GROWN = 0.1, 0.05 * 30 / 40
"""d ln P for a doubled rise of the voltage, idle power and thermal resistance."""


@pytest.mark.parametrize(
    ("quality", "sd"),
    [
        ({}, 0.0), ({"vf_slope": "guess"}, 0.3 * CORE),
        ({"vf_slope": "recall"}, 0.2 * CORE), ({"vf_slope": "derived"}, 0.1 * CORE),
        ({"vf_slope": "vendor_docs"}, 0.0), ({"idle_constant": "guess"}, 0.3 * IDLE),
        ({"thermal_resistance": "derived"}, 0.1 * GROWN),
        ({"vf_slope": "guess", "idle_constant": "derived"}, math.hypot(0.3 * CORE,
         0.1 * IDLE)),
        (dict.fromkeys(FIELDS, "guess"), 0.3 * math.sqrt(CORE**2 + IDLE**2 + GROWN**2)),
    ],
)  # fmt: skip
def test_power_is_known_no_better_than_the_numbers(quality: dict[str, str], sd: float):
    """Below a limit; at one the clock gives way, with the power 2.5 of it."""
    free = guessed_widths(card(**quality), C, RUN, capped=False)
    half = 1.645 * sd
    assert free == pytest.approx({"time": 0, "power": half, "energy": half})
    limited = guessed_widths(card(**quality), C, RUN, capped=True)
    assert limited == pytest.approx(
        {"time": half / 2.5, "power": 0, "energy": half / 2.5}
    )


def test_phases_count_by_their_energy():
    """600 J on the voltage's floor, 200 J as above; errors of one number in both go
    together."""
    rest = phase(FLOOR, 0.0, tensor=300, dram=240, idle=60)
    both = {x: np.concatenate([RUN[x], rest[x]]) for x in RUN}
    guessed = guessed_widths(card(vf_slope="guess"), C, both, capped=False)
    assert guessed["power"] == pytest.approx(1.645 * 0.3 * 0.25 * CORE)
    idle = guessed_widths(card(idle_constant="guess"), C, both, capped=False)
    assert idle["power"] == pytest.approx(1.645 * 0.3 * 0.1)
    bare = dataclasses.replace(read_gpu("a100-pcie-40gb"), provenance={})
    every = card(**dict.fromkeys(FIELDS, "guess"))  # as of unknown origin
    expected = guessed_widths(every, C, RUN, False)
    assert guessed_widths(bare, C, RUN, False) == expected


def test_a_law_of_the_core_bounds_the_voltage_from_below():
    """Of an unknown process: a fifth of what the core draws, where the curve itself
    brings less, beside the law's own."""
    law = Forecast("process:x", "core_energy", 1.0, 0.4, "")
    guess = guessed_widths(card(vf_slope="guess"), C, RUN, False, [law])
    expected = 1.645 * math.hypot(max(0.3 * CORE, 0.2 * 0.5), 0.4 * 0.5)
    assert guess["power"] == pytest.approx(expected) and 0.2 * 0.5 > 0.3 * CORE
    derived = guessed_widths(card(vf_slope="derived"), C, RUN, False, [law])
    expected = 1.645 * math.hypot(0.1 * CORE, 0.4 * 0.5)
    assert derived["power"] == pytest.approx(expected)
