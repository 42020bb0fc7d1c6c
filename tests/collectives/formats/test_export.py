"""Our own JSON and CSV, there and back, and broken on purpose."""

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffenergy.collectives import Schedule, demand, load_topology
from diffenergy.collectives._export import (
    demand_json,
    read_schedule_json,
    sends_csv,
    sends_json,
)
from diffenergy.collectives._verify import Violation, verify

from ..machine import machines_by_hand as by_hand

_STEP = 1e6 / 50e9 + 0.7e-6
"""s; 1 MB over a link of `ring-4`."""


def _ring(kind: str) -> Schedule:
    """4 MB on `ring-4`, a chunk of 1 MB each, step by step."""
    topology = load_topology("ring-4")
    rows = by_hand.ring_rows(4) if kind == "all_gather" else by_hand.reducing_rows(4)
    timed = [(*row[:3], row[3] * _STEP, row[4] * _STEP) for row in rows]
    phase = [0] * len(timed)
    if kind == "all_reduce":
        later = [
            (*row[:3], row[3] * _STEP + 3 * _STEP, row[4] * _STEP + 3 * _STEP)
            for row in by_hand.ring_rows(4)
        ]
        timed, phase = timed + later, phase + [1] * len(later)
    return by_hand.schedule(topology, demand(kind, topology, 4e6), timed, phase=phase)


def _table(given: Schedule, kind: str) -> dict[str, Any]:
    return {
        "topology": "ring-4",
        "collective": kind,
        "size_bytes": 4e6,
        "chunks": 1,
        "epoch_s": None,
        "epochs": None,
        "sends": sends_json(given),
    }


def _write(path: Path, table: dict[str, Any]) -> Path:
    path.write_text(json.dumps(table))
    return path


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
def test_json_there_and_back(tmp_path: Path, kind: str):
    given = _ring(kind)
    read = read_schedule_json(_write(tmp_path / "a.json", _table(given, kind)))
    steps = 6 if kind == "all_reduce" else 3
    assert verify(read) == pytest.approx(steps * _STEP)
    order = np.lexsort(
        (given.sends.block, given.sends.link, given.sends.end, given.sends.start)
    )
    for field in dataclasses.fields(given.sends):
        was, now = getattr(given.sends, field.name), getattr(read.sends, field.name)
        assert now == pytest.approx(was[order])


def test_keys_of_a_send():
    first = sends_json(_ring("all_gather"))[0]
    assert list(first) == ["chunk", "source", "link", "start_s", "end_s"]
    assert first["chunk"] == 0 and first["start_s"] == 0.0
    assert first["source"] == first["link"][0]
    part = dataclasses.replace(_ring("all_gather"))
    part.sends.bytes[:] = 5e5
    assert sends_json(part)[0]["bytes"] == 5e5


def test_csv_has_a_row_a_send():
    given = _ring("all_gather")
    rows = list(csv.DictReader(io.StringIO(sends_csv(given))))
    assert len(rows) == len(given.sends) == 12
    for row, send in zip(rows, sends_json(given), strict=True):
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
    given = dataclasses.replace(by_hand.take(whole, two), demand=only)
    table = _table(given, "custom") | {"demand": demand_json(given)}
    read = read_schedule_json(_write(tmp_path / "a.json", table))
    assert verify(read) == pytest.approx(2 * _STEP)
    table["demand"][0]["wanted"] = ["gpu3"]
    with pytest.raises(Violation, match="never comes whole to gpu3"):
        verify(read_schedule_json(_write(tmp_path / "b.json", table)))


def test_roots_are_read_from_the_sends(tmp_path: Path):
    topology = load_topology("ring-4")
    chunk = 1e6
    rows = [
        (0, "gpu0", "gpu1", 0.0, _STEP),
        (1, "gpu2", "gpu1", 0.0, _STEP),
        (2, "gpu3", "gpu2", 0.0, _STEP),
        (2, "gpu2", "gpu1", _STEP, 2 * _STEP),
    ]
    given = by_hand.schedule(
        topology, demand("gather", topology, 4 * chunk, root="gpu1"), rows
    )
    table = _table(given, "gather")
    read = read_schedule_json(_write(tmp_path / "a.json", table))
    assert verify(read) == pytest.approx(2 * _STEP)


def test_what_was_changed_about_the_machine(tmp_path: Path):
    given = _ring("all_gather")
    table = _table(given, "all_gather") | {"latency_s": 1e-3}
    with pytest.raises(Violation, match="latency"):
        verify(read_schedule_json(_write(tmp_path / "a.json", table)))
    table = _table(given, "all_gather") | {"scale": ["gpu0-gpu1=0.5"]}
    with pytest.raises(Violation, match="ends before its bytes"):
        verify(read_schedule_json(_write(tmp_path / "b.json", table)))
    table = _table(given, "all_gather") | {"disable": ["gpu0-gpu1"]}
    with pytest.raises(Violation, match="no link"):
        read_schedule_json(_write(tmp_path / "c.json", table))
