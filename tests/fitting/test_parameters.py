"""Free numbers and the constants that they make, and rows that are held out."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy import measurements
from diffenergy.compiling import compiler_options
from diffenergy.corrections import CONSTANTS, PRIOR_FACTORS, prior_file, resolve
from diffenergy.fitting._holdout import Rule, held_out, read_rule
from diffenergy.fitting._parameters import FACTOR_SD
from diffenergy.hardware import read_gpu

from .builders import NUMBERS, Numbers, Parameter, Parameters, read_rows

TAGS = read_gpu("a100-sxm-80gb").tags
METER = "sensor:ours/1:gemm@a100-sxm-80gb"
FREE = (
    ("global", "energy_dram"), ("global", "dram_efficiency"),
    ("memory:HBM2e", "energy_dram"), ("memory:HBM2e", "dram_efficiency"),
    ("gpu:a100-sxm-80gb", "energy_dram"), ("gpu:h100-sxm", "energy_dram"),
    (METER, "background"), (METER, "hot_share"),
)  # fmt: skip


@pytest.fixture
def parameters() -> Parameters:
    levels = {tag: dict(values) for tag, values in prior_file().levels.items()}
    levels["architecture:Ampere"] = {"energy_dram": 1.3, "launch_cycles": 0.8}
    levels["memory:HBM2e"] = {"dram_efficiency": 1.2, "energy_dram": 0.9}
    return Parameters(tuple(Parameter(*x, NUMBERS.get(x[1])) for x in FREE), levels)


def test_constants_of_a_gpu_are_those_of_its_levels(parameters: Parameters):
    """Global values times the factors of its tags; those of a share act on its odds."""
    rng = np.random.default_rng(0)
    makers = (
        parameters.serving(TAGS),
        parameters.sensing(METER, Numbers),
        parameters.sensing("sensor:nobody:gemm@a10", Numbers),
    )
    options = compiler_options(once=True)
    records = jax.jit(lambda z: [make(z) for make in makers], compiler_options=options)
    for z in (parameters.centre(), parameters.centre() + rng.normal(0, 0.3, len(FREE))):
        levels = parameters.fitted(z)
        served, sensor, other = jax.device_get(records(jnp.asarray(z)))
        result = {name: float(getattr(served, name)) for name in CONSTANTS}
        assert result == pytest.approx(resolve(levels, TAGS), rel=1e-9)
        for name, constant in NUMBERS.items():
            expected = levels[METER].get(name, constant.centre)
            assert float(getattr(sensor, name)) == pytest.approx(expected), name
            assert float(getattr(other, name)) == pytest.approx(constant.centre), name
    # where a fit starts
    start, fitted = parameters.start, parameters.fitted(parameters.centre())
    for tag, constant in FREE:
        default = NUMBERS[constant].centre if constant in NUMBERS else 1.0
        known = start.get(tag, {}).get(constant, default)
        assert fitted[tag][constant] == pytest.approx(known), (tag, constant)


def test_widths(parameters: Parameters):
    """Of a factor what is known of its tag, else a quarter or the constant's own."""
    widths = dict(zip(FREE, parameters.sd().tolist(), strict=True))
    own = CONSTANTS["energy_dram"].sd
    assert widths["global", "energy_dram"] == own
    assert widths["gpu:h100-sxm", "energy_dram"] == min(0.25, own)
    assert widths[FREE[-1]] == NUMBERS[FREE[-1][1]].sd
    assert FACTOR_SD == 0.25
    for tag, factors in PRIOR_FACTORS.items():
        for constant, (_, sd) in factors.items():
            assert Parameter(tag, constant).sd == sd
    narrow = [name for name, c in CONSTANTS.items() if c.sd < 0.25]
    assert narrow and all(Parameter("gpu:x", n).sd == CONSTANTS[n].sd for n in narrow)
    assert str(Parameter("gpu:a10", "leakage")) == "gpu:a10/leakage"


def test_levels_whose_power_nobody_read_stay_close(parameters: Parameters):
    """A tenth at most of what only power moves; times are free."""
    free = (
        ("gpu:h100-sxm", "energy_dram"), ("gpu:h100-sxm", "dynamic_energy"),
        ("gpu:h100-sxm", "core_energy"), ("gpu:h100-sxm", "dram_efficiency"),
        ("architecture:Hopper", "energy_dram"), ("global", "energy_dram"),
    )  # fmt: skip
    numbers = tuple(Parameter(*x) for x in free)
    records = Parameters(numbers, parameters.start, ("gpu:h100-sxm",))
    every = dataclasses.replace(records, unread=())
    assert CONSTANTS["energy_dram"].power and not CONSTANTS["dram_efficiency"].power
    assert all(x >= 0.05 for x in every.sd())
    close = [0.1, 0.1, 0.05, every.sd()[3], every.sd()[4], every.sd()[5]]
    assert records.sd().tolist() == pytest.approx(close)
    assert every.sd()[0] > 0.1 and every.sd()[4] > 0.1  # the tag alone decides


@pytest.fixture
def tables(tmp_path: Path) -> list[measurements.MeasurementTable]:
    """Ten rows of m = 1 ... 10 with models a and b, one of them skipped, and three of
    another file without a column of models."""
    rows = [f"a10,gemm,{m},8,8,bf16,{' ab'[1 + m % 2]} ,10" for m in range(1, 11)]
    one = read_rows(tmp_path, "gpu,op,m,n,k,dtype,model,time_us", *rows)
    rows = [f"h100-sxm,gemm,{m},8,8,bf16,10" for m in (1, 50, 60)]
    two = read_rows(tmp_path, "gpu,op,m,n,k,dtype,time_us", *rows)
    skipped = one.skipped.copy()
    skipped[9] = "not read"
    return [dataclasses.replace(one, skipped=skipped), two]


def test_values_that_are_held_out(tables):
    one, two = held_out(tables, [read_rule("model=a")], 0)
    assert np.flatnonzero(one).tolist() == [1, 3, 5, 7, 9] and not two.any()
    one, two = held_out(tables, [read_rule(" m = 1 "), read_rule("gpu=h100-sxm")], 0)
    assert np.flatnonzero(one).tolist() == [0] and two.all()
    assert not any(x.any() for x in held_out(tables, [], 0))
    assert read_rule("m=a:0.5") == Rule("m=a:0.5", "m", value="a:0.5")


@pytest.mark.parametrize(
    ("share", "count"), [(0.01, 1), (2 / 11, 2), (0.2, 3), (0.99, 10)]
)
def test_shares_take_whole_groups(tables, share: float, count: int):
    """Of eleven sizes (that of a skipped row is none): rounded up, never all."""
    excluded = held_out(tables, [read_rule(f"m:{share!r}")], 3)
    sizes = [x.fields["gemm"].values["m"] for x in tables]
    drawn = {m for mine, of in zip(excluded, sizes, strict=True) for m in of[mine]}
    assert len(drawn) == count and 10 not in drawn
    for mine, of in zip(excluded, sizes, strict=True):
        assert mine.tolist() == np.isin(of, sorted(drawn)).tolist()
    again = held_out(tables, [read_rule(f"m:{share!r}")], 3)
    assert all((x == y).all() for x, y in zip(excluded, again, strict=True))
