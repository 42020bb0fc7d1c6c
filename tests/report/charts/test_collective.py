"""Charts of collectives: a chain of three GPUs, and lines over the size."""

import dataclasses

import numpy as np
import pytest
from chart_checks import bars, check, only, words

from diffenergy.charts import Boxes, Line, Rule
from diffenergy.collectives import Schedule, demand, load_topology
from diffenergy.collectives._greedy import Effort, greedy
from diffenergy.collectives._schedule import Sends
from diffenergy.report._charts.collective import (
    bandwidth_chart,
    busy_time,
    collective_charts,
    rows_of,
)


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
    result = busy_time(ring)
    expected = np.zeros(len(ring.topology.links))
    np.add.at(expected, ring.sends.link, ring.sends.bytes)
    np.testing.assert_allclose(result, expected / ring.topology.rates)
    used = len(set(ring.sends.link))
    few = rows_of(ring, 3)
    assert len(rows_of(ring).links) == used and few.hidden == used - 3
    assert result[few.links].min() >= np.sort(result)[-3]


def test_bars_are_sends(ring: Schedule):
    """One bar from the start to the end without latency, one tail of the latency."""
    one = one_send(ring)
    result = collective_charts(one)
    check(result)
    panel = result["collective"].panels[0]
    tails, bar = (x for x in panel.marks if isinstance(x, Boxes) and len(x.left))
    start, end = one.sends.start[0], one.sends.end[0]
    latency = one.topology.latencies[0]
    assert (bar.left[0], bar.right[0]) == pytest.approx((start, end - latency))
    assert (tails.left[0], tails.right[0]) == pytest.approx((end - latency, end))
    # 1 MB in one third of the time that its link has
    use = result["links"].panels[0].readings[-1]
    work = 1e6 / float(one.topology.rates[0])
    assert use.x == pytest.approx(100 * work / (2 * work + latency))
    assert use.text.startswith("gpu0 → gpu1: ")


def test_a_schedule(ring: Schedule):
    finish = float(ring.sends.end.max())
    third = float(one_send(ring).sends.end[0])
    others = {"ring": 2 * finish, "recursive_doubling": third}
    result = collective_charts(ring, 0.8 * finish, others)
    check(result)
    chart = result["collective"]
    assert chart.title == "all-gather on ring-8"
    assert "gpu0 → gpu1" in words(chart) and "(+100 %)" in words(chart)
    sends, _, times = chart.panels
    (bound,) = (x for x in sends.marks if isinstance(x, Rule) and "bound" in x.name)
    assert bound.at == 0.8 * finish and bound.dashed
    assert bars(times) == pytest.approx(
        [0.8 * finish, *sorted([finish, 2 * finish, third])]
    )
    assert "recursive doubling" in times.y.names
    met = collective_charts(ring, finish, title="mine")["collective"]
    assert "(met)" in words(met) and met.title == "mine"


def planned(machine: str, size: str) -> Schedule:
    topology = load_topology(machine)
    wanted = demand("all_gather", topology, size)
    return greedy(topology, wanted, effort=Effort(batches=1, restarts=1))


def test_links_that_are_left_out_are_counted():
    """64 links of a torus: 48 are shown."""
    result = planned("torus-4x4", "16MB")
    used = len(set(result.sends.link))
    chart = collective_charts(result)["sends"]
    assert f"{used - 48} less busy links are not shown" in chart.title
    scale = chart.panels[0].scale
    assert scale is not None and scale.labels[15] == "gpu15"  # its last colour


def test_several_media():
    result = planned("ndv2-2", "1GB")
    reported, links = (
        words(collective_charts(result)["collective"]),
        result.topology.links,
    )
    assert all(link.medium in reported for link in links)
    media = [links[link].medium for link in rows_of(result, 5).links]
    assert media.count("nvlink2") == 3 and media.count("network-edr") == 2
    assert "25.00 to 50.00 GB/s" in reported


def test_nothing_to_draw(ring: Schedule):
    none = np.array([], int)
    empty = Sends(none, none, none * 1.0, none * 1.0, none * 1.0, none)
    with pytest.raises(ValueError, match="no sends"):
        collective_charts(dataclasses.replace(ring, sends=empty))


SIZES = [1e3, 1e6, 1e9]
LINES = {
    "this schedule": [1e8, 1e9, 2e10], "bound": [2e8, 2e9, 2e10],
    "recursive_doubling": [5e7, np.nan, 1e10],
}  # fmt: skip


def test_bandwidth():
    """In rising order of sizes; what is not known is left out."""
    lines = {name: values[::-1] for name, values in LINES.items()}
    chart = bandwidth_chart(SIZES[::-1], lines)
    check({"bandwidth": chart})
    (panel,) = chart.panels
    assert panel.x.log and panel.y.log
    for name, values in LINES.items():
        line = only(panel, name.replace("_", " "))
        assert isinstance(line, Line)
        np.testing.assert_array_equal([line.x, line.y], [SIZES, values])
        assert line.dashed == (name == "bound")
    assert not bandwidth_chart([1e3, 1e4], {"ring": [1e9, 2e9]}).panels[0].y.log
