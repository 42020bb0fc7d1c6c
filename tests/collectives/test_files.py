"""Schedules as JSON and CSV there and back, and one door for all formats."""

import csv
import dataclasses
import io
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

from .builders import blocks, reducing_rows, ring_rows, schedule, verify, write_json

RING = load_topology("ring-4")
_STEP = 1e6 / 50e9 + 0.7e-6
"""s; 1 MB over a link of `RING`."""


def ring_schedule(kind: str, late: int = 0) -> Schedule:
    """4 MB on `RING`, a chunk of 1 MB each, step by step from step `late` on."""
    spread = ring_rows(4) if kind == "all_gather" else reducing_rows(4)
    rows, phase = list(spread), [0] * 12
    if kind == "all_reduce":
        rows += [(*row[:3], row[3] + 3, row[4] + 3) for row in ring_rows(4)]
        phase += [1] * 12
    timed = [
        (*row[:3], (row[3] + late) * _STEP, (row[4] + late) * _STEP) for row in rows
    ]
    return schedule(RING, demand(kind, RING, 4e6), timed, phase=phase)


def table_of(original: Schedule, **changed: Any) -> dict[str, Any]:
    return {
        "topology": "ring-4",
        "collective": original.demand.collective,
        "size_bytes": 4e6,
        "chunks": 1,
        "epoch_s": None,
        "epochs": None,
        "sends": sends_json(original),
    } | changed


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
def test_json_there_and_back(tmp_path: Path, kind: str):
    original = ring_schedule(kind)
    read = read_schedule_json(write_json(tmp_path / "a.json", table_of(original)))
    steps = 6 if kind == "all_reduce" else 3
    assert verify(read) == pytest.approx(steps * _STEP)
    sends = original.sends
    order = np.lexsort((sends.block, sends.link, sends.end, sends.start))
    for field in dataclasses.fields(sends):
        was, now = getattr(sends, field.name), getattr(read.sends, field.name)
        assert now == pytest.approx(was[order])
    rows = list(csv.DictReader(io.StringIO(sends_csv(original))))
    for row, send in zip(rows, sends_json(original), strict=True):
        assert [row["from"], row["to"]] == send["link"]
        assert float(row["end_s"]) == send["end_s"] and float(row["bytes"]) == 1e6


def test_a_demand_of_its_own(tmp_path: Path):
    """gpu0's block for gpu2 alone: two hops, which no collective's name says."""
    hops = [(0, "gpu0", "gpu1", 0.0, _STEP), (0, "gpu1", "gpu2", _STEP, 2 * _STEP)]
    original = schedule(RING, blocks(RING, [(0, 2)]), hops)
    table = table_of(original, demand=demand_json(original))
    read = read_schedule_json(write_json(tmp_path / "a.json", table))
    assert verify(read) == pytest.approx(2 * _STEP)
    table["demand"][0]["wanted"] = ["gpu3"]
    with pytest.raises(Violation, match="never comes whole to gpu3"):
        verify(read_schedule_json(write_json(tmp_path / "b.json", table)))


def test_roots_are_read_from_the_sends(tmp_path: Path):
    rows = [
        (0, "gpu0", "gpu1", 0.0, _STEP),
        (1, "gpu2", "gpu1", 0.0, _STEP),
        (2, "gpu3", "gpu2", 0.0, _STEP),
        (2, "gpu2", "gpu1", _STEP, 2 * _STEP),
    ]
    original = schedule(RING, demand("gather", RING, 4e6, root="gpu1"), rows)
    read = read_schedule_json(write_json(tmp_path / "a.json", table_of(original)))
    assert verify(read) == pytest.approx(2 * _STEP)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"latency_s": 1e-3}, "latency"),
        ({"scale": ["gpu0-gpu1=0.5"]}, "ends before its bytes"),
        ({"disable": ["gpu0-gpu1"]}, "no link"),
    ],
)
def test_what_was_changed_about_the_machine(tmp_path: Path, change: dict, says: str):
    table = table_of(ring_schedule("all_gather"), **change)
    with pytest.raises(Violation, match=says):
        verify(read_schedule_json(write_json(tmp_path / "a.json", table)))


def test_a_late_file_says_how_early_it_may_end(tmp_path: Path):
    table = table_of(ring_schedule("all_gather", late=1))
    ours = verify_file(write_json(tmp_path / "a.json", table))
    assert ours.summary["format"] == "diffenergy"
    assert ours.finish == pytest.approx(4 * _STEP)
    assert ours.earliest == pytest.approx(3 * _STEP)
