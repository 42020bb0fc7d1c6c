"""One door for all formats of schedules that are read."""

import json
from pathlib import Path

import pytest

from diffenergy.collectives import demand, load_topology, verify
from diffenergy.collectives._export import sends_json
from diffenergy.collectives._verify import Violation

from ..machine import machines_by_hand as by_hand

_STEP = 1e6 / 50e9 + 0.7e-6
"""s; 1 MB over a link of `ring-4`."""


def test_our_own(tmp_path: Path):
    """All-gather of 4 MB on `ring-4`, one epoch late: stated 4 steps, three if run at
    once."""
    topology = load_topology("ring-4")
    rows = [
        (*row[:3], (row[3] + 1) * _STEP, (row[4] + 1) * _STEP)
        for row in by_hand.ring_rows(4)
    ]
    given = by_hand.schedule(topology, demand("all_gather", topology, 4e6), rows)
    path = tmp_path / "a.json"
    table = {"topology": "ring-4", "collective": "all_gather", "size_bytes": 4e6}
    path.write_text(json.dumps(table | {"chunks": 1, "sends": sends_json(given)}))
    ours = verify(path)
    assert ours.summary["format"] == "diffenergy"
    assert ours.finish == pytest.approx(4 * _STEP)
    assert ours.earliest == pytest.approx(3 * _STEP)


@pytest.mark.shared_data
def test_published(shared: Path):
    folder = shared / "data/teccl/schedules"
    path = folder / "ndv2-2-published_all_gather_slow_1GB.json.gz"
    found = verify(path, load_topology("ndv2-2-published"))
    assert found.summary["format"] == "te-ccl"
    assert found.schedule.epochs == 10
    assert found.finish <= 50e-3
    with pytest.raises(ValueError, match="names no topology"):
        verify(path)
    with pytest.raises(Violation):
        verify(path, load_topology("dgx1"))
