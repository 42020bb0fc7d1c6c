"""Clocks of pipeline stages of real models: the answer, its files, its speed."""

import ast
import csv
import io
import itertools
from typing import Any

import numpy as np
import pytest

from diffenergy.estimator import prepare
from diffenergy.parallel import StageClocks, stage_clocks
from diffenergy.parallel._stage_clocks.problem import problem_of
from diffenergy.plans import STEP_PARTS


@pytest.fixture(scope="module")
def answer() -> StageClocks:
    return stage_clocks(
        "gpt2", "a40", "pp=2,dp=2", global_batch=12, sm_clock=[1.74e9, 1.5e9, 1.2e9]
    )


def test_the_baseline_is_the_estimate(answer: StageClocks):
    """Of the same layers: the same step, joule by joule."""
    content, baseline = answer.summary, answer.summary["baseline"]
    uniform = prepare(
        "gpt2", "a40", plan="pp=2,dp=2", global_batch=12, phase="train",
        split=tuple(content["split"]),
    ).run().summary  # fmt: skip
    assert baseline["step_time_s"] == pytest.approx(uniform["step_time_s"])
    assert baseline["energy_j"] == pytest.approx(uniform["energy_j"], rel=1e-9)
    assert content["grade"] == uniform["grade"]


def test_rows_and_waiting_add_up(answer: StageClocks):
    """GPUs x (passes + waiting) and what is beside the pipeline."""
    content, (result,) = answer.summary, answer.replicas
    rows, step = answer.rows(), content["best"]["step_time_s"]
    assert len(rows) == content["instructions"] == 2 * 2 * 6
    total = sum(float(x) for x in result.problem.fixed)
    for number, stage in enumerate(content["stages"]):
        mine = [x for x in rows if x["stage"] == number]
        busy = sum(x["time_s"] for x in mine)
        drawn = sum(x["energy_j"] for x in mine) + stage["wait_power_w"] * (step - busy)
        total += drawn
        assert stage["power_w"] * step == pytest.approx(
            drawn + result.problem.fixed[number]
        )
        for before, after in itertools.pairwise(mine):
            assert after["start_s"] >= before["start_s"] + before["time_s"] - 1e-12
    assert content["best"]["energy_j"] == pytest.approx(2 * total)
    assert content["lower_bound_j"] <= content["best"]["energy_j"]
    assert content["best"]["energy_j"] < content["baseline"]["energy_j"]
    assert {x["sm_clock_mhz"] for x in rows} <= {1740, 1500, 1200}


def test_files_read_back(answer: StageClocks):
    read = list(csv.DictReader(io.StringIO(answer.to_csv())))
    assert list(read[0]) == ["stage", "instruction", "frequency", "time", "energy"]
    rows = answer.rows()
    assert len(read) == len(rows)
    for line, row in zip(read, rows, strict=True):
        assert int(line["stage"]) == row["stage"]
        assert line["instruction"] == row["instruction"]
        assert float(line["frequency"]) == row["sm_clock_mhz"]
        assert float(line["energy"]) == row["energy_j"]
    stages = ast.literal_eval(answer.to_script())
    assert [len(x) for x in stages] == [12, 12]
    own = [(x["instruction"], x["sm_clock_mhz"]) for x in rows if x["stage"] == 1]
    assert stages[1][:2] == own[:2]


@pytest.mark.slow
def test_a_power_limit_that_lowers_clocks_is_the_baseline():
    """Clocks above the one that 150 W allow are all the same, and none is named that
    the limit would not let run."""
    result = stage_clocks(
        "gpt2", "a40", "pp=2,microbatch=8", global_batch=16, power_limit=[150.0],
        sm_clock=[1.74e9, 1.725e9, 1.2e9],
    )  # fmt: skip
    one = result.replicas[0].problem
    assert (one.time[0] == one.time[1]).all()
    assert (one.time[2] > one.time[0]).any()
    assert 0 not in result.replicas[0].choice


@pytest.mark.slow
def test_512_instructions_take_a_second():
    """8 stages x 32 micro-batches, both ways, over all clocks; 5 s for a busy host."""
    result = stage_clocks(
        "gpt3-xl", "a40", "pp=8,microbatch=4", global_batch=128, input_len=1024
    )
    content = result.summary
    assert content["instructions"] == 512
    assert content["solve_s"] < 5
    assert content["gap_pct"] < 0.2
    assert content["best"]["step_time_s"] <= content["baseline"]["step_time_s"] + 1e-9


def test_instructions_have_the_joules_of_their_phases():
    """Dynamic energy of an instruction at each clock: that of its pass through all
    micro-batches over their number, and of one send."""
    clocks = [1.41e9, 1.2e9]
    ask: dict[str, Any] = {"phase": "train", "plan": "pp=2", "global_batch": 4}
    task = prepare("gpt2", "a100-sxm-80gb", **ask, sm_clock=clocks)
    assert task.step is not None
    problem, p = problem_of(task), task.estimates().phases
    dynamic = np.asarray(p.energy - p.static_energy)
    phase = np.asarray(task.step.steps.phase)[task.step.placed.kinds]
    sends = dynamic[:, phase[:, STEP_PARTS.index("send")]]
    columns = zip(problem.stage, problem.kind, strict=True)
    for column, (stage, kind) in enumerate(columns):
        passes = dynamic[:, phase[stage, kind]] / 4
        own = problem.dynamic[:, column]
        np.testing.assert_allclose(own, passes + sends[:, stage], rtol=1e-9)
        assert passes[0] > 20 * sends[0, stage]
    assert len(set(problem.dynamic[0].round(6))) == 4
