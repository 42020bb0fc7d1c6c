"""Estimates on chips that nobody has measured: cheaper, wider, and said so."""

import dataclasses
import math
from typing import Any

import pytest
from chips import rubin

import diffenergy as de
from diffenergy.hardware import GpuCard, read_gpu

REQUEST: dict[str, Any] = {"batch": 8, "input_len": 512, "output_len": 128}


def estimated(gpu: GpuCard | str, **more: Any) -> de.EstimateResult:
    return de.estimate("llama-3.1-8b", gpu=gpu, **{**REQUEST, **more})


def test_a_newer_process_and_memory_cost_less():
    """A Rubin-like chip took 473 J where a B200 takes 400, an H200 in N3 a fifth more
    than as it is, when unknown words meant the factor 1."""
    new, old = estimated(rubin()), estimated("b200-sxm")
    assert new.time < old.time and new.energy < 0.85 * old.energy
    h200 = read_gpu("h200-sxm")
    smaller = estimated(dataclasses.replace(h200, process_node="N3"))
    plain = estimated("h200-sxm")
    assert 0.8 * plain.energy < smaller.energy < plain.energy
    assert smaller.summary["grade"] == "forecast"
    assert [x["tag"] for x in smaller.summary["forecast"]] == ["node:N3E"]
    assert "forecast" not in plain.summary and not plain.warnings


def test_what_a_law_says_is_told():
    answer = estimated(rubin()).summary
    memory, node = answer["warnings"][:2]
    assert "`memory` HBM4 was never fitted" in memory and "0.72 x HBM2" in memory
    assert "`process_node` N3P was never fitted" in node
    assert "0.57 x 7nm (5-95 %: 0.43 to 0.76), from 4NP" in node
    known = {x["tag"]: x for x in answer["forecast"]}
    assert known["node:N3P"]["anchor"] == "4NP"
    assert known["memory:HBM4"]["factor"] == pytest.approx(0.717, abs=1e-3)


@pytest.mark.slow
def test_intervals_widen_by_what_the_laws_leave_open():
    """Half widths in ln add in squares: 1.645 x share x sd of core and of DRAM; a
    guessed voltage curve counts 0.2 of the core."""
    card = rubin()
    plain = dataclasses.replace(card, process_node="4NP", memory="HBM3e",
                                architecture="Blackwell")  # fmt: skip
    free = {"phase": "decode", "output_len": None}  # no limit holds it
    wide, narrow = (estimated(x, **free).summary for x in (card, plain))

    def width(answer: dict[str, Any]) -> float:
        low, high = answer["avg_power_w_p5_p95"]
        return math.log(high / low) / 2

    parts = wide["energy_j_by_unit"]
    core = ("tensor", "fma", "sfu", "issue", "smem", "l2", "clock_tree", "other")
    share = sum(parts[x] for x in core) / wide["energy_j"]
    dram = parts["dram"] / wide["energy_j"]
    law = 1.645 * math.hypot(0.174 * share, 0.110 * dram)
    least = math.sqrt(width(narrow) ** 2 + law**2)
    assert least * 0.98 < width(wide) < math.hypot(least, 1.645 * 0.2 * share)
