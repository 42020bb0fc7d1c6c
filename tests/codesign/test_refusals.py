"""What searches of designs and of tiles refuse."""

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from refusals import File, Refusal, row

from diffenergy.codesign import Effort, Part, Range, Share, search, tune
from diffenergy.estimator import prepare

from .builders import problem

NAN = math.nan
NORM = {"op": "rmsnorm", "rows": 64, "cols": 4096, "dtype": "bf16"}
ATTENTION = {
    "op": "context_attention", "q_len": 64, "num_heads": 8, "head_dim": 64,
    "dtype": "bf16",
}  # fmt: skip
GEMM = {"op": "gemm", "m": 8, "n": 8, "k": 8, "dtype": "bf16"}
gpt2 = partial(search, "gpt2", "h100-sxm", phase="decode")


def vary(sentence: str, *values: Any, **options: Any) -> Any:
    """A design space of the fields of `gpt2`'s GPU, as `Range` has them."""
    varied = values[0] if isinstance(values[0], dict | list) else Range(*values)
    varied = [varied] if isinstance(varied, Range) else varied
    return row(sentence, gpt2, vary=varied, **options)


def listing(kernel: dict[str, Any]) -> File:
    return File(json.dumps({"name": "x", "kernels": [kernel]}), "x.jsonl")


def goal(sentence: str, **options: Any) -> Any:
    return row(sentence, gpt2, **{"vary": "num_sms", **options})


SPACES = [
    vary("`num_sm` cannot be varied; nearest: num_sms", "num_sm"),
    vary("`xyz` cannot be varied; allowed are num_sms, .. network", "xyz"),
    vary("no legal value; nearest: 132, 150", "num_sms", 140, 145),
    vary("give the lower bound first", "l2_capacity", 2e7, 1e7),
    vary("allowed are finite bounds above 0", "l2_capacity", -1.0, 1e7),
    vary("looks like MiB", "l2_capacity", 20.0, 100.0),
    vary("no legal value", "dram_bandwidth", 1e12, 1.3e12),
    vary("has no value but", "mem_clock"),
    vary("has no value but 0", "tensor_flop_per_cycle_fp4"),
    vary("varied twice", [Range("num_sms"), Range("num_sms")]),
    vary("`process_node` is 'Q7'; known are 28nm", {"process_node": ("Q7",)}),
    vary("`memory` is 'HBM-4'; write HBM4", {"memory": ("HBM-4",)}),
    vary("`memory` is varied without words", {"memory": None}),
    vary("`memory` is varied without words or",
         [Range("memory", words=("HBM4",))] * 2),
    vary("`network` is varied, but no GPU sends", "network"),
    row("`network` is varied, but no GPU sends", search, "gpt2", "h100-sxm",
        vary="network", phase="train", plan="tp=2,dp=4", global_batch=8),
    row("no matrix product has a free tile", search, listing(ATTENTION), "h100-sxm",
        vary="tiles"),
    row("`vary` is missing", gpt2, vary=()),
    goal("`tiles` is varied twice", vary=["tiles", "tiles"]),
    goal("tiles take no bounds", vary={"tiles": (1, 2)}),
    vary("allows 200 to 700 W", "power_cap", 1000, 2000),
    vary("a GPU file refuses 1e+08", "sm_clock_max", 1e8, 2e8),
    vary("`sm_clock_max` is varied", [Range("sm_clock"), Range("sm_clock_max")]),
    vary("`power_cap` is varied", "power_cap", power_limit=300),
    row("nothing is varied; name at least one field", problem, ["attention"], []),
]  # fmt: skip
GOALS = [
    goal("`goals` is 'joules'; allowed are energy, time", goals=["joules"]),
    goal("twice", goals=["energy", "energy"]),
    goal("single metrics", goals=["energy", "edp"]),
    goal("`ttft` is asked for", limits={"ttft": 1.0}),
    row("`energy_per_token` is asked for", search, listing(GEMM), "h100-sxm",
        vary="num_sms", goals=("energy_per_token",)),
    goal("allowed is a number above 0", limits={"area": -1.0}),
    goal("`sm_clock` is a list; give one value", sm_clock=[9e8, 1e9]),
    goal("`limits` names 'speed'; allowed are time, power", limits={"speed": 1}),
    goal("`goals` asks for a cost .. give `price`", goals="cost"),
    goal("`limits['cost']` asks for a cost", limits={"cost": 5}),
    goal("but nothing costs", price=5),
    goal("`price` is 0; allowed is a number above 0", goals="cost", price=0.0),
    goal("`bacth` is no argument", bacth=2),
]  # fmt: skip
PARTS = [
    row("`work` is 3; allowed are a model name", search, 3, vary="num_sms",
        kind=TypeError),
    row("`batch` is given beside a Task", lambda: search(
        prepare("gpt2", phase="decode"), vary="num_sms", batch=2), kind=TypeError),
    row("`weight` is 0; allowed is a number above 0", Part, "gpt2", 0),
    row("gpt2: `power_limit` stands in the request", search,
        [Part("gpt2"), Part("gpt2", request={"power_limit": 300})], vary="num_sms"),
    row("`starts` is 1000; allowed are 1 to 256", Effort, starts=1000),
    row("`share` is 0; allowed is a number above 0", Share, 0.0),
    row("gpt5", search, [Part("gpt2"), Part("gpt5")], vary="num_sms"),
]  # fmt: skip
TILES = [
    row("`plan` is tp=2, but tiles are tuned on one", tune, "gpt2", "h100-sxm",
        phase="decode", tp=2),
    *(
        row("no `gemm` whose tile is free", tune, listing(kernel), "h100-sxm")
        for kernel in (NORM, GEMM | {"tile_m": 64}, GEMM | {"count": 0})
    ),
]  # fmt: skip


@pytest.mark.parametrize("refusal", SPACES + GOALS + PARTS + TILES)
def test_refused(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)
