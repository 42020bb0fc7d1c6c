"""The 25 published schedules, and the same broken on purpose."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from diffenergy.collectives import Violation, load_topology, verify
from diffenergy.collectives._published import read_json, replay_epochs

from .builders import read_published, run_published, write_json

_PREFIX = "ndv2-2-published_"
_LONGEST = 4.1e-6
"""s; latencies of the longest path."""
SMALL = {
    "1-Epoch_Duration": 1.25e-3,
    "2-Expected_Epoch_Duration": 1.25e-3,
    "3-Epochs_Required": 3,
    "4-Collective_Finish_Time": 3.75e-3,
    "5-Algo_Bandwidth": 16 * 62.5e6 / 3.75e-3 / 1e9,
    "Solver_Time": 1.0,
}
"""1 GB on `ndv2-2-published` in fast epochs: a chunk takes one on a double lane, two
on a single lane."""


@pytest.mark.shared_data
def test_all_files_end_in_their_epochs_and_run_in_continuous_time(shared: Path):
    """In epochs exactly as stated, and as in the published table. In continuous time
    an all-to-all is at most the latencies longer; an all-gather also the epoch that
    hops out of gpu0 did not count, and latencies that sends before it on a link had."""
    with (shared / "data/teccl/goldens_ndv2_2chassis.csv").open() as file:
        columns = "collective", "epoch_type", "size_label"
        rows = {tuple(r[x] for x in columns): r for r in csv.DictReader(file)}
    files = sorted((shared / "data/teccl/schedules").glob(_PREFIX + "*.json.gz"))
    assert len(files) == 25
    names = {"all_gather": "AllGather", "all_to_all": "AlltoAll"}
    for path in files:
        published = read_published(path, load_topology("ndv2-2-published"))
        words = path.name.removesuffix(".json.gz").removeprefix(_PREFIX)
        name, epoch, size = words.rsplit("_", 2)
        row = rows[names[name], epoch.capitalize(), size]
        assert replay_epochs(published) == int(row["epochs"])
        assert published.demand.size == pytest.approx(float(row["chunk_bytes"]))
        _, result = run_published(published)
        assert published.epoch is not None
        late = result - float(row["finish_s"])
        free = published.epoch + _LONGEST if name == "all_gather" else 0.0
        assert late <= free + _LONGEST


def test_flows_become_sends(tmp_path: Path):
    """gpu4 over the switch gpu0 to gpu2 and gpu9, sharing the hop into gpu0: two
    lanes (1 epoch), so that gpu0 sends on in epoch 1."""
    hop = "Chunk 0 from 4 traveled over 4->{} in epoch 0 via switches 0"
    table = SMALL | {"7-Flows": [hop.format(2), hop.format(9)]}
    path = write_json(tmp_path / "a.json", table)
    published = read_published(path, load_topology("ndv2-2-published"))
    names = [node.name for node in published.topology.nodes]
    links = [published.topology.links[n] for n in published.sends.link]
    assert [(names[k.source], names[k.target]) for k in links] == [
        ("gpu4", "gpu0"),
        ("gpu0", "gpu2"),
        ("gpu0", "gpu9"),
    ]
    assert published.sends.start == pytest.approx([0.0, 1.25e-3, 1.25e-3])
    assert published.sends.bytes == pytest.approx(62.5e6)
    assert published.sends.end[0] == pytest.approx(1.25e-3 + 0.7e-6)
    assert published.demand.wanted.sum() == 15 * 15


def without_a_chunk(table: dict) -> None:
    name, ways = table["7-chunk paths"].popitem()
    chunk = name.split("for chunk ")[1].split(" met")[0]
    lost = {f"Chunk {chunk} traveled over {hop}" for way in ways for _, hop in way}
    table["6-Flows"] = [flow for flow in table["6-Flows"] if flow not in lost]


BROKEN: list[tuple[str, Callable[[dict], object], str]] = [
    ("all_gather", lambda table: table.update({"3-Epochs_Required": 9}),
     "after 10 epochs, not after the 9"),
    ("all_to_all", lambda table: table["6-Flows"].pop(5), "a path but not listed"),
    ("all_gather", lambda table: table["6-Demand_Met"]["GPU 3"].pop("GPU 5"),
     "does not have the demand of GPU 5"),
    ("all_to_all", without_a_chunk, "never comes whole"),
]  # fmt: skip


@pytest.mark.shared_data
def test_files_are_verified(shared: Path, tmp_path: Path):
    def path(name: str) -> Path:
        return shared / f"data/teccl/schedules/{_PREFIX}{name}_slow_1GB.json.gz"

    machine = load_topology("ndv2-2-published")
    result = verify(path("all_gather"), machine)
    assert result.summary["format"] == "te-ccl"
    assert result.schedule.epochs == 10 and result.finish <= 50e-3
    with pytest.raises(ValueError, match="names no topology"):
        verify(path("all_gather"))
    with pytest.raises(Violation):
        verify(path("all_gather"), load_topology("dgx1"))
    for name, edit, says in BROKEN:
        table = read_json(path(name))
        edit(table)
        broken = write_json(tmp_path / "broken.json", table)
        with pytest.raises(Violation, match=says):
            run_published(read_published(broken, machine))
