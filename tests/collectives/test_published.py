"""The 25 published schedules, and the same broken on purpose."""

import csv
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from diffenergy.collectives import Violation, load_topology
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


def _names(shared: Path) -> list[Path]:
    return sorted((shared / "data/teccl/schedules").glob(_PREFIX + "*.json.gz"))


@pytest.mark.shared_data
@pytest.mark.slow
def test_all_files_end_in_their_epochs_and_run_in_continuous_time(shared: Path):
    """In epochs exactly as stated, and as in the published table. In continuous time
    an all-to-all is at most the latencies longer; an all-gather also the epoch that
    hops out of gpu0 did not count, and latencies that sends before it on a link had."""
    with (shared / "data/teccl/goldens_ndv2_2chassis.csv").open() as file:
        rows = {
            (r["collective"], r["epoch_type"], r["size_label"]): r
            for r in csv.DictReader(file)
        }
    files = _names(shared)
    assert len(files) == 25
    for path in files:
        published = read_published(path, load_topology("ndv2-2-published"))
        words = path.name.removesuffix(".json.gz").removeprefix(_PREFIX)
        name, epoch, size = words.rsplit("_", 2)
        row = rows[
            {"all_gather": "AllGather", "all_to_all": "AlltoAll"}[name],
            epoch.capitalize(),
            size,
        ]
        assert replay_epochs(published) == int(row["epochs"])
        assert published.demand.size == pytest.approx(float(row["chunk_bytes"]))
        _, result = run_published(published)
        assert published.epoch is not None
        late = result - float(row["finish_s"])
        free = published.epoch + _LONGEST if name == "all_gather" else 0.0
        assert late <= free + _LONGEST


def _read(path: Path, *flows: str):
    return read_published(
        write_json(path, SMALL | {"7-Flows": flows}), load_topology("ndv2-2-published")
    )


def test_flows_become_sends(tmp_path: Path):
    """gpu4 over the switch gpu0 to gpu2 and gpu9, sharing the hop into gpu0: two
    lanes (1 epoch), so that gpu0 sends on in epoch 1."""
    shared_hop = "Chunk 0 from 4 traveled over 4->{} in epoch 0 via switches 0"
    published = _read(tmp_path / "a.json", shared_hop.format(2), shared_hop.format(9))
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


def _broken(shared: Path, tmp_path: Path, which: str, edit: Callable[[dict], object]):
    path = shared / f"data/teccl/schedules/{_PREFIX}{which}.json.gz"
    table = read_json(path)
    edit(table)
    return read_published(
        write_json(tmp_path / "broken.json", table), load_topology("ndv2-2-published")
    )


@pytest.mark.shared_data
def test_claims_and_paths_are_checked(shared: Path, tmp_path: Path):
    def less(table: dict) -> None:
        table["3-Epochs_Required"] = 9

    with pytest.raises(Violation, match="after 10 epochs, not after the 9"):
        run_published(_broken(shared, tmp_path, "all_gather_slow_1GB", less))
    with pytest.raises(Violation, match="a path but not listed"):
        _broken(
            shared,
            tmp_path,
            "all_to_all_slow_1GB",
            lambda table: table["6-Flows"].pop(5),
        )

    with pytest.raises(Violation, match="does not have the demand of GPU 5"):
        _broken(
            shared,
            tmp_path,
            "all_gather_slow_1GB",
            lambda table: table["6-Demand_Met"]["GPU 3"].pop("GPU 5"),
        )

    def lost(table: dict) -> None:
        path = table["7-chunk paths"].popitem()
        hops = {hop for way in path[1] for _, hop in way}
        chunk = path[0].split("for chunk ")[1].split(" met")[0]
        others = {f"Chunk {chunk} traveled over {hop}" for hop in hops}
        table["6-Flows"] = [f for f in table["6-Flows"] if f not in others]

    with pytest.raises(Violation, match="never comes whole"):
        replay_epochs(_broken(shared, tmp_path, "all_to_all_slow_1GB", lost))


@pytest.mark.shared_data
def test_truncated_files(shared: Path, tmp_path: Path):
    data = (
        shared / f"data/teccl/schedules/{_PREFIX}all_gather_slow_1GB.json.gz"
    ).read_bytes()
    for name, content in {
        "cut.json.gz": data[:900],
        "cut.json": gzip.decompress(data)[:900],
        "empty.json": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match="not whole JSON"):
            read_published(tmp_path / name, load_topology("ndv2-2-published"))
