"""Published training steps: words of their tables as columns of ours."""

import pytest

from calibration.importers import training
from diffenergy import measurements

HEAD = (
    "row,source,model,gpu,num_gpus,precision,tp,pp,dp,global_batch,seq_len,"
    "step_time_s,overlap,framework,note\n"
)


def test_rows_become_plans(write, tmp_path):
    """Prefetching shards is overlapping dp; the program tells stack, attention and
    sums; the source, else the program, the year; a note what was off or not timed."""
    rows = (
        "0,nemo-24.07,gpt2,h100-sxm,8,bf16,1,1,8,64,2048,1.0,fsdp-prefetch,"
        "composer-fsdp/pure,",
        "1,arxiv-2104.04473,gpt2,h100-sxm,8,bf16,1,1,8,64,2048,1.0,unstated,megatron,"
        "x (w/o MTP)",
        "2,own,gpt2,h100-sxm,8,bf16,1,1,8,64,2048,1.0,none,torchtitan-eager,"
        "memory and plan only",
    )
    tables = training.read(write(HEAD + "\n".join(rows) + "\n", "training.csv").parent)
    tables["training"].to_csv(tmp_path / "training.csv", index=False)
    table = measurements.read([str(tmp_path / "training.csv")])
    first, second, third = table.plan
    assert (first.stack, first.family, first.plan.sums) == ("eager", "fa1", "bf16")
    assert first.plan.overlap == "dp" and first.mtp
    assert first.plan.software == pytest.approx(2024 + 6.5 / 12)
    assert (second.stack, second.family, second.plan.sums) == ("serving", "", "fp32")
    assert second.plan.overlap == "tp+dp" and not second.mtp
    assert second.plan.software == pytest.approx(2021 + 3.5 / 12)
    assert (third.stack, third.family, third.plan.software) == ("eager", "sdpa", 2025)
    assert table.skipped.tolist() == ["", "", "no time is given"]
    raw = write(HEAD + rows[0] + "\n", "raw.csv")
    assert "overlap=fsdp-prefetch; allowed" in measurements.read([str(raw)]).skipped[0]
