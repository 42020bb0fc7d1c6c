"""Machines from what `nvidia-smi topo -m` prints."""

from pathlib import Path

import numpy as np
import pytest

from diffenergy.collectives import load_topology
from diffenergy.collectives._nvidia_smi import read_matrix

from .builders import (
    into,
    link,
    reached,
)

DGX1 = """
\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tmlx5_0\tCPU Affinity\x1b[0m
GPU0\t X \tNV1\tNV1\tNV2\tNV2\tSYS\tSYS\tSYS\tPIX\t0-19,40-59
GPU1\tNV1\t X \tNV2\tNV1\tSYS\tNV2\tSYS\tSYS\tPIX\t0-19,40-59
GPU2\tNV1\tNV2\t X \tNV2\tSYS\tSYS\tNV1\tSYS\tPHB\t0-19,40-59
GPU3\tNV2\tNV1\tNV2\t X \tSYS\tSYS\tSYS\tNV1\tPHB\t0-19,40-59
GPU4\tNV2\tSYS\tSYS\tSYS\t X \tNV1\tNV1\tNV2\tSYS\t20-39,60-79
GPU5\tSYS\tNV2\tSYS\tSYS\tNV1\t X \tNV2\tNV1\tSYS\t20-39,60-79
GPU6\tSYS\tSYS\tNV1\tSYS\tNV1\tNV2\t X \tNV2\tSYS\t20-39,60-79
GPU7\tSYS\tSYS\tSYS\tNV1\tNV2\tNV1\tNV2\t X \tSYS\t20-39,60-79
mlx5_0\tPIX\tPIX\tPHB\tPHB\tSYS\tSYS\tSYS\tSYS\t X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
  NV#  = Connection traversing a bonded set of # NVLinks
"""

PCIE = """
        GPU0    GPU1    GPU2    GPU3    NIC0    CPU Affinity    NUMA Affinity
GPU0     X      PIX     NODE    SYS     PIX     0-31            0
GPU1    PIX      X      NODE    SYS     PIX     0-31            0
GPU2    NODE    NODE     X      SYS     NODE    0-31            0
GPU3    SYS     SYS     SYS      X      SYS     32-63           1
NIC0    PIX     PIX     NODE    SYS      X

NIC Legend:

  NIC0: mlx5_0
"""


def switched(lanes: int, gpus: int = 8) -> str:
    """A print of GPUs behind NVSwitches."""
    head = "\t" + "\t".join(f"GPU{n}" for n in range(gpus)) + "\tNIC0\tCPU Affinity"
    rows = []
    for i in range(gpus):
        cells = [" X " if i == j else f"NV{lanes}" for j in range(gpus)]
        rows.append("\t".join([f"GPU{i}", *cells, "PXB", "0-47"]))
    return "\n".join([head, *rows, "NIC0\t" + "\t".join(["PXB"] * gpus) + "\t X "])


def test_print_of_a_dgx1(tmp_path: Path):
    path = tmp_path / "topo.txt"
    path.write_text(DGX1)
    machine = load_topology(str(path), gpu="v100-sxm-32gb")
    assert len(machine.gpus) == len(machine.nodes) == 8
    np.testing.assert_allclose(into(machine), 150e9)
    assert sorted(machine.rates) == sorted(load_topology("dgx1").rates)
    doubled = link(machine, "gpu0", "gpu3")
    assert doubled and (doubled.rate, doubled.medium) == (50e9, "nvlink2")
    assert machine.gpu == "v100-sxm-32gb"


@pytest.mark.parametrize(
    "gpu, lanes, rate, multicast",
    [
        ("a100-sxm-80gb", 12, 300e9, False),
        ("h100-sxm", 8, 200e9, True),  # an H800
        ("b200-sxm", 18, 900e9, True),
        ("v100-sxm-32gb", 6, 150e9, False),
    ],
)
def test_print_of_switched_machines(gpu: str, lanes: int, rate: float, multicast: bool):
    machine = read_matrix(switched(lanes), gpu)
    assert machine.nodes[-1].name == "sw0"
    np.testing.assert_allclose(into(machine)[:8], rate)
    assert machine.nodes[-1].reduces == multicast


def test_print_of_a_board_without_a_switch():
    machine = read_matrix(switched(4, gpus=4), "a100-sxm-40gb")
    assert len(machine.nodes) == 4 and len(machine.links) == 12
    np.testing.assert_allclose(into(machine), 300e9)


def test_print_of_a_pcie_machine():
    """gpu0 and gpu1 behind a switch of bridge sw0, gpu2 at it, gpu3 at bridge sw1; a
    pair that is bridged keeps its PCIe."""
    machine = read_matrix(PCIE, "l40s")
    names = [node.name for node in machine.nodes]
    ends = {(names[x.source], names[x.target]) for x in machine.links}
    pairs = [("gpu0", "sw2"), ("gpu1", "sw2"), ("sw2", "sw0"), ("gpu2", "sw0")]
    pairs += [("gpu3", "sw1"), ("sw0", "sw1")]
    assert ends == {*pairs, *((b, a) for a, b in pairs)}
    np.testing.assert_allclose(machine.rates, 31.5e9)
    text = PCIE.replace("PIX     NODE    SYS     PIX ", "NV4     NODE    SYS     PIX ")
    machine = read_matrix(text.replace("GPU1    PIX ", "GPU1    NV4 "), "a30")
    bridge = link(machine, "gpu0", "gpu1")
    assert bridge and bridge.rate == 100e9
    assert link(machine, "gpu0", "sw0") and link(machine, "gpu3", "sw1")
    assert reached(machine, 0) == set(range(len(machine.nodes)))
