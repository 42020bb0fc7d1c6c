"""A user's own topology files: what they say, and what is wrong with them."""

from pathlib import Path

import pytest

from diffenergy.collectives import Topology, load_topology

from .graphs import link

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


def own(folder: Path, text: str = OWN) -> Topology:
    path = folder / "own.toml"
    path.write_text(text)
    return load_topology(str(path))


def test_own_file(tmp_path: Path):
    machine = own(tmp_path)
    names = [node.name for node in machine.nodes]
    assert names == ["gpu0", "gpu1", "gpu2", "gpu3", "sw0", "sw1"]
    assert [node.chassis for node in machine.nodes] == [0, 0, 1, 1, 0, 1]
    assert len(machine.links) == 10
    assert link(machine, "gpu3", "sw1") and not link(machine, "gpu3", "sw0")
    laser = link(machine, "gpu1", "gpu2")
    assert laser and (laser.latency, laser.energy.typical) == (2e-6, 2e-12)
    assert laser.origin.startswith("read off the box")
    assert link(machine, "gpu2", "gpu1") is None


def test_own_file_like_a_bundled_one(tmp_path: Path):
    text = 'like = "dgx1"\nchassis = 2\n[[outer_links]]\npairs = "0-8"\nrate = 5e9\n'
    machine = own(tmp_path, text + 'medium = "network-edr"\n')
    assert (machine.name, len(machine.gpus), len(machine.links)) == ("own", 16, 66)


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("rate = 10e9\n", "", "`rate` is missing for the links '0..1-sw0'"),
        ("rate = 10e9", "rate = 10", "looks like GB/s"),
        ("rate = 10e9", "rate = -1", "`rate` is -1; allowed"),
        ("rate = 10e9", "rate = 'x'", "`rate` is 'x'; give a finite number"),
        ("rate = 10e9", "rate = nan", "`rate` is nan; give a finite number"),
        ("latency = 1e-6", "latency = -1e-6", "`latency` is -1e-06"),
        ("latency = 1e-6", "latency = 0.7", "looks like us"),
        ("latency = 2e-6", "latency = true", "`latency` is True"),
        ('medium = "laser"', 'medium = "lasr"', "nearest: laser"),
        ('medium = "laser"\n', "", "`medium` is missing; nearest: nvlink1"),
        ("typical = 2e-12", "typical = 2", "low, typical, high"),
        ('names = "sw0"', 'names = "sw1"', "number them from sw0"),
        ('names = "sw0"', 'names = "gpu7"', "counted by `gpus`"),
        ('names = "sw0"', 'names = "switch"', "allowed are names such as"),
        ("copy = true", "copy = 1", "allowed are true and false"),
        ("gpu1->gpu2", "gpu1->gpu4", "names gpu4, which is not a node"),
        ("gpu1->gpu2", "gpu1-gpu2", "`one_way` has 'gpu1-gpu2'"),
        ("gpu1->gpu2", "gpu1->gpu1", "a link joins two nodes"),
        ("gpu1->gpu2", "3->0", "gpu3->gpu0 twice"),
        ("0..1-sw0", "0..99999-0..99999", "makes 10000000000 links"),
        ("0..1-sw0", "1..0-sw0", "a range rises"),
        ("0..1-sw0", "0..1", "allowed are two nodes"),
        ("gpus = 2", "gpus = 0", "`gpus` is 0"),
        ("gpus = 2", "gpus = 150000", "`gpus` is 150000 in 2 chassis"),
        ("gpus = 2", "gpu_count = 2", "`gpu_count` is not a key"),
        ("chassis = 2", "chassis = 2\nbuffer_gpus = 1", "`buffer_gpus` is 1"),
        ("h100-sxm", "h1000", "`gpu` is 'h1000'"),
        ("[[links]]", "[links]", "give tables"),
        ("chassis = 2", 'like = "mesh"', "`like` is 'mesh'"),
        ("chassis = 2", 'relays = "gpu9"', "`relays` names gpu9"),
        ("chassis = 2", "chassis = ", "not valid TOML"),
        ("chassis = 2", "grid = 2", "bundled topologies alone"),
    ],
)
def test_malformed_files(tmp_path: Path, old: str, new: str, words: str):
    assert old in OWN
    with pytest.raises(ValueError, match=words) as error:
        own(tmp_path, OWN.replace(old, new, 1))
    assert "own.toml" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name, words",
    [
        ("dgx-1", "neither a known topology nor a file; nearest: `dgx1`"),
        ("none.toml", "no such file"),
        ("mesh-1", "of 1 GPUs"),
        ("torus-0x4", "of 0 GPUs"),
        ("torus-900x900", "of 810000 GPUs"),
        ("dgx-h100-1", "one is `dgx-h100`"),
        ("", "neither a known topology"),
        ("media", "neither a known topology"),
    ],
)
def test_unknown_names(name: str, words: str):
    with pytest.raises(ValueError, match=words):
        load_topology(name)


@pytest.mark.parametrize(
    "name, latency, words",
    [
        ("dgx1", -1e-6, "`latency` is -1e-06; allowed is any number of s from 0"),
        ("dgx1", float("nan"), "`latency` is nan"),
        ("dgx1", 0.7, "looks like us"),
        ("ndv2-2", 1e-6, "states the latency of every link"),
    ],
)
def test_bad_latency(name: str, latency: float, words: str):
    with pytest.raises(ValueError, match=words):
        load_topology(name, latency)
