"""Collectives as kernels: names, whose constants, time and energy in `estimate`."""

import dataclasses

import jax
import numpy as np
import pytest

from diffenergy import estimator
from diffenergy.corrections import Corrections
from diffenergy.dtypes import BYTES, code
from diffenergy.files import facts
from diffenergy.hardware import COSTED_COLLECTIVES, OperatingPoint, load_gpu, read_gpu
from diffenergy.hardware._link_costs import FIELDS
from diffenergy.physics import LAUNCH_COMPONENTS, link_kind
from diffenergy.physics import _links as links
from diffenergy.records import as_float, as_index
from diffenergy.workload import normalise_kernel

CASES = (
    ("all_gather", 1e9, 8, "bf16", ""), ("all_reduce", 1e9, 8, "bf16", ""),
    ("all_reduce", 1e9, 8, "int8", ""), ("all_reduce", 65536.0, 8, "bf16", ""),
    ("all_reduce", 65536.0, 8, "bf16", "vLLM_custom_graph"),
    ("alltoall", 4e6, 4, "fp8", ""), ("broadcast", 3e7, 2, "fp32", ""),
    ("all_reduce", 1e6, 1, "bf16", ""),
)  # fmt: skip


def row(collective: str, size: float, ranks: int, dtype: str, family: str):
    fields = {"op": "collective", "collective": collective, "bytes": size}
    fields |= {"num_gpus": ranks, "dtype": dtype, "family": family}
    return normalise_kernel(fields, "row")


@pytest.fixture(scope="module")
def gpu():
    return load_gpu("h100-sxm")


@pytest.fixture(scope="module")
def got(gpu, phases):
    point = OperatingPoint(gpu.sm_clock_max, gpu.mem_clock, 1e9, 50.0)
    work = phases(*([row(*case)] for case in CASES))
    return jax.tree.map(
        np.asarray, estimator.estimate_once(work, gpu, point, Corrections())
    )


@pytest.mark.parametrize(
    ("name", "block", "owner", "reduces"),
    [
        ("h100-sxm", "all_reduce", "h100-sxm", True),
        ("a100-sxm-40gb", "all_reduce", "a100-sxm-80gb", False),
        ("l4", "all_gather", "pcie", False),
        ("a30", "all_gather", "nvlink", False),
        ("h200-sxm", "all_gather", "h200-sxm", True),
        ("h100-pcie", "all_gather", "nvlink", False),
    ],
)
def test_whose_constants(name: str, block: str, owner: str, reduces: bool):
    links, row = load_gpu(name).links, COSTED_COLLECTIVES.index(block)
    for field in FIELDS:
        carried = np.asarray(getattr(links, field)[row])
        assert carried.tolist() == facts("collective_costs")[owner][block][field], field
    assert links.switch.tolist() == [float(reduces)] * len(COSTED_COLLECTIVES)


def test_unknown_gpu_has_those_of_its_architecture():
    for name, medium, switch in (("h100-pcie", "nvlink", 1.0), ("l4", "pcie", 0.0)):
        card = dataclasses.replace(read_gpu(name), name="mine", corrections=None)
        known = facts("collective_costs")[medium]["all_gather"]["floor"]
        assert card.spec.links.floor[1].tolist() == known
        assert card.spec.links.switch.tolist() == [switch] * len(COSTED_COLLECTIVES)


def test_single_width_has_the_same_constants():
    with jax.enable_x64(False):  # 4.5e11 B/s is less than itself there
        assert dataclasses.replace(read_gpu("h100-sxm")).spec.links.switch[0] == 1


@pytest.mark.slow
def test_time_is_that_of_the_cost_model(got, gpu):
    for phase, (name, size, ranks, dtype, family) in enumerate(CASES):
        kind = as_index([list(links.LINK_KINDS).index(link_kind(name, family))])
        narrow = as_float([BYTES[code(dtype)] < 2])
        arguments = kind, as_float([size]), as_float([ranks]), narrow
        costs = links.link_costs(gpu, kind)
        result = links.link_candidates(*arguments, gpu.link_bandwidth, costs)
        hand = float(links.expected_time(result)[0])
        assert got.phases.time[phase] == pytest.approx(hand, rel=1e-3), name


def test_energy_of_the_link(got):
    link = got.phases.components[:, LAUNCH_COMPONENTS.index("link")]
    per_byte = float(Corrections().energy_link)
    assert link[0] == pytest.approx(7 / 8 * 1e9 * per_byte, rel=1e-3)  # ring
    assert link[-1] == 0.0  # one GPU
    dram = got.phases.components[0, LAUNCH_COMPONENTS.index("dram")]
    assert dram == pytest.approx(
        2 * 7 / 8 * 1e9 * float(Corrections().energy_dram), rel=1e-3
    )


def test_measured_ratios(got):
    time = got.phases.time
    assert time[2] > 1.1 * time[1]  # switches do not add up 8 bits (+26 % measured)
    assert time[4] < 0.6 * time[3]  # one-shot kernels: 6-8 us against 18-19 us
    # 335 of 450 GB/s measured at 512 MiB
    assert 0.7 < got.kernels.utilization[0, -1] < 0.8
