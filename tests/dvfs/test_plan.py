"""`dvfs.plan`: names and records say the same, and the same as the command."""

import contextlib
import io
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import diffenergy as de
from diffenergy.cli import main
from diffenergy.dvfs import Objective, Switching, frontier, plan, read_table
from diffenergy.dvfs import _answers as answers
from diffenergy.dvfs import _ask as ask
from diffenergy.estimator import prepare
from diffenergy.hardware import read_gpu
from diffenergy.report import Table

TWO_KERNELS = """stage,instruction,frequency,memory_frequency,count,time,energy
forward,a,auto,auto,2,1.00,100
forward,a,1500,auto,2,0.98,80
forward,a,1200,auto,2,0.97,85
forward,b,auto,auto,2,1.00,100
forward,b,1500,auto,2,1.00,100
forward,b,1200,auto,2,1.01,65
"""
"""Two equal kernels: the best pair is (-2 %, -20 %) and (+1 %, -35 %)."""
CLOCKS = (600e6, 1110e6, 1410e6)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "two.csv"
    path.write_text(TWO_KERNELS)
    return path


@pytest.fixture(scope="module")
def decode():
    request: Any = dict(phase="decode", max_slowdown=3.0, sm_clock=CLOCKS)
    return plan("gpt2", "a100-pcie-40gb", **request, switching=Switching())


def test_a_table_by_hand(table: Path):
    """(-2 + 1) / 2 % of time, (-20 - 35) / 2 % of energy."""
    result = plan(table=table)
    assert result.time == pytest.approx(4 * 0.995)
    assert result.energy == pytest.approx(400 * 0.725)
    assert result.default == (4.0, 400.0)
    assert result.bound <= result.energy
    assert result.objective == Objective("energy", 0.0)
    assert result.summary["baselines"]["power_limit"] is None
    assert result.frontier()[-1].tolist() == pytest.approx([-0.5, -27.5])
    again = frontier(read_table(str(table)).problem).points(result.default)
    assert again.tolist() == result.frontier().tolist()
    local = plan(table=table, aggregation="local")
    assert local.energy == pytest.approx(360)
    free = plan(table=table, max_slowdown=math.inf)
    assert free.energy == pytest.approx(400 * 0.725)
    assert free.summary["max_slowdown_pct"] is None


def test_clocks_left_alone_have_no_rows(table: Path):
    """Each other setting of `b` takes more energy; then those of `a` do, too."""
    text = TWO_KERNELS.replace("forward,b", "backward,b").replace("1.01,65", "1.01,165")
    table.write_text(text)
    blocks = plan(table=table).blocks()
    totals, stage = (x for x in blocks if isinstance(x, Table))
    assert (stage.title, len([*stage.entries])) == ("forward", 1)
    assert len([*totals.entries]) == 5
    assert "backward: clocks left alone" in blocks
    table.write_text(text.replace("0.98,80", "1.98,180").replace("0.97,85", "1,185"))
    (totals,) = (x for x in plan(table=table).blocks() if isinstance(x, Table))
    assert len([*totals.entries]) == 2


def test_free_changes_bound_those_that_cost(table: Path):
    """Launches a b a b change three times, each for 1 J and 0.01 s at the 65 J / 1.01 s
    of the coolest launch; at 1200 MHz all of them take 300 J."""
    stall = Switching("stall", 0.01, 1.0)
    result = plan(table=table, max_slowdown=5.0, switching=stall)
    spent = 290 + 3 * (1 + 0.01 * 65 / 1.01)
    summary = result.summary
    assert (result.energy, summary["switches"]) == (pytest.approx(spent), 3)
    assert summary["free"]["energy_j"] == pytest.approx(290)
    assert summary["free"]["bound_energy_change_pct"] == pytest.approx(-27.5)
    text = "\n".join(x for x in result.blocks() if isinstance(x, str))
    assert "a change of clocks takes 10.00 ms and 1.000 J, the GPU waits" in text
    assert "bound if changes were free: -27.50 % of energy" in text
    reported = "one clock saves 25.0 of the 26.3 %: clocks per kernel are not worth it"
    assert summary["advice"] == reported and reported in text
    published = Switching.published("h200-sxm", "lookahead")
    result = plan(table=table, switching=published)
    assert result.summary["switch_latency_s"] == 0.006
    assert any("switch latency 0.006 s of h200-sxm" in note for note in result.notes)
    assert result.summary["free"]["energy_j"] == plan(table=table).energy
    single = plan(table=table, granularity="iteration")
    fixed = plan(table=table, switching=Switching(latency=math.inf))
    assert fixed.energy == single.energy


@pytest.mark.slow
def test_smoothing_asks_for_a_gpu(table: Path, monkeypatch: pytest.MonkeyPatch):
    """A law that says just what the table reads leaves the plan as it is."""
    card, problem = read_gpu("h200-sxm"), read_table(str(table)).problem

    def fitted(spec, corrections, settings, readings, limit) -> SimpleNamespace:
        assert spec is card.spec and limit == 700
        return SimpleNamespace(law=(readings.time, readings.energy))

    monkeypatch.setattr(answers, "fit_table", fitted)
    monkeypatch.setattr(answers, "of_law", lambda law, settings: law)
    result = plan(table=table, gpu=card, smooth=True)
    assert result.problem.time == pytest.approx(problem.time)
    assert result.energy == pytest.approx(400 * 0.725)
    assert result.summary["gpu"] == card.name
    for name in ("noise_time_pct", "noise_energy_pct"):
        assert 0 < result.summary[name] < 0.05


def test_files_are_read_back(table: Path, tmp_path: Path):
    result = plan(table=table)
    assert plan(table=read_table(str(table))).summary == result.summary
    path = tmp_path / "plan.csv"
    assert result.to_csv(path) == path.read_text()
    assert [row["sm_clock_mhz"] for row in result.rows()] == [1500, 1200]
    compile(result.to_script(tmp_path / "plan.py"), "plan.py", "exec")
    assert "two.csv" in (tmp_path / "plan.py").read_text()


@pytest.mark.slow
def test_a_request_and_a_command_are_planned_as_their_names(decode):
    card = read_gpu("a100-pcie-40gb")
    request = prepare("gpt2", card, phase="decode", sm_clock=CLOCKS)
    again = plan(request, max_slowdown=3.0, switching=Switching())
    assert again.summary == decode.summary
    words = "dvfs gpt2 --gpu a100-pcie-40gb --phase decode --sm-clock 600,1110,1410"
    words += " --max-slowdown 3 --switch-latency 0"
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert main([*words.split(), "--json"]) == 0
    assert json.loads(text.getvalue()) == json.loads(decode.to_json())


def test_limits_that_cannot_be_kept(table: Path):
    with pytest.raises(de.Infeasible, match="`max_slowdown`.*-1.50 %") as raised:
        plan(table=table, max_slowdown=-3.0)
    least = raised.value.least["max_slowdown"]
    assert least == pytest.approx(-1.5)
    assert plan(table=table, max_slowdown=least).time == pytest.approx(4 * 0.985)
    with pytest.raises(de.Infeasible, match="`power_limit`"):
        plan(table=table, objective="time", power_limit=60)


@pytest.mark.slow
def test_what_a_model_takes_is_published(decode):
    """A step of 1 ms has no room for a change that takes 15 ms."""
    request: Any = dict(phase="decode", max_slowdown=3.0, sm_clock=CLOCKS)
    result = plan("gpt2", "a100-pcie-40gb", **request)
    summary = result.summary
    assumed = summary["assumed"]
    assert summary["switch_latency_s"] == assumed["switch_latency_s"] == 0.015
    assert summary["switch_latency_source"].startswith("a100-pcie-40gb (recall")
    assert (summary["switch_kind"], summary["switches"]) == ("stall", 0.0)
    assert len({row["sm_clock_mhz"] for row in summary["schedule"]}) == 1
    single = summary["baselines"]["iteration"]
    assert summary["energy_j"] == pytest.approx(single["energy_j"], rel=1e-9)
    free = decode.summary
    for key in ("time_s", "energy_j", "bound_energy_change_pct"):
        assert summary["free"][key] == pytest.approx(free[key], rel=1e-9)
    assert free["free"]["energy_j"] == free["energy_j"] < summary["energy_j"]
    assert free["switch_latency_source"] is None
    assert "switch_latency_s" not in free["assumed"]
    assert summary["advice"] == "no clocks help within the limits: leave them alone"
    assert free["advice"].endswith("are worth it as long as changes take no time")
    text = result._repr_html_()
    assert "if changes were free" in text and "the GPU waits: a100" in text


@pytest.mark.slow
def test_a_descent_is_no_worse_than_one_clock():
    """Clocks that it finds by kernel are not paid for where no change has room."""
    request: Any = dict(phase="decode", max_slowdown=9.0, sm_clock=CLOCKS)
    result = plan("gpt2", "a100-pcie-40gb", solver="descent", starts=1, **request)
    assert (
        result.energy <= result.summary["baselines"]["iteration"]["energy_j"] * 1.0001
    )


def test_a_gpu_without_a_published_latency_has_that_of_others():
    task = prepare("gpt2", "a10", phase="decode")
    checked, costs = ask._published(task)
    assert (costs.kind, costs.latency) == ("stall", 0.03)
    reported = (
        "no latency of a change of clocks is published for a10; 0.03 s, that of GPUs"
    )
    assert any(reported in warning for warning in checked.warnings)
    assert checked.about["assumed"]["switch_latency_s"] == 0.03
    named, _ = ask._published(prepare("gpt2", "h100-sxm", phase="decode"))
    assert not named.warnings and not task.warnings
