"""Plans as they are typed, and the hosts that they need."""

from typing import Any

import pytest

from diffenergy.hardware import read_gpu
from diffenergy.plans import Plan, host_of, read_plan


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, None),
        ({"plan": "tp=8,pp=2"}, Plan(tp=8, pp=2)),
        ({"plan": {"tp": 8, "pp": 2}}, Plan(tp=8, pp=2)),
        ({"plan": Plan(tp=8)}, Plan(tp=8)),
        ({"tp": 4}, Plan(tp=4)),
        ({"num_gpus": 4}, Plan(tp=4)),
        ({"tp": 4, "num_gpus": 8}, Plan(tp=4, dp=2)),
        ({"plan": "pp=2", "num_gpus": 8}, Plan(pp=2, dp=4)),
        ({"plan": "dp=2", "tp": 4}, Plan(tp=4, dp=2)),
        ({"plan": "tp=8, ep=4"}, Plan(tp=8, ep=4)),
        ({"plan": "dp=8,ep=8"}, Plan(dp=8, ep=8)),
        ({"num_gpus": 4, "training": True}, Plan(dp=4)),
        (
            {"plan": "tp=2,cp=2,zero=3", "num_gpus": 16, "training": True},
            Plan(tp=2, cp=2, dp=4, zero=3),
        ),
        (
            {"plan": "pp=4,vp=2,software=2024,recompute=full", "training": True},
            Plan(pp=4, vp=2, software=2024.0, recompute="full"),
        ),
    ],
)
def test_plans(given: dict[str, Any], wanted: Plan | None):
    assert read_plan(**given) == wanted


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"plan": "tp"}, "`plan` is 'tp'; give KEY=VALUE"),
        ({"plan": "np=2"}, "unknown key 'np'"),
        ({"plan": "tp=2,tp=2"}, "`tp` twice"),
        ({"plan": "tp=0"}, "`plan` has tp=0"),
        ({"plan": "tp=1.5"}, "`plan` has tp=1.5"),
        ({"plan": {"tp": True}}, "`plan` has tp=True"),
        ({"plan": "tp=2,zero=3"}, "zero=3, which belongs to training"),
        ({"plan": "tp=2,cp=2"}, "cp=2, which belongs to training"),
        ({"plan": "zero=4", "training": True}, "zero=4; allowed are 0 to 3"),
        ({"plan": "schedule=2f2b", "training": True}, "schedule=2f2b; allowed are"),
        ({"plan": "software=24", "training": True}, "software=24; allowed is a year"),
        ({"plan": "vp=2", "training": True}, "virtual stages need a pipeline"),
        ({"plan": "pp=2,vp=2,schedule=1f1b", "training": True}, "schedule=1f1b"),
        ({"plan": "dp=4,ep=3", "training": True}, "ep=3 and etp=1, but"),
        ({"plan": "tp=2", "tp": 2}, "beside `plan`"),
        ({"plan": "tp=2", "num_gpus": 3}, "tp x pp x cp x dp = 2 GPUs"),
        ({"plan": "tp=2,dp=2", "num_gpus": 8}, "tp x pp x cp x dp = 4 GPUs"),
        ({"num_gpus": 0}, "`num_gpus` is 0"),
        ({"plan": "tp=2,ep=3"}, "tp=2 and dp=1 allow 1, 2:"),
        ({"plan": "tp=4,dp=3,ep=6"}, "tp=4 and dp=3 allow 1, 2, 4, 12:"),
        ({"plan": "tp=1000,dp=1000"}, "1,000,000 GPUs"),
    ],
)
def test_what_is_no_plan(given: dict[str, Any], said: str):
    with pytest.raises(ValueError) as raised:
        read_plan(**given)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("gpu", "topology", "size", "rate", "hosts"),
    [
        ("h100-sxm", None, 8, 450e9, None),
        ("h200-sxm", None, 8, 450e9, None),
        ("b200-sxm", None, 8, 900e9, None),
        ("gb300", None, 72, 900e9, None),
        ("l40s", None, 8, None, None),
        ("gb300", "gb200-nvl72", 72, 900e9, 1),
        ("h200-sxm", "dgx-h100-32", 8, 450e9, 32),
        ("v100-sxm-32gb", "dgx1", 8, None, 1),
    ],
)
def test_hosts(
    gpu: str, topology: str | None, size: int, rate: float | None, hosts: int | None
):
    found = host_of(read_gpu(gpu), topology)
    assert (found.size, found.rate, found.hosts) == (size, rate, hosts)


@pytest.mark.parametrize(
    ("topology", "said"),
    [
        ("dgx9", "`topology` is 'dgx9', which is neither"),
        ("dgx1-3", "`topology` is 'dgx1-3', which is neither"),
        ("dgx-h100-0", "`topology` is 'dgx-h100-0'; allowed are 1 to 10,000"),
        ("nothing.toml", "no such file"),
    ],
)
def test_unknown_hosts(topology: str, said: str):
    with pytest.raises(ValueError, match=said):
        host_of(read_gpu("h100-sxm"), topology)


def test_a_host_says_what_it_can_hold():
    host = host_of(read_gpu("h100-sxm"), "dgx-h100-2")
    host.check(Plan(tp=8, dp=2))
    with pytest.raises(ValueError, match="has 32 GPUs, but `topology` dgx-h100-2 has"):
        host.check(Plan(tp=8, dp=4))
    host.check(Plan(tp=16))  # over the network
    with pytest.raises(ValueError, match="the largest such plan is tp=8"):
        host_of(read_gpu("l40s")).check(Plan(tp=16))


@pytest.mark.parametrize(
    ("plan", "far"), [("tp=8,pp=4", 3), ("tp=4,pp=4", 1), ("tp=2,pp=4", 0), ("pp=9", 1)]
)
def test_stages_fill_hosts(plan: str, far: int):
    shape = read_plan(plan)
    assert shape is not None
    host = host_of(read_gpu("h100-sxm"))
    host.check(shape)
    assert host.far(shape) == far


def test_stages_in_hosts_without_a_network():
    host = host_of(read_gpu("l40s"))
    host.check(Plan(tp=4, pp=2))
    with pytest.raises(ValueError, match="the largest such plan is tp=4,pp=2"):
        host.check(Plan(tp=4, pp=3))
