"""Bundled, generated and own machines against their published counts."""

import re
from pathlib import Path

import numpy as np
import pytest

from diffenergy.collectives import (
    MACHINE_PARTS,
    load_topology,
    topology_names,
)
from diffenergy.collectives._build_topology import FILE, media
from diffenergy.collectives._what_if import scale
from diffenergy.hardware import gpu_names

from .builders import disable, into, link, out_of, reached

GENERATED = (
    "mesh-3", "torus-2x4", "torus-3x4x5", "ring-2", "ring-5", "dgx-a100-2", "dgx-h100-3"
)  # fmt: skip
FIXED = tuple(name for name in topology_names() if not re.search("-[NA]", name))
EVERY = (*FIXED, *GENERATED)
DOUBLE = "0-1 0-4 1-3 2-3 2-6 4-5 5-7 6-7".split()


@pytest.mark.parametrize("name", EVERY)
def test_is_whole_and_every_link_has_its_sources(name: str):
    topology = load_topology(name)
    assert topology.name == name
    names = [node.name for node in topology.nodes]
    assert len(set(names)) == len(names)
    for node in topology.nodes:
        prefix = {"gpu": "gpu", "switch": "sw", "nic": "nic"}[node.kind]
        relay = name == "ndv2-2-published" and node.name == "gpu0"
        assert node.name.startswith("gpu" if relay else prefix)
    gpus = [name for name in names if name[:3] == "gpu"]
    assert gpus == [f"gpu{n}" for n in range(topology.buffer_gpus)]
    assert reached(topology, 0) == set(range(len(names)))
    assert reached(topology.reversed(), 0) == set(range(len(names)))
    assert topology.gpu is None or topology.gpu in gpu_names()
    for one in topology.links:
        assert one.rate > 0 and one.latency >= 0
        assert "latency: " in one.origin and not one.origin.startswith("rate: the file")
        assert 0 < one.energy.low <= one.energy.typical <= one.energy.high < 1e-9
        assert re.search(r"\[(derived|recall|guess), \d{4}\]", one.energy.source)


@pytest.mark.parametrize(
    "name, counts, links, rate",
    [
        ("dgx1", (8, 0, 0), 32, 150e9),  # 16 pairs, six NVLink 2
        ("ndv2-1", (8, 0, 0), 32, 150e9),
        ("ndv2-2", (16, 0, 0), 66, None),  # two boards and two one-way links
        ("ndv2-2-published", (15, 1, 0), 66, None),
        ("ndv2-4", (32, 1, 0), 136, None),  # four boards, four up, four down
        ("dgx2-2", (32, 2, 0), 80, None),  # 32 pairs, eight each way between
        ("mi250x-1", (16, 0, 0), 56, None),  # 28 pairs
        ("mi250x-2", (32, 17, 0), 208, None),  # 56 pairs, 32 to NICs, 16 to the network
        ("dgx-a100", (8, 1, 0), 16, 300e9),
        ("dgx-h100", (8, 1, 0), 16, 450e9),
        ("dgx-a100-2", (16, 10, 16), 96, 331.5e9),  # PCIe 4; a NIC: 16 pairs each side
        ("dgx-h100-3", (24, 11, 24), 144, 513e9),
        ("gb200-nvl72", (72, 1, 0), 144, 900e9),
        ("mesh-3", (9, 0, 0), 24, None),  # 2 x 3 x 2 pairs
        ("torus-3x4x5", (60, 0, 0), 360, 300e9),  # three pairs begin at every GPU
        ("torus-2x4", (8, 0, 0), 24, 150e9),  # 4 + 8 pairs: two of one size have one
        ("torus-1x3", (3, 0, 0), 6, 100e9),
        ("ring-2", (2, 0, 0), 2, 50e9),
        ("ring-5", (5, 0, 0), 10, 100e9),
    ],
)
def test_counts_and_rates_of_equal_gpus(name: str, counts: tuple, links: int, rate):
    topology = load_topology(name)
    kinds = [node.kind for node in topology.nodes]
    assert tuple(kinds.count(kind) for kind in ("gpu", "switch", "nic")) == counts
    assert len(topology.links) == links
    if rate:
        np.testing.assert_allclose(into(topology)[topology.gpus], rate)
        np.testing.assert_allclose(out_of(topology)[topology.gpus], rate)


def test_v100_board():
    board = load_topology("dgx1")
    fast = {(x.source, x.target) for x in board.links if x.rate == 50e9}
    pairs = {(int(x[0]), int(x[2])) for x in DOUBLE}
    assert fast == pairs | {(b, a) for a, b in pairs}
    assert set(board.rates) == {25e9, 50e9}


def test_ndv2_links_between_chassis_are_one_way():
    two, published = load_topology("ndv2-2"), load_topology("ndv2-2-published")
    between = [
        (x.source, x.target, x.rate, x.latency)
        for x in two.links
        if two.nodes[x.source].chassis != two.nodes[x.target].chassis
    ]
    assert sorted(between) == [(0, 9, 12.5e9, 1.3e-6), (8, 1, 12.5e9, 1.3e-6)]
    relay = published.nodes[0]
    assert (relay.name, relay.kind, relay.copy) == ("gpu0", "switch", True)
    assert (published.buffer_gpus, published.free_exit) == (16, True)
    assert published.links == two.links
    four = load_topology("ndv2-4")
    hub = four.index["sw0"]
    assert [x.source for x in four.links if x.target == hub] == [0, 8, 16, 24]
    assert [x.target for x in four.links if x.source == hub] == [1, 9, 17, 25]
    assert four.nodes[hub].copy and not four.nodes[hub].reduces
    assert set(two.latencies) == {0.7e-6, 1.3e-6}


def test_dgx2_links_between_chassis():
    machine = load_topology("dgx2-2")
    between = {(x.source, x.target) for x in machine.links if x.rate == 12.5e9}
    expected = {
        (16 * c + i, 16 * (1 - c) + i - 1) for c in (0, 1) for i in range(1, 16, 2)
    }
    assert between == expected
    assert link(machine, "gpu5", "sw0") and not link(machine, "gpu5", "sw1")
    assert link(machine, "gpu21", "sw1") and not link(machine, "gpu21", "sw0")
    assert {x.latency for x in machine.links if x.rate == 125e9} == {0.35e-6}


def test_mi250x():
    one, two = load_topology("mi250x-1"), load_topology("mi250x-2")
    # 0-1:4 0-4:2 0-8:1 and 1-0:4 1-5:1 1-9:1 1-10:1, times 50 GB/s
    np.testing.assert_allclose(into(one)[:2], [350e9, 350e9])
    assert one.rates.sum() == 2 * (8 * 200e9 + 4 * 100e9 + 16 * 50e9)
    for die, switch in ((0, "sw1"), (15, "sw8"), (16, "sw9"), (31, "sw16")):
        result = link(two, f"gpu{die}", switch)
        assert result and result.rate == 25e9
    assert into(two)[two.index["sw0"]] == 16 * 25e9
    assert two.nodes[two.index["sw9"]].chassis == 1


def test_rails():
    machine = load_topology("dgx-h100-3")
    for n in range(24):
        c, k = divmod(n, 8)
        pcie = link(machine, f"gpu{n}", f"nic{n}")
        network = link(machine, f"nic{n}", f"sw{3 + k}")
        inside = link(machine, f"sw{c}", f"gpu{n}")
        assert pcie and (pcie.rate, pcie.medium) == (63e9, "pcie5")
        assert network and (network.rate, network.medium) == (50e9, "nic-ndr")
        assert inside and inside.rate == 450e9
        assert machine.nodes[machine.index[f"nic{n}"]].chassis == c
    kinds = {node.name: (node.copy, node.reduces) for node in machine.nodes}
    assert kinds["sw2"] == (True, True) and kinds["sw3"] == (False, False)
    assert kinds["nic0"] == (False, False)
    assert not load_topology("dgx-a100").nodes[-1].copy


@pytest.mark.parametrize("name", ["ndv2-4", "dgx-h100"])
def test_reversed(name: str):
    topology = load_topology(name)
    back = topology.reversed()
    np.testing.assert_allclose(into(back), out_of(topology))
    ends = {(x.source, x.target) for x in topology.links}
    mirrored = {(target, source) for source, target in ends} == ends
    assert mirrored == (name == "dgx-h100")
    for node, turned in zip(topology.nodes, back.nodes, strict=True):
        if not node.stores:
            assert turned.copy == node.reduces == (name == "dgx-h100")


def test_every_file_is_used():
    named = {path.stem for path in FILE.parent.glob("*.toml")}
    assert named == {*FIXED, *MACHINE_PARTS, FILE.stem}


def test_open_latency_is_the_callers():
    assert set(load_topology("dgx1").latencies) == {0.7e-6}
    assert set(load_topology("dgx1", latency=0.0).latencies) == {0.0}
    assert set(load_topology("mesh-3", latency=2e-6).latencies) == {2e-6}
    assert "given by the caller" in load_topology("ring-3", 1e-6).links[0].origin


def test_energy_counts_what_a_bit_passes():
    pj = {name: (one.low * 1e12, one.high * 1e12) for name, one in media().items()}
    assert pj["nvlink3"] == pytest.approx((5, 10))
    assert pj["nvlink2-switch"] == pytest.approx((12, 24))  # and a port, 7-14
    # NIC 62, switch port 29, cable from copper (0.6) to two optics of 30
    assert pj["nic-ndr"] == pytest.approx((91.6, 151))
    assert pj["network-edr"] == pytest.approx(
        tuple(2 * x for x in pj["network-edr-half"])
    )


def test_disable_and_scale_act_both_ways():
    board = load_topology("dgx1")
    cut = disable(board, "gpu0-gpu3")
    assert link(cut, "gpu0", "gpu3") is None and link(cut, "gpu3", "gpu0") is None
    np.testing.assert_allclose(into(cut)[[0, 3, 1]], [125e9, 125e9, 150e9])
    slow = scale(board, "0-1=0.5")
    np.testing.assert_allclose(out_of(slow)[[0, 1, 2]], [125e9, 125e9, 150e9])
    assert len(slow.links) == len(board.links)
    one_way = disable(load_topology("ndv2-2"), "9-0")
    assert len(one_way.links) == 65
    uplink = scale(load_topology("dgx-h100"), "sw0-gpu7=2")
    np.testing.assert_allclose(into(uplink)[[6, 7]], [450e9, 900e9])


OWN = """
name = "two-and-a-switch"
gpus = 2
gpu = "h100-sxm"
chassis = 2
latency = 1e-6
[media.laser]
low = 1e-12
typical = 2e-12
high = 3e-12
source = "our optics"
[[nodes]]
names = "sw0"
copy = true
[[links]]
pairs = "0..1-sw0"
rate = 10e9
medium = "nvlink4-switch"
[[outer_links]]
one_way = "gpu1->gpu2 3->0"
rate = 1e9
latency = 2e-6
medium = "laser"
source = "read off the box"
"""


def test_own_file(tmp_path: Path):
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    machine = load_topology(str(path))
    names = [node.name for node in machine.nodes]
    assert names == ["gpu0", "gpu1", "gpu2", "gpu3", "sw0", "sw1"]
    assert [node.chassis for node in machine.nodes] == [0, 0, 1, 1, 0, 1]
    assert len(machine.links) == 10
    assert link(machine, "gpu3", "sw1") and not link(machine, "gpu3", "sw0")
    laser = link(machine, "gpu1", "gpu2")
    assert laser and (laser.latency, laser.energy.typical) == (2e-6, 2e-12)
    assert laser.origin.startswith("read off the box")
    assert link(machine, "gpu2", "gpu1") is None
    text = 'like = "dgx1"\nchassis = 2\n[[outer_links]]\npairs = "0-8"\nrate = 5e9\n'
    path.write_text(text + 'medium = "network-edr"\n')
    machine = load_topology(str(path))
    assert (machine.name, len(machine.gpus), len(machine.links)) == ("own", 16, 66)
