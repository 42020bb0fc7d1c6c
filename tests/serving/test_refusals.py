"""What servers, loads, traces and measured tables of servers refuse."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from refusals import File, Refusal, row

from diffenergy.results import Infeasible
from diffenergy.serving import (
    Load,
    apart,
    deploy,
    fit,
    search,
    simulate,
    steady_state,
    sweep,
)

from .test_rows import TABLE
from .test_trace import AZURE, MOONCAKE

MODEL, BIG = "qwen3-0.6b", "llama-3.1-70b"
qwen = partial(deploy, MODEL, "h100-sxm")
steady = partial(steady_state, MODEL, "h100-sxm")
pools = partial(apart, MODEL, "h100-sxm")
RATE = Load(rate=1)
TRACE: dict[str, Any] = {"arrival_s": [0, 2], "input_len": [1, 1], "output_len": [1, 1]}


def columns(sentence: str, **options: Any) -> Any:
    return row(sentence, simulate, TRACE | options, MODEL)


def table(sentence: str, old: str, new: str) -> Any:
    assert old in TABLE
    return row(sentence, fit, File(TABLE.replace(old, new)))


def trace(sentence: str, text: str) -> Any:
    return row(sentence, simulate, File(text, "trace"), MODEL)


OPTIONS = [
    row("`power_limit` has 2 values; a server takes one value",
        qwen, power_limit=[400, 500]),
    row("`power_limit` is a str; allowed is int or float",
        qwen, power_limit="x", kind=TypeError),
    row("`power_limit` is 1 W; h100-sxm allows", qwen, power_limit=1.0),
    row("`optimise` is no .. (did you mean `optimize`?)", steady, RATE, optimise=1),
    row("`optimise` is no .. allowed are .. changes", qwen, RATE, optimise=1),
    row("`attention_dp` is 2, but qwen3-0.6b has no experts", qwen, attention_dp=2),
    row("`attention_dp` is 3, which does not divide `tp` 8",
        deploy, "deepseek-v3", "b200-sxm", tp=8, attention_dp=3),
    row("`num_gpus` is 3, which does not divide", qwen, num_gpus=3),
    row("`tp` is 3, which does not divide", qwen, num_gpus=6, tp=3),
    row("`ep` is 4 beside `attention_dp` 8",
        deploy, "deepseek-v3", "b200-sxm", tp=8, ep=4, attention_dp=8),
    row("`sensitivity` has 'accept', but the load has none",
        steady, RATE, sensitivity=["accept"]),
    row("`accept` is missing", qwen, speculative="eagle"),
    row("`draft_tokens` is given, but nothing drafts", steady, draft_tokens=2),
    row("`speculative` is 'mtp', but qwen3-0.6b states no layer",
        qwen, speculative="mtp", accept=0.8),
    row("`dtyp` is no .. (did you mean `dtype`?)",
        simulate, TRACE, MODEL, dtyp=1),
    # 80 layers x 8 heads x 128 x 2 x 2 B a token; 85.9e9 B of memory
    row("not one request of llama-3.1-70b fits h100-sxm: weights 141.1 GB + 2 GB aside "
        "+ 0.2 GB for 640 tokens, 0.9 of the memory is 77.3 GB; it fits with tp=2",
        deploy, BIG, "h100-sxm", RATE, kind=Infeasible),
    row("`engine` is 'vlm'; allowed are vllm", sweep, MODEL, None, RATE,
        engine=["vlm"]),
    row("`engine_changes` has 'untund'; allowed are .. untuned",
        qwen, RATE, engine_changes={"untund": 1.0}),
    row("`engine_changes` has untuned=-1; allowed is a number from 0 on",
        qwen, RATE, engine_changes={"untuned": -1.0}),
    row("`memory_fraction` is 0.5: not one request",
        deploy, BIG, "h100-sxm", RATE, memory_fraction=0.5, kind=Infeasible),
]  # fmt: skip
LOADS = [
    row("`ratte` is no .. (did you mean `rate`?)", steady, {"ratte": 3}),
    row("`zzz` is no .. allowed are .. cached_len", Load, rate=3, zzz=1),
    row("`prefix_hit` is 1; allowed is a share from 0 to below", Load, prefix_hit=1.0),
    row("`prefix_hit` is 0.9, but the last token .. give at most 0.8", Load, rate=1,
     input_len=5, prefix_hit=0.9),
    row("`prefix_hit` is given beside `cached_len`", Load, rate=1, cached_len=5,
     prefix_hit=0.5),
    row("`kv_offload` is given without `pause`", Load, rate=1, kv_offload=1e9),
    row("`rate` is missing", Load, slo_ttft=1),
    row("`slo_tpot` is 10 ms, but requests of one output token", Load, rate=5,
        output_len=1, slo_tpot=0.01),
    *(row(f"`output_len` is '{text}'", Load, output_len=text) for text in ("", "0",
     "lognormal:256", "normal:1:2", "uniform:9:3")),
]  # fmt: skip
POOLS = [
    row("`num_gpus` is 1 beside `apart`; give `workers`", pools, RATE, num_gpus=1),
    row("`schedule` is 'chunked' beside `apart`", pools, RATE, schedule="chunked"),

    row("`pause` is 2 beside `apart`", pools, Load(rate=1, pause=2)),
    row("`speculative` is 'eagle' beside `apart`",
        pools, Load(rate=1), speculative="eagle", accept=0.5),
    row("`rate` is missing, and so is `concurrency`", pools, Load(max_batch=4)),
    row("`prefill` has 'kv_dtype', but the KV cache goes from one pool to",
        pools, RATE, prefill={"kv_dtype": "fp8"}),
    row("`decode` has 'dtype', but both pools have the same weights",
        pools, RATE, decode="tp=1,dtype=fp8"),
    row("`prefill` has 'max_batch', which is no key of a pool; allowed are gpu",
        pools, RATE, prefill={"max_batch": 8}),
    row("`decode` has 'tp'; give KEY=VALUE", pools, RATE, decode="tp"),
    row("`decode tp` is 'x'; allowed is a whole number", pools, RATE, decode="tp=x"),
    row("`decode`: `workers` is 0; allowed is a whole", pools, RATE,
        decode={"workers": 0}),
    row("`prefill` is a int; allowed is dict", pools, RATE, prefill=3, kind=TypeError),
    row("prefill pool: not one request of llama-3.1-70b fits h100", apart, BIG,
        "h100-sxm", RATE, kind=Infeasible),
    row("but the prefill pool of 1 worker sustains less than", pools, Load(rate=400),
        prefill={"workers": 1}, kind=Infeasible),
    row("but the decode pool of 1 worker sustains less than", pools, Load(rate=1000),
        decode={"workers": 1, "max_batch": 8}, kind=Infeasible),
    row("`slo_ttft` is 200 ms, which no number of prefill workers keeps", pools,
        Load(rate=1, slo_ttft=0.2), kind=Infeasible),
    row("`slo_tpot` is 1 ms, less than one step", pools,
        Load(rate=1, slo_tpot=1e-3), kind=Infeasible),
]  # fmt: skip
result = partial(search, MODEL, ["h100-sxm"])
LIMITED = {"rate": 5, "slo_tpot": 0.02}
SEARCHES = [
    row("`rate` is missing, and so is `concurrency`", result, {"max_batch": 8}),
    row("`slo_tpot` is missing, and so is `slo_ttft`", result, {"rate": 5}),

    row("`tp` is 3; a search takes powers of two up to the 8 GPUs", result, LIMITED,
        tp=3),
    row("`gpu` is 'h100-sxm@0'; give NAME or NAME@COUNT", search, MODEL,
        ["h100-sxm@0"], LIMITED),
    row("`num_gpus` is a list", result, LIMITED, num_gpus=[1, 2]),
    row("`gpu_price` has 'b200-sxm', which is not on offer; `gpu` has h100", result,
        LIMITED, gpu_price={"b200-sxm": 4}),
    row("`gpu_price` has no h100-sxm; the search for least cost", result, LIMITED,
        objective="cost"),
    row("`objective` is 'price'; allowed are energy, cost, gpus", result, LIMITED,
        objective="price"),
    row("`optimize` is no argument of `search`", result, LIMITED, optimize="energy"),
    row("`sensitivity` is given with several servers", sweep, MODEL, None,
        {"rate": 5}, tp=[1, 2], sensitivity=["rate"]),
    # tp=3 divides nothing: the other one's limit is what helps
    row("not one request of llama-3.1-70b fits h100-sxm", sweep, BIG, ["h100-sxm"],
        LIMITED, tp=[3, 1], kind=Infeasible),
    row("not one request of llama-3.1-70b fits h100-sxm", search, BIG, ["h100-sxm"],
        LIMITED, tp=1, kind=Infeasible),
]  # fmt: skip
SLOW_SEARCHES = [
    row("`slo_tpot` is 0.1 ms, which no deployment on offer keeps; the least 95th",
        result, {"rate": 5, "slo_tpot": 1e-4}, tp=1, kind=Infeasible),
    row("`num_gpus` is 1, with which no deployment keeps the limits; the least is",
        result, {"rate": 500, "slo_tpot": 0.02}, tp=1, num_gpus=1, kind=Infeasible),
    row("`power_budget` is 50 W, which no deployment on offer keeps; the least is",
        result, LIMITED, tp=1, power_budget=50.0, kind=Infeasible),
]  # fmt: skip
TRACES = [
    row("`attention_dp` is 2 beside `trace`", simulate, TRACE, MODEL, attention_dp=2),
    row("`pause` is given beside `trace`", simulate, TRACE, MODEL, load={"pause": 1}),
    columns("request 2 goes back in time", arrival_s=[2, 1]),
    columns("request 2: `output_len` is 0", output_len=[1, 0]),
    columns("request 2: `output_len` is 1.5; allowed are who", output_len=[1, 1.5]),
    columns("request 2 has 42000 tokens", input_len=[8, 40_000], output_len=[8, 2000]),
    row("`rate` is given beside `trace`", simulate, TRACE, MODEL, None, Load(rate=1)),
    trace("no column `output_len`", "arrival_s,input_len\n0,8\n"),
    trace("trace, line 4 goes back in time", AZURE.replace("18:15:51,", "18:15:50,")),
    trace(
        "line 4: `TIMESTAMP` is 'noon'", AZURE.replace("2023-11-16 18:15:51", "noon")
    ),
    trace(
        "line 4: `ContextTokens` is nan; allowed are nu", AZURE.replace("879", "many")
    ),
    trace("no column `GeneratedTokens`", AZURE.replace("Generated", "Made")),
    trace("line 3 is no JSON object", MOONCAKE + "[1]"),
    trace("line 2: `input_length` is 0", MOONCAKE.replace("7234", "0")),
    trace("no column `output_length`", MOONCAKE.replace("output_length", "out")),
    trace(
        "line 2: `output_length` is nan", MOONCAKE.replace(', "output_length": 794', "")
    ),
]
TABLES = [
    table("line 2: `engine` is 'vlm'", "vllm,16", "vlm,16"),
    table("line 2: `tpot_s` is 'fast'", "0.0050", "fast"),
    table("line 3: `output_len` is empty", "256,128,0.0062", "256,,0.0062"),
    table("line 2: `rate` is missing", "vllm,16,15.9", "vllm,,15.9"),
    table("`gpu` is no column", "gpu,model", "card,model"),
]


PLAIN = OPTIONS + LOADS + POOLS + SEARCHES + TRACES + TABLES


@pytest.mark.parametrize("refusal", PLAIN)
def test_refused(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("refusal", SLOW_SEARCHES)
def test_what_no_deployment_keeps(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)
