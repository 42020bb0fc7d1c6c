"""The public `plan` and `verify`: names and records, the command's JSON, one line."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import diffenergy as de
from diffenergy.collectives import (
    CollectiveResult,
    Demand,
    Search,
    Violation,
    demand,
    load_topology,
    plan,
    verify,
)
from diffenergy.hardware import read_gpu


@pytest.fixture(scope="module")
def board() -> CollectiveResult:
    return plan("dgx1", "all_gather", "200KB")


def timeless(summary: dict) -> dict:
    """Without the wall time."""
    return {name: x for name, x in summary.items() if name != "solver_s"}


def test_names_are_records(board: CollectiveResult):
    """A machine of its own latency, a size in bytes and the card give the same."""
    same = plan(load_topology("dgx1"), "AllGather", 2e5, gpu=read_gpu("v100-sxm-32gb"))
    assert timeless(same.summary) == timeless(board.summary)
    blocks = plan("dgx1", demand=demand("all_gather", "dgx1", 2e5))
    assert blocks.finish == board.finish
    assert blocks.summary["demand"] and blocks.summary["size_bytes"] is None


def test_what_is_in_it(board: CollectiveResult):
    """200 KB in eight parts: seven of 25 KB into each GPU, over six NVLinks."""
    into = 6 * 25e9  # B/s
    assert 7 * 25e3 / into <= board.bound <= board.finish
    assert board.gap == pytest.approx(board.finish / board.bound - 1, abs=1e-9)
    ring = board.baselines.found["ring"]
    assert ring.finish > board.finish
    energy = board.baseline_energy("ring")
    assert energy.idle_power is not None and energy.total and board.energy.total
    assert energy.idle == pytest.approx(8 * energy.idle_power * ring.finish)
    assert energy.total.typical > board.energy.total.typical  # it waits longer
    with pytest.raises(ValueError, match="allowed are ring"):
        board.baseline_energy("none")
    checked = board.verify()
    assert checked.finish == board.finish and checked.summary["file"] is None


def test_it_tells_of_itself(board: CollectiveResult):
    assert "all_gather on dgx1, 200.0 kB a GPU: 2.900 us" in repr(board)
    assert "recursive_doubling" in board._repr_html_()
    assert "right: all_gather on dgx1" in repr(board.verify())


def test_files(board: CollectiveResult, tmp_path: Path):
    paths = [tmp_path / f"a.{end}" for end in ("json", "csv", "xml")]
    texts = [board.to_json(paths[0]), board.to_csv(paths[1]), board.to_xml(paths[2])]
    assert [path.read_text() for path in paths] == texts
    assert verify(paths[0]).finish == pytest.approx(board.finish)
    late = json.loads(texts[0])
    late["sends"][-1]["start_s"] = 0.0
    paths[0].write_text(json.dumps(late))
    with pytest.raises(Violation):
        verify(paths[0])


def test_the_command_says_the_same(run_cli: Callable, board: CollectiveResult):
    typed = run_cli(
        "collective", "dgx1", "--collective", "all_gather", "--size", "200KB", "--json"
    )
    assert timeless(json.loads(typed)) == {"schema": 1} | timeless(board.summary)


@pytest.fixture
def run_cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*words: str) -> str:
        from diffenergy.cli import main

        assert main(list(words)) == 0
        return capsys.readouterr().out

    return run


def test_several_sizes():
    found = plan("ring-4", "all_gather", ["8KB", 8e6])
    assert [x["size_bytes"] for x in found.summary] == [8e3, 8e6]
    assert "8.000 kB, 8.000 MB a GPU" in repr(found)
    assert found.results[0].finish < found.results[1].finish


def test_a_matrix_and_tenants():
    """2 MB over a link of 50 GB/s beside 0.7 us; tenants share a buffer of four."""
    matrix = np.zeros((4, 4))
    matrix[0, 1] = 2e6
    found = plan("ring-4", matrix=matrix)
    assert found.finish >= 2e6 / 100e9
    pairs = plan("ring-4", "all_gather", "8MB", groups=[[0, 1], ["gpu2", "gpu3"]])
    assert pairs.bound >= 4e6 / 100e9


def test_time_limits_are_those_of_the_methods():
    assert (Search().limit, Search("milp").limit) == (10.0, 300.0)
    assert Search("milp", time_limit=2.0).limit == 2.0


def test_what_is_public_loads():
    for name in dir(de.collectives):
        assert getattr(de.collectives, name) is not None
    assert isinstance(demand("broadcast", "ring-4", "8MB"), Demand)
