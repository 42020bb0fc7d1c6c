"""Published dies, the two regressions over them, area and static power of designs."""

import csv
import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jaxtyping import Float

from calibration.studies.silicon_fit import area_fit, idle_fit, stored
from diffenergy.codesign._space.silicon import (
    Silicon,
    area_errors,
    area_model,
    board_channels,
    idle_model,
    silicon_of,
)
from diffenergy.hardware import (
    GpuSpec,
    die_of,
    gpu_names,
    process_rules,
    published_dies,
    read_gpu,
)
from diffenergy.hardware._dies import NUMBERS, idle_readings

ROOT = Path(__file__).parents[2]
PUBLISHED = {
    "GK110": (561, 5), "GM200": (601, 6), "GM204": (398, 4), "GP100": (610, 6),
    "GP102": (471, 6), "GV100": (815, 6), "TU102": (754, 6), "TU104": (545, 6),
    "GA100": (826, 8), "GA102": (628.4, 7), "GA104": (392.5, 6), "AD102": (608.5, 12),
    "AD104": (294.5, 5), "GH100": (814, 8), "GB202": (750, 12),
}  # fmt: skip
"""mm2 and GPCs, as published."""
CARRIED = [gpu for die in published_dies() for gpu in die.gpus]
TENSOR = ("tf32", "bf16", "fp16", "fp8", "int8", "fp4")
GROWING = (
    "num_sms", "fma_flop_per_cycle_fp32", "fma_flop_per_cycle_fp64",
    *(f"tensor_flop_per_cycle_{dtype}" for dtype in TENSOR),
    "smem_per_sm", "l1_capacity", "registers_per_sm", "l2_capacity", "dram_bandwidth",
)  # fmt: skip
"""Numbers of a GPU that its area depends on."""


# --- facts


def test_every_fact_of_a_die_has_a_source():
    raw = tomllib.loads((ROOT / "diffenergy/data/facts/dies.toml").read_text())
    assert [die.name for die in published_dies()] == list(PUBLISHED)
    for die in published_dies():
        area, gpcs = PUBLISHED[die.name]
        assert (die.die_area, die.num_sms) == (area, gpcs * die.sms_per_gpc)
        assert set(die.sources) == set(NUMBERS)
        grades = {source["quality"] for source in die.sources.values()}
        assert grades <= {"measured", "derived", "recall"}
        assert ("recall" in grades) <= bool(raw["die"][die.name].get("check"))
        for source in die.sources.values():
            assert source["text"] and source["year"] > 2000


@pytest.mark.parametrize("gpu", CARRIED)
def test_boards_fit_on_their_die_and_the_base_is_exact(gpu: str):
    card, die = read_gpu(gpu), die_of(gpu)
    assert die is not None
    assert card.process_node == die.process
    assert card.physical["die_area_mm2"] == die.die_area
    assert card.values["num_sms"] <= die.num_sms
    assert card.values["l2_capacity"] <= die.l2_capacity
    assert 1024 * card.physical.get("dram_stacks", 0) <= die.bus_width
    parts, v = silicon_of(card), card.values
    assert parts.settled
    area, *terms = _numbers(parts, card.spec, ONES).tolist()
    assert area == pytest.approx(die.die_area, rel=1e-12)
    start = [v[name] for name in ("idle_constant", "idle_clock", "idle_leakage")]
    assert terms == pytest.approx(start, rel=1e-12)


def test_unsettled_gpus_have_no_die():
    # the H800 states the area of the H100, whose doubles and links it has not
    without = set(gpu_names()) - set(CARRIED) - {"h800-sxm"}
    assert without >= {"b200-sxm", "b300", "gb200", "gb300", "mi50", "mi100", "mi300x"}
    assert not any(silicon_of(read_gpu(gpu)).settled for gpu in sorted(without))


@pytest.mark.shared_data
def test_facts_agree_with_the_shared_table(shared: Path):
    table: dict[tuple[str, str], dict[str, str]] = {}
    with (shared / "data/facts/gpus.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):  # sorted by preference
            table.setdefault((row["gpu"], row["field"]), row)
    for die in published_dies():
        for gpu in (gpu for gpu in die.gpus if (gpu, "chip") in table):
            assert table[gpu, "chip"]["value"].startswith(die.name)

            def value(field: str, gpu: str = gpu) -> float:
                return float(table[gpu, field]["value"])

            assert value("die_area") == die.die_area
            assert value("transistors") == die.transistors
            assert value("num_sms") <= die.num_sms
            assert value("l2_capacity") <= die.l2_capacity
            assert value("dram_bus_width") <= die.bus_width
    for (gpu, field), row in table.items():
        if field == "idle_power" and gpu in CARRIED:
            reading = idle_readings()[gpu]
            assert reading.power == float(row["value"])
            assert reading.quality == row["quality"]
            assert not reading.fit or row["quality"] == "measured"


# --- regressions


def test_area_regression_against_least_squares_by_hand():
    terms, known, areas = [], [], []
    for die in published_dies():
        v, rules = read_gpu(die.gpus[0]).values, process_rules(die.process)
        bits = {"tf32": 11, "bf16": 8, "fp16": 11, "fp8": 4, "int8": 8, "fp4": 2}
        lanes = v["fma_flop_per_cycle_fp32"] / 2
        lanes += v["fma_flop_per_cycle_fp64"] / 2 * 53**2 / 24**2
        for dtype, n in bits.items():
            lanes += v[f"tensor_flop_per_cycle_{dtype}"] / 2 * n**2 / 24**2
        array = (v["smem_per_sm"] ** 8 + v["l1_capacity"] ** 8) ** 0.125
        sram = die.l2_capacity + die.num_sms * (4 * v["registers_per_sm"] + array)
        channels = die.bus_width / (512 if die.memory.startswith("HBM") else 32)
        logic = rules.logic_area * die.num_sms
        terms.append([logic, logic * lanes, channels])
        known.append(2 * 8 * rules.bit_cell * sram)
        areas.append(die.die_area)
    residual, left_out = _by_hand(
        np.array(terms), np.array(known), np.array(areas), list(PUBLISHED)
    )
    np.testing.assert_allclose(area_fit().residuals, residual, atol=1e-9)
    np.testing.assert_allclose(area_fit().left_out_errors, left_out, atol=1e-9)
    assert np.abs(residual).mean() < 0.035 and np.abs(residual).max() < 0.10
    assert np.abs(left_out).mean() < 0.04 and np.abs(left_out).max() < 0.11


def test_idle_regression_against_least_squares_by_hand():
    readings = {gpu: r for gpu, r in idle_readings().items() if r.fit}
    terms = []
    for gpu in readings:
        die, card = die_of(gpu), read_gpu(gpu)
        assert die is not None
        stacks = card.physical.get("dram_stacks", 0)
        channels = 0 if stacks else die.bus_width / 32
        live = die.transistors * card.values["num_sms"] / die.num_sms
        terms.append([live / 1e9, stacks, channels])
    owners = [
        next(die.name for die in published_dies() if gpu in die.gpus)
        for gpu in readings
    ]
    watts = np.array([reading.power for reading in readings.values()])
    residual, left_out = _by_hand(np.array(terms), 0 * watts, watts, owners)
    np.testing.assert_allclose(idle_fit().residuals, residual, atol=1e-9)
    np.testing.assert_allclose(idle_fit().left_out_errors, left_out, atol=1e-9)
    assert np.abs(residual).mean() < 0.15 and np.abs(residual).max() < 0.33
    assert np.abs(left_out).mean() < 0.21 and np.abs(left_out).max() < 0.42


def _by_hand(
    terms: Float[np.ndarray, "row term"],
    known: Float[np.ndarray, " row"],
    measured: Float[np.ndarray, " row"],
    owners: list[str],
) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """Relative errors of the fit over all rows, and of fits without a row's die; plain
    least squares, which is the non-negative one where no coefficient is below 0."""
    left_out = np.zeros_like(measured)
    matrix, target = terms / measured[:, None], 1 - known / measured
    for i, owner in enumerate(owners):
        rest = np.array([other != owner for other in owners])
        result = np.linalg.lstsq(matrix[rest], target[rest], rcond=None)[0]
        assert (result > 0).all()
        left_out[i] = matrix[i] @ result - target[i]
    result = np.linalg.lstsq(matrix, target, rcond=None)[0]
    return matrix @ result - target, left_out


def test_stored_numbers_are_those_of_the_fit():
    file = ROOT / "diffenergy" / "data" / "facts" / "silicon.toml"
    written = tomllib.loads(file.read_text(encoding="utf-8"))
    fitted = tomllib.loads(stored())
    assert set(written) == {"area", "idle"} == set(fitted)
    for name, numbers in fitted.items():
        assert written[name] == pytest.approx(numbers, rel=1e-9, abs=0)
    assert area_model() == pytest.approx(area_fit().coefficients, rel=1e-9)
    assert idle_model() == pytest.approx(idle_fit().coefficients, rel=1e-9)
    errors = np.abs(area_fit().left_out_errors)
    assert area_errors() == pytest.approx((errors.mean(), errors.max()), rel=1e-9)


# --- designs


@eqx.filter_jit
def _numbers(
    parts: Silicon, gpu: GpuSpec, factors: Float[Array, " field"]
) -> Float[Array, "4"]:
    """Area and static terms of the design whose `GROWING` fields and TDP are `gpu`'s
    times `factors`."""
    names = (*GROWING, "tdp")
    changes = {n: getattr(gpu, n) * x for n, x in zip(names, factors, strict=True)}
    design = dataclasses.replace(gpu, **changes)
    power = parts.with_static_power(design)
    terms = power.idle_constant, power.idle_clock, power.idle_leakage
    return jnp.stack([parts.area(design), *terms])


ONES = jnp.ones(len(GROWING) + 1)


def _one(name: str, factor: float) -> Float[Array, " field"]:
    return ONES.at[(*GROWING, "tdp").index(name)].set(factor)


@pytest.mark.parametrize("gpu", ["h100-sxm", "rtx-3080-ti"])
def test_gradients_are_true_and_never_negative(gpu: str):
    card = read_gpu(gpu)
    parts = silicon_of(card)
    slopes = np.asarray(
        eqx.filter_jit(jax.jacfwd(lambda x: _numbers(parts, card.spec, x)))(ONES)
    )
    step = 1e-5
    for i, name in enumerate(GROWING):
        up, down = _one(name, 1 + step), _one(name, 1 - step)
        rise = _numbers(parts, card.spec, up) - _numbers(parts, card.spec, down)
        np.testing.assert_allclose(
            slopes[:, i], np.asarray(rise) / (2 * step), rtol=1e-6, atol=1e-9
        )
        assert (slopes[:, i] >= 0).all(), name
        if card.values[name] > 0:
            assert slopes[0, i] > 0, name


def test_growth_by_hand():
    """What 10 % more SMs, twice the L2 and the bandwidth of an H100 add."""
    card, model, rules = read_gpu("h100-sxm"), area_model(), process_rules("4N")
    parts = silicon_of(card)
    scale = 814 / area_fit().fitted[list(PUBLISHED).index("GH100")]
    l2 = 2 * 8 * rules.bit_cell * 60 * 2**20

    def grown(name: str, factor: float) -> list[float]:
        return _numbers(parts, card.spec, _one(name, factor)).tolist()

    assert grown("l2_capacity", 2.0)[0] - 814 == pytest.approx(scale * l2)
    area, constant, clock, leakage = grown("dram_bandwidth", 2.0)
    assert area - 814 == pytest.approx(scale * 12 * model.channel)
    v = card.values  # five stacks in use on the board, six on the die
    assert constant - v["idle_constant"] == pytest.approx(5 * idle_model().stack)
    assert (clock, leakage) == pytest.approx((v["idle_clock"], v["idle_leakage"]))
    area, constant, clock, leakage = grown("num_sms", 1.1)
    inside = 814 / scale - 12 * model.channel  # all but the interface
    assert area - 814 == pytest.approx(0.1 * scale * (inside - l2))
    assert clock / v["idle_clock"] == pytest.approx(1 + 0.1 * (1 - l2 / inside))
    assert leakage / v["idle_leakage"] == pytest.approx(clock / v["idle_clock"])
    assert constant == pytest.approx(v["idle_constant"])


def test_of_two_processes_that_of_the_compute_dies_counts():
    assert process_rules("6nm/5nm") == process_rules("N5") != process_rules("N6")


def test_designs_keep_the_die_of_their_origin():
    """A written design names its origin as `corrections`; its numbers are its own."""
    card = read_gpu("h100-sxm")
    values: Mapping[str, Any] = {**card.values, "num_sms": 144.0, "idle_clock": 9e-9}
    own = dataclasses.replace(card, name="own", corrections="h100-sxm", values=values)
    parts = silicon_of(own)
    assert parts.settled
    area, _, clock, *_ = _numbers(parts, own.spec, ONES).tolist()
    grown = _numbers(silicon_of(card), card.spec, _one("num_sms", 144 / 132)).tolist()
    assert area == pytest.approx(grown[0]) and clock == pytest.approx(9e-9)


def test_channels_of_boards():
    assert board_channels(read_gpu("h100-sxm")) == 10  # five stacks of two
    assert board_channels(read_gpu("l4")) == 6  # 192 bits
    stranger = dataclasses.replace(read_gpu("rtx-4090"), name="own", corrections=None)
    like = read_gpu("rtx-3080-ti").values["dram_bandwidth"] / 12  # the other GDDR6X
    assert board_channels(stranger) == stranger.values["dram_bandwidth"] / like
