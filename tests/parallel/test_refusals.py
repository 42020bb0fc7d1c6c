"""What searches of plans and clocks of their stages refuse."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from refusals import Refusal, row

from diffenergy import parallel
from diffenergy.results import Infeasible

search = partial(parallel.plan, "gpt2", "h100-sxm")


def plan_search(
    sentence: str, num_gpus: Any = 8, global_batch: Any = 8, **options: Any
) -> Any:
    return row(
        sentence, search, num_gpus=num_gpus, global_batch=global_batch, **options
    )


def clocks(sentence: str, plan: str = "pp=2", **options: Any) -> Any:
    return row(
        sentence, parallel.stage_clocks, "gpt2", "a40", plan, input_len=128, **options
    )


SEARCHES = [
    plan_search("`num_gpus` is", 0),
    plan_search("`global_batch` is 0", global_batch=0),
    plan_search("time, energy", objective="carbon"),
    plan_search("`max_memory` is -1", max_memory=-1.0),
    plan_search("no plan of gpt2 divides", plan="tp=5"),
    plan_search("`global_batch` 1, which no plan of gpt2 divides .. tp=8,pp=8 .. `tp`",
                64, 1),
    plan_search("unknown key", plan="tq=5"),
    plan_search("gpt2 has no experts", plan="ep=2"),
    plan_search("mood", sensitivity=["mood"]),
    plan_search("dgx-h100", 64, 64, topology="dgx-h100"),
    plan_search("`max_power` is 10 W .. the least is .. at 345 MHz", 2, 2,
                max_power=10.0, input_len=256, kind=Infeasible),
    row("resnet-50", parallel.plan, "resnet-50", "h100-sxm", num_gpus=8,
        global_batch=8),
]  # fmt: skip
CLOCKS = [
    clocks("12 layers; give at most as many stages", "pp=20", topology="dgx-a100-4"),
    clocks("`max_slowdown` is .. 1000 %", max_slowdown=50.0),
    clocks("`granularity` is 'gpu'; allowed are", granularity="gpu"),
    clocks("`node_power` is 0 .. above 0", node_power=0.0),
    clocks("`node_power` .. `deadline`", node_power=9e3, deadline=3.0),
    clocks(
        "`deadline` is 0.001 s, which no clocks keep; the least is",
        deadline=0.001,
        kind=Infeasible,
    ),
    clocks("a stage from 0 to 1", straggler=(2, 0.1)),
    clocks("above 0 to 1000 %", straggler=(1, 0.0)),
    clocks("nearest: 1230, 1245 MHz", sm_clock=[1.234e9]),
    clocks("give at most 2500", global_batch=9000),
]


@pytest.mark.parametrize("refusal", SEARCHES + CLOCKS)
def test_refused(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)
