"""Pictures of collectives: a chain of three GPUs, and lines over the size."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from diffenergy.collectives import Schedule, demand, load_topology
from diffenergy.collectives._listing.greedy import Effort, greedy
from diffenergy.collectives._schedule.schedule import Sends
from diffenergy.report import save_figure
from diffenergy.report._charts.plot_collective import (
    bandwidth_figure,
    busy_time,
    collective_figure,
    rows_of,
)

from ..figures import corners, drawn, points, widths, words


@pytest.fixture(scope="module")
def ring() -> Schedule:
    """An all-gather of 8 GPUs on a ring."""
    topology = load_topology("ring-8", latency=1e-6)
    wanted = demand("all_gather", topology, "8MB")
    return greedy(topology, wanted, effort=Effort(batches=1, restarts=2))


def one_send(schedule: Schedule) -> Schedule:
    """A send of 1 MB on the first link alone, in the second half of its time."""
    rate = float(schedule.topology.rates[0])
    latency = float(schedule.topology.latencies[0])
    work = 1e6 / rate
    sends = Sends(
        np.array([0]), np.array([0]), np.array([work]),
        np.array([2 * work + latency]), np.array([1e6]), np.array([0]),
    )  # fmt: skip
    return dataclasses.replace(schedule, sends=sends)


def test_busy_links(ring: Schedule):
    """Bytes over rate; every link of a ring that is used shows up."""
    found = busy_time(ring)
    expected = np.zeros(len(ring.topology.links))
    for link, size in zip(ring.sends.link, ring.sends.bytes, strict=True):
        expected[link] += size / ring.topology.rates[link]
    np.testing.assert_allclose(found, expected)
    assert len(rows_of(ring).links) == len(set(ring.sends.link))
    few = rows_of(ring, 3)
    assert few.hidden == len(set(ring.sends.link)) - 3
    assert found[few.links].min() >= np.sort(found)[-3]


def test_bars_are_sends(ring: Schedule):
    """One bar from the start to the end without latency, one tail of the latency."""
    one = one_send(ring)
    figure = drawn(collective_figure(one))
    tails, bars = figure.axes[0].collections
    start, end = one.sends.start[0], one.sends.end[0]
    latency = one.topology.latencies[0]
    across = corners(bars)[:, 0]
    assert (across.min(), across.max()) == pytest.approx((start, end - latency))
    across = corners(tails)[:, 0]
    assert (across.min(), across.max()) == pytest.approx((end - latency, end))


def test_a_schedule(ring: Schedule):
    finish = float(ring.sends.end.max())
    others = {
        "ring": 2 * finish,
        "recursive_doubling": float(one_send(ring).sends.end[0]),
    }
    figure = drawn(collective_figure(ring, 0.8 * finish, others))
    said = words(figure)
    for text in (
        "all-gather on ring-8",
        "gpu0 → gpu1",
        "thin bars: latency; line: finish; dashed: bound",
        "sends by source",
        "share of the finish, % (tick: a link)",
        "(+100 %)",
        "recursive doubling",
    ):
        assert text in said, text
    times = next(axes for axes in figure.axes if axes.get_title("left") == "Finish")
    assert widths(times) == pytest.approx(
        [
            0.8 * finish,
            *sorted([finish, 2 * finish, float(one_send(ring).sends.end[0])]),
        ]
    )
    met = words(drawn(collective_figure(ring, finish, title="mine")))
    assert "line: finish, which is the bound" in met and "mine" in met


def test_links_that_are_left_out_are_counted():
    """64 links of a torus: 48 are shown."""
    topology = load_topology("torus-4x4")
    wanted = demand("all_gather", topology, "16MB")
    found = greedy(topology, wanted, effort=Effort(batches=1, restarts=1))
    used = len(set(found.sends.link))
    said = words(drawn(collective_figure(found)))
    assert f"{used - 48} less busy links are not shown" in said
    assert "gpu15" in said  # the strip names its last colour


def test_several_media():
    topology = load_topology("ndv2-2")
    wanted = demand("all_gather", topology, "1GB")
    found = greedy(topology, wanted, effort=Effort(batches=1, restarts=1))
    said = words(drawn(collective_figure(found)))
    for link in topology.links:
        assert link.medium in said
    media = [topology.links[link].medium for link in rows_of(found, 5).links]
    assert media.count("nvlink2") == 3 and media.count("network-edr") == 2
    assert "25.00 to 50.00 GB/s" in said


def test_nothing_to_draw(ring: Schedule):
    none = np.array([], int)
    empty = Sends(none, none, none * 1.0, none * 1.0, none * 1.0, none)
    with pytest.raises(ValueError, match="no sends"):
        collective_figure(dataclasses.replace(ring, sends=empty))


SIZES = [1e3, 1e6, 1e9]
LINES = {
    "this schedule": [1e8, 1e9, 2e10],
    "bound": [2e8, 2e9, 2e10],
    "recursive_doubling": [5e7, np.nan, 1e10],
}


def test_bandwidth():
    figure = drawn(
        bandwidth_figure(SIZES[::-1], {k: v[::-1] for k, v in LINES.items()})
    )
    (axes,) = figure.axes
    assert axes.get_xscale() == "log" and axes.get_yscale() == "log"
    for line, (name, values) in zip(axes.lines, LINES.items(), strict=True):
        assert line.get_label() == name.replace("_", " ")
        np.testing.assert_array_equal(points(line), [SIZES, values])
    ticks = [tick.get_text() for tick in axes.get_xticklabels()]
    assert "1 kB" in ticks and "1 MB" in ticks
    narrow = drawn(bandwidth_figure([1e3, 1e4], {"ring": [1e9, 2e9]}))
    assert narrow.axes[0].get_yscale() == "linear"


@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_files(tmp_path: Path, ring: Schedule, name: str):
    begins = b"\x89PNG" if name.endswith("png") else b"<?xml"
    path = str(tmp_path / name)
    save_figure(path, lambda: collective_figure(one_send(ring), 1e-3))
    assert Path(path).read_bytes().startswith(begins)
    save_figure(path, lambda: bandwidth_figure(SIZES, LINES, "title"))
    assert Path(path).read_bytes().startswith(begins)
    with pytest.raises(ValueError, match="is an input"):
        save_figure(path, lambda: bandwidth_figure(SIZES, LINES), inputs=[path])
