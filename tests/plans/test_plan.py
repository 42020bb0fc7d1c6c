"""Plans as they are typed, and the hosts that they need."""

from typing import Any

import pytest

from diffenergy.hardware import read_gpu
from diffenergy.plans import Plan, host_of, read_plan


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, None),
        ({"plan": {"tp": 8, "pp": 2}}, Plan(tp=8, pp=2)),
        ({"plan": Plan(tp=8)}, Plan(tp=8)),
        ({"num_gpus": 4}, Plan(tp=4)),
        ({"tp": 4, "num_gpus": 8}, Plan(tp=4, dp=2)),
        ({"plan": "pp=2", "num_gpus": 8}, Plan(pp=2, dp=4)),
        ({"plan": "dp=2", "tp": 4}, Plan(tp=4, dp=2)),
        ({"plan": "tp=8, ep=4"}, Plan(tp=8, ep=4)),
        ({"num_gpus": 4, "training": True}, Plan(dp=4)),
        ({"plan": "tp=2,cp=2,zero=3", "num_gpus": 16, "training": True},
         Plan(tp=2, cp=2, dp=4, zero=3)),
        ({"plan": "pp=4,vp=2,software=2024,recompute=full", "training": True},
         Plan(pp=4, vp=2, software=2024.0, recompute="full")),
    ],
)  # fmt: skip
def test_plans(given: dict[str, Any], wanted: Plan | None):
    assert read_plan(**given) == wanted


@pytest.mark.parametrize(
    ("gpu", "topology", "size", "rate", "hosts"),
    [
        ("b200-sxm", None, 8, 900e9, None), ("l40s", None, 8, None, None),
        ("gb300", None, 72, 900e9, None), ("gb300", "gb200-nvl72", 72, 900e9, 1),
        ("h200-sxm", "dgx-h100-32", 8, 450e9, 32),
        ("v100-sxm-32gb", "dgx1", 8, None, 1),
    ],
)  # fmt: skip
def test_hosts(gpu: str, topology: str | None, size: int, rate, hosts):
    result = host_of(read_gpu(gpu), topology)
    assert (result.size, result.rate, result.hosts) == (size, rate, hosts)


@pytest.mark.parametrize(
    ("plan", "far"), [("tp=8,pp=4", 3), ("tp=4,pp=4", 1), ("tp=2,pp=4", 0), ("pp=9", 1)]
)
def test_stages_fill_hosts(plan: str, far: int):
    shape = read_plan(plan)
    assert shape is not None
    host = host_of(read_gpu("h100-sxm"))
    host.check(shape)
    host_of(read_gpu("h100-sxm"), "dgx-h100-4").check(shape)
    assert host.far(shape) == far
