"""Schedules as JSON and CSV there and back, and one door for all formats."""

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffenergy.collectives import Schedule, Violation, demand, load_topology
from diffenergy.collectives import verify as verify_file
from diffenergy.collectives._export import (
    demand_json,
    read_schedule_json,
    sends_csv,
    sends_json,
)

from .builders import (
    reducing_rows,
    ring_rows,
    schedule,
    take,
    verify,
    write_json,
)

_STEP = 1e6 / 50e9 + 0.7e-6
"""s; 1 MB over a link of `ring-4`."""


def _ring(kind: str) -> Schedule:
    """4 MB on `ring-4`, a chunk of 1 MB each, step by step."""
    topology = load_topology("ring-4")
    rows = ring_rows(4) if kind == "all_gather" else reducing_rows(4)
    timed = [(*row[:3], row[3] * _STEP, row[4] * _STEP) for row in rows]
    phase = [0] * len(timed)
    if kind == "all_reduce":
        later = [
            (*row[:3], row[3] * _STEP + 3 * _STEP, row[4] * _STEP + 3 * _STEP)
            for row in ring_rows(4)
        ]
        timed, phase = timed + later, phase + [1] * len(later)
    return schedule(topology, demand(kind, topology, 4e6), timed, phase=phase)


def _table(original: Schedule, kind: str) -> dict[str, Any]:
    return {
        "topology": "ring-4",
        "collective": kind,
        "size_bytes": 4e6,
        "chunks": 1,
        "epoch_s": None,
        "epochs": None,
        "sends": sends_json(original),
    }


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
def test_json_there_and_back(tmp_path: Path, kind: str):
    original = _ring(kind)
    read = read_schedule_json(write_json(tmp_path / "a.json", _table(original, kind)))
    steps = 6 if kind == "all_reduce" else 3
    assert verify(read) == pytest.approx(steps * _STEP)
    order = np.lexsort(
        (
            original.sends.block,
            original.sends.link,
            original.sends.end,
            original.sends.start,
        )
    )
    for field in dataclasses.fields(original.sends):
        was, now = getattr(original.sends, field.name), getattr(read.sends, field.name)
        assert now == pytest.approx(was[order])


def test_csv_has_a_row_a_send():
    original = _ring("all_gather")
    rows = list(csv.DictReader(io.StringIO(sends_csv(original))))
    assert len(rows) == len(original.sends) == 12
    for row, send in zip(rows, sends_json(original), strict=True):
        assert [row["from"], row["to"]] == send["link"]
        assert float(row["end_s"]) == send["end_s"] and float(row["bytes"]) == 1e6


def test_a_demand_of_its_own(tmp_path: Path):
    """gpu0's block for gpu2 alone: two hops, which no collective's name says."""
    whole = _ring("all_gather")
    keep = np.arange(4) == 0
    wanted = np.zeros_like(whole.demand.wanted[:1])
    wanted[0, 2] = True
    only = dataclasses.replace(
        whole.demand,
        collective="custom",
        source=whole.demand.source[keep],
        chunk=whole.demand.chunk[keep],
        size=whole.demand.size[keep],
        wanted=wanted,
        parts=np.zeros_like(wanted),
    )
    two = (whole.sends.block == 0) & (whole.sends.start < 1.5 * _STEP)
    original = dataclasses.replace(take(whole, two), demand=only)
    table = _table(original, "custom") | {"demand": demand_json(original)}
    read = read_schedule_json(write_json(tmp_path / "a.json", table))
    assert verify(read) == pytest.approx(2 * _STEP)
    table["demand"][0]["wanted"] = ["gpu3"]
    with pytest.raises(Violation, match="never comes whole to gpu3"):
        verify(read_schedule_json(write_json(tmp_path / "b.json", table)))


def test_roots_are_read_from_the_sends(tmp_path: Path):
    topology = load_topology("ring-4")
    chunk = 1e6
    rows = [
        (0, "gpu0", "gpu1", 0.0, _STEP),
        (1, "gpu2", "gpu1", 0.0, _STEP),
        (2, "gpu3", "gpu2", 0.0, _STEP),
        (2, "gpu2", "gpu1", _STEP, 2 * _STEP),
    ]
    original = schedule(
        topology, demand("gather", topology, 4 * chunk, root="gpu1"), rows
    )
    table = _table(original, "gather")
    read = read_schedule_json(write_json(tmp_path / "a.json", table))
    assert verify(read) == pytest.approx(2 * _STEP)


def test_what_was_changed_about_the_machine(tmp_path: Path):
    original = _ring("all_gather")
    table = _table(original, "all_gather") | {"latency_s": 1e-3}
    with pytest.raises(Violation, match="latency"):
        verify(read_schedule_json(write_json(tmp_path / "a.json", table)))
    table = _table(original, "all_gather") | {"scale": ["gpu0-gpu1=0.5"]}
    with pytest.raises(Violation, match="ends before its bytes"):
        verify(read_schedule_json(write_json(tmp_path / "b.json", table)))
    table = _table(original, "all_gather") | {"disable": ["gpu0-gpu1"]}
    with pytest.raises(Violation, match="no link"):
        read_schedule_json(write_json(tmp_path / "c.json", table))


"""s; 1 MB over a link of `ring-4`."""


def test_our_own(tmp_path: Path):
    """All-gather of 4 MB on `ring-4`, one epoch late: stated 4 steps, three if run at
    once."""
    topology = load_topology("ring-4")
    rows = [
        (*row[:3], (row[3] + 1) * _STEP, (row[4] + 1) * _STEP) for row in ring_rows(4)
    ]
    original = schedule(topology, demand("all_gather", topology, 4e6), rows)
    path = tmp_path / "a.json"
    table = {"topology": "ring-4", "collective": "all_gather", "size_bytes": 4e6}
    path.write_text(json.dumps(table | {"chunks": 1, "sends": sends_json(original)}))
    ours = verify_file(path)
    assert ours.summary["format"] == "diffenergy"
    assert ours.finish == pytest.approx(4 * _STEP)
    assert ours.earliest == pytest.approx(3 * _STEP)


@pytest.mark.shared_data
def test_published(shared: Path):
    folder = shared / "data/teccl/schedules"
    path = folder / "ndv2-2-published_all_gather_slow_1GB.json.gz"
    result = verify_file(path, load_topology("ndv2-2-published"))
    assert result.summary["format"] == "te-ccl"
    assert result.schedule.epochs == 10
    assert result.finish <= 50e-3
    with pytest.raises(ValueError, match="names no topology"):
        verify_file(path)
    with pytest.raises(Violation):
        verify_file(path, load_topology("dgx1"))
