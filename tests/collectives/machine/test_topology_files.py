"""A user's own topology files: what they say, and what is wrong with them."""

from pathlib import Path

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
