"""What is no plan, and what plans and machines cannot hold."""

from pathlib import Path
from typing import Any

import pytest
from refusals import Refusal, row

import diffenergy as de
from diffenergy.hardware import read_gpu
from diffenergy.plans import Inference, Plan, host_of, pipeline_layout, read_plan
from diffenergy.plans._pipeline import order
from diffenergy.workload import ModelShare, ModelSplit

from .test_shares import language_model
from .test_training_shares import decoder, step

H100, L40S = read_gpu("h100-sxm"), read_gpu("l40s")


def read(sentence: str, plan: Any = None, **options: Any) -> Any:
    return row(sentence, read_plan, plan, **options)


def training(sentence: str, plan: Any) -> Any:
    return read(sentence, plan, training=True)


def share(sentence: str, name: str, split: ModelSplit, **options: Any) -> Any:
    """A training step of a GPU of that share, to which no plan leads."""
    return row(sentence, step, name, ModelShare(split), **options)


PLANS = [
    read("`plan` is 'tp'; give KEY=VALUE", "tp"),
    read("unknown key 'np'", "np=2"),
    read("`tp` twice", "tp=2,tp=2"),
    read("`plan` has tp=0", "tp=0"),
    read("`plan` has tp=True", {"tp": True}),
    read("zero=3, which belongs to training", "tp=2,zero=3"),
    training("cp_exchange=ring and cp=1", "dp=2,cp_exchange=ring"),
    read("cp=2, which belongs to training", "tp=2,cp=2"),
    read("beside `plan`", "tp=2", tp=2),
    read("tp x pp x cp x dp = 2 GPUs", "tp=2", num_gpus=3),
    read("`num_gpus` is 0", num_gpus=0),
    read("tp=4 and dp=3 allow 1, 2, 4, 12:", "tp=4,dp=3,ep=6"),
    read("1,000,000 GPUs", "tp=1000,dp=1000"),
    training("zero=4; allowed are 0 to 3", "zero=4"),
    training("schedule=2f2b; allowed are", "schedule=2f2b"),
    training("software=24; allowed is a year", "software=24"),
    training("virtual stages need a pipeline", "vp=2"),
    training("schedule=1f1b", "pp=2,vp=2,schedule=1f1b"),
    training("ep=3 and etp=1, but", "dp=4,ep=3"),
    training("recompute=norm+norm; allowed are none,", "recompute=norm+norm"),
    training("bf16_layers=-1; allowed is a whole number", "bf16_layers=-1"),
    training("sequence=yes; allowed are on, off", "tp=2,sequence=yes"),
    training("dispatch=int4; allowed are plain, bf16, fp8", "dispatch=int4"),
    training("schedule=dualpipe .. give an even pp", "pp=3,schedule=dualpipe"),
    training("ep=1, so that there is none", "overlap=ep+dp"),
    training("pp=2 and vp=1; give", "pp=2,dp=2,ep=2,overlap=ep+dp"),
    training("recompute=full, which runs", "dp=2,ep=2,overlap=ep+dp,recompute=full"),
]
HOSTS = [
    row("`topology` is 'dgx9', which is neither", host_of, H100, "dgx9"),

    row("`topology` is 'dgx-h100-0'; allowed are 1 to 10,000",
        host_of, H100, "dgx-h100-0"),
    row("no such file", host_of, H100, "nothing.toml"),
    row("has 32 GPUs, but `topology` dgx-h100-2 has",
        host_of(H100, "dgx-h100-2").check, Plan(tp=8, dp=4)),

    row("the largest such plan is tp=4,pp=2", host_of(L40S).check, Plan(tp=4, pp=3)),
    row("has 16 GPUs, but `topology` dgx1 has 8", de.estimate, "gpt2",
        "v100-sxm-32gb", plan="tp=4,dp=4", batch=4, topology="dgx1"),
]  # fmt: skip
SHARES = [
    row("a replica has one; give a larger", de.estimate, "mixtral-8x7b", "h100-sxm",
        phase="train", plan="dp=8,ep=8,overlap=ep+dp", global_batch=8),
    row("a replica has 3 micro-batches, of which half", de.estimate, "gpt2",
        "h100-sxm", phase="train", plan="pp=2,schedule=dualpipe", global_batch=3),
    row("`plan` has hosts=3 .. in 2 hosts; give a number that divides", de.estimate,
        "mixtral-8x7b", "h100-sxm", phase="train", plan="tp=2,dp=8,ep=8,etp=2,hosts=3",
        topology="dgx-h100-2", global_batch=16),
    row("`plan` has bf16_layers=2, but `dtype` is bf16; give a type below 16 bit",
        de.estimate, "gpt2", phase="train", plan="bf16_layers=2"),
    row("bf16_layers=6, first and last, but gpt2 has 12 layers; give at most 5",
        de.estimate, "gpt2", phase="train", dtype="fp8", plan="bf16_layers=6"),
    row("bf16_layers=1 beside `lora`", de.estimate, "llama-3.1-8b", phase="train",
        dtype="fp8", plan="bf16_layers=1", lora=8),
    row("`plan` has pp=33, but .. 32 layers", Inference, language_model("llama-3.1-8b"),
        Plan(pp=33)),
    row("does not divide the 128 experts", Inference, language_model("qwen3-30b-a3b"),
        Plan(dp=3, ep=3)),
    share("`tp` is 3, which does not divide the 32", "llama-3.1-8b", ModelSplit(3)),
    share("`cp` is 3, which needs attention 'flash'", "llama-3.1-8b", ModelSplit(cp=3)),
    share("these are 'eager'", "llama-3.1-8b", ModelSplit(cp=2), attention="eager"),
    share("`tp` is 8, which does not divide the 12 tokens", "llama-3.1-8b",
          ModelSplit(8, sequence=True), batch=1, input_len=12),
    share("`ep` is 3, which does not divide the 8", "mixtral-8x7b", ModelSplit(ep=3)),
    share("`etp` is 3", "mixtral-8x7b", ModelSplit(2, etp=3)),
    share("`checkpointing` is given", "gpt2", ModelSplit(), recompute="selective",
          checkpointing=True),
    share("`dtype` is 'mxfp8', but a training", "llama-3.1-8b", ModelSplit(),
          dtype="mxfp8", stack="eager"),
    row("`recompute` is given",
        decoder("gpt2").listings, phase="prefill", recompute="full"),
    *(
        row("`split` is", pipeline_layout, (0,) * 5, Plan(pp=2), "x", split=split)
        for split in ((4, 2), (5,), (6, -1))
    ),
    row("needs a multiple of pp", order, "interleaved", 4, 6, 2),
]  # fmt: skip


@pytest.mark.parametrize("refusal", PLANS + HOSTS + SHARES)
def test_refused(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)
