"""What requests of estimates cannot ask for, and what no GPU has."""

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from refusals import File, Refusal, row

import diffenergy as de
from diffenergy.results import Infeasible

KERNEL = dict(op="gemm", m=512, n=512, k=512, dtype="bf16")
LISTING = File(json.dumps({"name": "one", "kernels": [KERNEL]}), "one.jsonl")
gpt2 = partial(de.estimate, "gpt2", "l4")
sensitivity = partial(de.sensitivity, LISTING, "h100-sxm")


def llama(sentence: str, **options: Any) -> Any:
    usual: dict[str, Any] = dict(batch=8, input_len=64, phase="decode")
    return row(sentence, de.estimate, "llama-3.1-8b", "h100-sxm", **usual | options)


def training(sentence: str, model: str, plan: str | None, **options: Any) -> Any:
    usual: dict[str, Any] = dict(phase="train", input_len=1024, plan=plan)
    return row(sentence, de.estimate, model, "h100-sxm", **usual | options)


def too_large(sentence: str, model: str, gpu: str, **options: Any) -> Any:
    sentence = f"`require_fit` .. {sentence}"
    return row(sentence, de.estimate, model, gpu, require_fit=True,
               kind=Infeasible, **options)  # fmt: skip


def events(text: str) -> File:
    return File(f"[[events]]\n{text}", "events.toml")


def estimate_at(sm_clock: float, mem_clock: float):
    """gpt2 at clocks that are no board's."""
    work = de.load_model("gpt2").workload(input_len=8, phase="prefill")
    point = de.OperatingPoint(sm_clock, mem_clock, 72.0)
    return de.estimate(work, de.load_gpu("l4"), point)


FAILING: dict[str, Any] = dict(mtbf=0.1, restart=600.0, checkpoint_time=5.0)
SETTINGS = [
    row("`point.mem_clock` is nan; give it in Hz", estimate_at, 1.4e9, math.nan),
    row("`sm_clock` is 5000 MHz; l4 allows 210 to 2040 MHz.", gpt2, sm_clock=5e9),
    row("`mem_clock` is 400 MHz; l4 allows 405 to 6251 MHz.", gpt2, mem_clock=4e8),
    row("`power_limit` is 73 W; l4 allows", gpt2, power_limit=[72, 73]),
    row("`sm_clock` is 0.0015 MHz; .. if that is MHz, give 1.5e+09.", gpt2,
        sm_clock=1500),
    row("`sm_clock` is 1.5e-06 MHz; .. if that is GHz, give 1.5e+09.", gpt2,
        sm_clock=1.5),
    row("`sm_clock` is 1 MHz; .. ; if that is kHz, give 1e+09", gpt2, sm_clock=1e6),
    row("`power_limit` is 0.06 W; .. ; if that is kW, give 60.", gpt2,
        power_limit=0.06),
    row("`temperature` is 96; allowed are 0 to 95 C", gpt2, temperature=96.0),
    row("`sm_clock` is 5000 MHz; l4", de.dvfs.plan, "gpt2", "l4", sm_clock=5e9),
    row("`sm_clock` is 5000 MHz; l4", de.codesign.search, "gpt2", "l4", sm_clock=5e9,
        vary="num_sms"),
    row("`output_len` is 4, but the phase prefill generates nothing", gpt2,
        phase="prefill", output_len=4),
    row("`kv_dtype` is given, but bert-base has no KV cache", de.estimate, "bert-base",
        kv_dtype="fp8"),
    row("`tokens` is 1e+09, but the phase generate", gpt2, tokens=1e9),
    row("power over time of stages is known in training alone", gpt2, plan="pp=2",
        phase="decode", power_step=0.1),
    row("`smooth` is 'ceiling=1'; give floor=SHARE", gpt2, smooth="ceiling=1"),
    row("`smooth` has hysteresis without down", gpt2, smooth="up=1,hysteresis=1"),
    row("`smooth` has floor=0.8, 58 W of a board, above its power limit of 50 W; give "
        "at most 0.69.", gpt2, smooth="floor=0.8", power_limit=50),
    row("`power_step` is 10, but power over time is of", de.estimate, "gpt2",
        "h100-sxm", phase="train", plan="pp=2,dp=2", global_batch=8, input_len=256,
        power_step=10.0),
    row("`events` interrupt the steps of a training, but the phase is generate", gpt2,
        events=events("every_s = 9\nlasts_s = 1")),
    row("events.toml: `events[0]`: `kind` is 'rest'; allowed are pause, work.", gpt2,
        events=events("every_s = 9\nlasts_s = 1\nkind = 'rest'")),
    row("`events` take 111 % of the time; make `every_s` longer", gpt2,
        events=events("every_s = 9\nlasts_s = 10")),
    row("`events` is empty; give one [[events]]", gpt2,
        events=File("events = []", "events.toml")),
    row("`tokens` is '15T'; allowed is a number above 0", gpt2, tokens="15T",
        phase="train"),
    row("`goodput` is given without `tokens`", gpt2, phase="train", goodput=0.9),
    row("`goodput` is 1.1; allowed is a share above 0 up to 1", gpt2, phase="train",
        tokens=1e9, goodput=1.1),
    row("`goodput` is given beside `mtbf`", gpt2, phase="train", tokens=1e9,
        goodput=0.9, **FAILING),
    row("`mtbf` is given without `restart`", gpt2, phase="train", tokens=1e9, mtbf=9.0),
    row("`restart` is given without `mtbf`", gpt2, phase="train", restart=9.0),
    row("fails every M = 360 s, .. `restart` takes 600 s: the run would never finish",
        gpt2, phase="train", tokens=1e9, kind=de.Infeasible, **FAILING),
    row("a step of resnet-50 reads no", de.estimate, "resnet-50", tokens=1e9,
        phase="train"),
]  # fmt: skip
MEMORY = [
    row("`require_fit` is given, but the listing", de.estimate, LISTING,
        require_fit=True),
    too_large("it fits with dtype fp8 or tp=2.", "llama-3.1-70b", "h100-sxm"),
    too_large("input length up to 1859, checkpointing or tp=2.", "llama-3.1-8b",
              "b300", phase="train", batch=16, input_len=4096),
    too_large("it fits with dtype int4 or tp=4.", "llama-3.1-70b", "l40s"),
    too_large("no batch, length or type alone changes that", "llama-3.1-70b", "l40s",
              stack="eager"),
    too_large("it fits with dtype int4 or tp=2.", "qwen3-30b-a3b", "l4",
              dtype="mxfp8", input_len=8),
    too_large("it fits with tp=2.", "gpt-oss-20b", "rtx-3080-ti"),
    too_large("take a larger GPU.", "llama-3.1-405b", "l4"),
    too_large("it fits with tp=8.", "llama-3.1-70b", "l4"),
    too_large("KV dtype fp8 or tp=2.", "llama-2-7b", "l4", batch=40, kv_dtype="bf16"),
]  # fmt: skip
PLANS = [
    llama("microbatch in the plan", plan="tp=2", phase="train"),
    llama("serving alone", plan="tp=2", stack="eager"),
    llama("`tp` is 3, which does not divide the 32 attention heads .. that does is 2.",
          tp=3),
    llama("`plan` has tp=3, which does not divide the 32", plan="tp=3"),
    llama("`num_gpus` is 3, which does not divide the 32", num_gpus=3),
    llama("`tp` is 3, which does not divide the 32", num_gpus=6, tp=3),
    llama("no experts", plan="tp=2,ep=2"),
    llama("`batch` is 8, which dp=3 does not divide", plan="dp=3"),
    llama("is of one GPU", topology="dgx-h100"),
    llama("`num_gpus` is 2", num_gpus=2, plan="tp=4"),
    *(row("is no language model", de.estimate, x, tp=2) for x in ("vit-base",
      "bert-base")),
    training("`plan` has tp=5, which does not divide", "gpt2", "tp=5"),
    training("gpt2 has 12 layers", "gpt2", "pp=16"),
    training("gpt2 has no experts", "gpt2", "dp=4,ep=2"),
    training("`global_batch` is 6, which dp=4", "gpt2", "dp=4", global_batch=6),
    training("a multiple of pp", "gpt2", "pp=2,vp=2", global_batch=3),
    training("`batch` is given beside a plan", "gpt2", "dp=2", batch=2),
    training("`accumulation` is given", "gpt2", "dp=2", accumulation=2),
    training("recompute=full", "gpt2", "dp=2", checkpointing=True),
    training("`lora` is 8 beside", "gpt2", "pp=2,schedule=zb-h1", lora=8),
    training("has experts, whose adapters", "mixtral-8x7b", "dp=2", lora=8),
    training("`plan` has tp=16, but dgx-h100 has 8 GPUs", "gpt2", "tp=16"),
    training("`tp` is 16, but dgx-h100 has 8 GPUs", "gpt2", None, tp=16),
    training("`plan` has 16 GPUs", "gpt2", "dp=16", topology="dgx-h100"),
    training("tp x pp x cp x dp = 4 GPUs", "gpt2", "tp=2", num_gpus=5),
    training("cp=3 cannot divide", "gpt2", "cp=3"),
    training("only `--phase train`", "gpt2", None, phase="prefill", global_batch=2),
    training("`plan` has ep=3, which does not divide", "mixtral-8x7b", "dp=3,ep=3"),
    training("qwen3.5-9b has only prefill", "qwen3.5-9b", "dp=8"),
    training("no language model", "resnet-50", "dp=8", input_len=None),
    row("network between hosts .. is not known", de.estimate, "gpt2", "l40s",
        plan="dp=16", phase="train", input_len=1024),
]  # fmt: skip
SWEEPS = [
    row("a10 allows 210 to 1695", de.sweep, "gpt2", "a10", batch=[1, 2],
        sm_clock=18e8),
    row("not a known GPU", de.sweep, "gpt2", ["a10", "a11x"]),
    row("`sensitivity` is given to a sweep", de.sweep, "gpt2", batch=[1, 2],
        sensitivity=True),
]  # fmt: skip
SENSITIVITY = [
    row("`of` has 'power'; allowed are time and ener", sensitivity,
        of=("time", "power")),
    row("`of` is empty; give time or energy", sensitivity, of=()),
    row("`of` is a int; allowed is str or Sequence", sensitivity, of=3,
        kind=TypeError),
    row("`sensitivity` is given with several setting", sensitivity,
        sm_clock=[1e9, 1.2e9]),
]  # fmt: skip


@pytest.mark.parametrize("refusal", SETTINGS + MEMORY + PLANS + SWEEPS + SENSITIVITY)
def test_refused(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)
