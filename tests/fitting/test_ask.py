"""What a fit says beside its numbers, and what it refuses, by hand."""

import inspect
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from diffenergy import measurements
from diffenergy.corrections import prior_file
from diffenergy.fitting import _ask, fit
from diffenergy.fitting._calibrate import Calibration, Settings
from diffenergy.fitting._fit import Fit
from diffenergy.fitting._flags import Flag
from diffenergy.fitting._parameters import Parameter, Parameters
from diffenergy.fitting._predict import corrections_file
from diffenergy.measurements import MeasurementTable

FREE = (Parameter("global", "energy_dram"), Parameter("gpu:a10", "energy_l2"))


def fitted(covariance: Sequence[Sequence[float]], evaluations: int = 7) -> Calibration:
    """A fit of two numbers that came to this covariance."""
    parameters = Parameters(FREE, {"global": {"energy_dram": 1e-11}})
    found = Fit(parameters, np.zeros(2), np.array(covariance), 1.5, evaluations, False)
    return Calibration(found, prior_file(), ())


@pytest.fixture
def table(tmp_path: Path) -> MeasurementTable:
    """Two products on an A10 and an H100, with a column that nothing reads."""
    path = tmp_path / "runs.csv"
    rows = "a10,gemm,64,64,64,bf16,10,red\nh100-sxm,gemm,64,64,64,bf16,5,blue\n"
    path.write_text(f"gpu,op,m,n,k,dtype,time_us,colour\n{rows}")
    return measurements.read([str(path)])


def test_what_is_not_given_is_what_the_help_says():
    """`[0]`, `[20000]`, `[30]` behind an argument are its default."""
    parameters = inspect.signature(fit).parameters
    told = re.findall(r"^ +(\w+): .*\[(\d+)\]\.$", inspect.getdoc(fit) or "", re.M)
    assert dict(told) == {"seed": "0", "max_rows": "20000", "max_steps": "30"}
    for name, value in told:
        assert parameters[name].default == int(value)
    assert parameters["strict"].default is False
    assert Settings() == Settings(0, 20_000, 128.0, 30, ())


def test_the_posterior_of_a_file():
    """Four digits of each sd, two decimals of the lower triangle of correlations, no
    minus before a nought."""
    found = _ask._posterior(fitted([[4e-6, -1e-6], [-1e-6, 1.5239e-6]]))
    correlation = -1e-6 / (4e-6 * 1.5239e-6) ** 0.5
    assert found == {
        "parameters": ["global/energy_dram", "gpu:a10/energy_l2"],
        "sd": [0.002, 0.001234],
        "correlation": [1.0, round(correlation, 2), 1.0],
    }
    none = _ask._posterior(fitted([[1.0, -0.004], [-0.004, 1.0]]))["correlation"]
    assert str(none) == "[1.0, 0.0, 1.0]"


def test_what_corrections_rest_on(table: MeasurementTable):
    groups = [{"file": "/a/b.csv", "rows": 3, "time_mape_pct": 1.23456, "x": None}]
    done = _ask._completed(
        fitted(np.eye(2).tolist()), [table, table], {"seed": 5}, {"groups": groups}
    )
    on = done.fitted_on
    assert (on["sources"], on["seed"]) == (["runs.csv"], 5)
    short = {"file": "b.csv", "rows": 3, "time_mape_pct": 1.23, "x": None}
    assert on["errors"] == [short]
    assert done.posterior and done.posterior["sd"] == [1.0, 1.0]


@pytest.mark.parametrize("number", [0, 1, 3, 4, 6])
def test_rows_that_were_left_out_are_told(table: MeasurementTable, number: int):
    """Three of them, and how many more."""
    flags = [Flag("a.csv", i, "time_us", 3.0, "too fast", i) for i in range(number)]
    ignored, *rest = _ask._remarks([table], flags, fitted(np.eye(2).tolist()), 8)
    assert ignored == "ignored columns: colour"
    first = [f"rows that cannot be true and were left out: {number}"] if number else []
    words = "a.csv, row {}, `time_us` is 3.0: too fast"
    shown = [words.format(i) for i in range(min(number, 3))]
    more = [f"and {number - 3} more; `--json` lists all"] if number > 3 else []
    assert rest == [*first, *shown, *more]


@pytest.mark.parametrize(("steps", "early"), [(6, True), (7, True), (8, False)])
def test_an_early_end_is_told(table: MeasurementTable, steps: int, early: bool):
    *_, last = _ask._remarks([table], [], fitted(np.eye(2).tolist()), steps)
    said = "stopped at 7 evaluations; `--max-steps` allows more"
    assert (last == said) is early


@pytest.mark.parametrize(
    "group",
    ["gpu", "gpu:a10", "memory", "sensor", "energy_", "energy_dram", "global"],
)
def test_what_can_be_frozen(table: MeasurementTable, group: str):
    _ask._check_groups((group,), prior_file(), [table])


def test_corrections_however_they_are_given():
    file = prior_file()
    assert corrections_file(file) is file
    assert corrections_file("none").levels == file.levels
    assert not corrections_file("none").fitted_on
    assert corrections_file(None).fitted_on["rows"]
