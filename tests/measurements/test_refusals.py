"""What measured tables, logs of tools and files to write refuse."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from refusals import File, Refusal, row

from diffenergy.measurements import read, read_log
from diffenergy.measurements.importers import importers

from .builders import MONITOR, SMI, carbon, run, sample, scrape

GEMM = "gpu,op,m,n,k,dtype,time_us\n"


def runs(path: str, **options: Any):
    read([path], **options)


def table(sentence: str, text: str | bytes, name: str = "runs.csv") -> Any:
    return row(
        f"{name} .. {sentence}", runs, File(text, name), workloads={"bert_l": []}
    )


def gemm(sentence: str, cells: str, more: str = "") -> Any:
    return table(sentence, GEMM.strip() + more + "\n" + cells + "\n")


TABLES = [
    table("is empty", ""),
    table("no data row", GEMM),
    table("`gpu` is there 2 times", "gpu,gpu,op\na10,a10,gemm\n"),
    gemm("line 2: the row has 6 cells", "a10,gemm,8,8,8,bf16"),
    gemm("cannot be read as CSV", 'a10,"gemm,8,8,8,bf16,1'),
    table("`gpu` is missing", "op,m,n,k,dtype,time_us\ngemm,8,8,8,bf16,1\n"),
    table("`k` is missing", "gpu,op,m,n,dtype,time_us\na10,gemm,8,8,bf16,1\n"),
    table("time is missing", "gpu,op,m,n,k,dtype\na10,gemm,8,8,8,bf16\n"),
    gemm("line 2: `time_us` is 'fast'", "a10,gemm,8,8,8,bf16,fast"),
    gemm("line 3: `time_us`", "a10,gemm,8,8,8,bf16,1\na10,gemm,8,8,8,bf16,0"),
    gemm("line 6: `time_us`",  # blank lines and line ends in cells count
         '\na10,gemm,8,8,8,bf16,1,"a\nb"\n\na10,gemm,8,8,8,bf16,0,', ",note"),
    gemm("line 2: `time_us` is empty", "a10,gemm,8,8,8,bf16,"),
    gemm("line 2: `m` is '0'", "a10,gemm,0,8,8,bf16,1"),
    gemm("line 2: `dtype` is 'bf17'; allowed are fp32", "a10,gemm,8,8,8,bf17,1"),
    gemm("line 2: `op` is 'gem'; allowed are", "a10,gem,8,8,8,bf16,1"),
    gemm("line 2: `gpu` is 'a11x'", "a11x,gemm,8,8,8,bf16,1"),
    gemm("line 2: `avg_power_w` is '-3'", "a10,gemm,8,8,8,bf16,1,-3", ",avg_power_w"),
    gemm("line 2: `tensor_core` is 'maybe'", "a10,gemm,8,8,8,bf16,1,maybe",
         ",tensor_core"),
    table("line 2: `workload` is 'bert' .. nearest is 'bert_l' .. listing file",
          "gpu,workload,time_s\na10,bert,1\n"),
    table("`precision` is missing", "gpu,model,time_s\na10,gpt2,1\n"),
    table("line 2: `mode` is 'fly'; allowed are prefill",
          "gpu,model,precision,batch,seq_len,mode,time_s\na10,gpt2,bf16,1,8,fly,1\n"),
    table("line 2: `num_heads` is 8, which `num_kv_heads` 3 does not divide",
          "gpu,op,q_len,num_heads,num_kv_heads,head_dim,dtype,time_us\n"
          "a10,context_attention,8,8,3,64,bf16,1\n"),
    table("cut short", gzip.compress(GEMM.encode() * 100)[:-20], "cut.csv.gz"),
    table("no gzip file", GEMM, "plain.csv.gz"),
    table("not UTF-8 (byte 7)", b"gpu,op\n\xe9,gemm\n"),
    row("is a folder", runs, File(None, "folder")),
    row("none.csv .. no such file", runs, "none.csv"),
    row("name at least one", read, []),
]  # fmt: skip


def log(sentence: str, tool: str, text: str, name: str = "log.csv") -> Any:
    return row(
        sentence, lambda path: importers()[tool].read(Path(path)), File(text, name)
    )


NO_GPU = "timestamp,name\n2024/05/01 10:00:00,NVIDIA A10\n"
LOGS = [
    log("is no log of ZeusMonitor", "zeus", "a,b\n1,2\n"),
    log("`gpu0_energy`", "zeus", "window_name,elapsed_time\nx,1\n"),
    log("line 4: the row has 2 cells", "zeus", MONITOR + "103.0,st"),
    log("another unit", "zeus",
        MONITOR.replace(",10.0,", ",0.01,").replace("1.0,", "1e-4,")),
    log("no row is left .. no GPU was measured", "codecarbon",
        carbon(run(energy=0.0)), "emissions.csv"),
    log("another unit", "codecarbon", carbon(run(energy=20.0)), "emissions.csv"),
    *(
        log(sentence, "nvidia_smi", text)
        for text, sentence in (
            (SMI + sample(0, 100) + sample(1, 100).replace("100 W", "0.1 kW"),
             "number in"),
            (SMI.replace("[W]", "[mW]") + sample(0, 1, unit=False), "is not in W"),
            (SMI + sample(1, 100) + sample(0, 100), "line 3: the time stamp is before"),
            (SMI + sample(0, 20, use=0) + sample(1, 20, use=0), "no GPU was busy"),
            (SMI + sample(0, 100).replace("100 W", "[N/A]"), "its power was not read"),
            (SMI + sample(0, 100).replace("2024/", "24/"), "`timestamp` is"),
            (sample(0, 100) + "2024/05/01 10:00:01, NVIDIA A10\n", "no header"),
            (NO_GPU, "column for `power`"),
            (SMI + (sample(0, 90) + sample(1, 90)).replace("A10", "A11"),
             "no row is left"),
        )
    ),
    *(
        log(sentence, "dcgm", text, "metrics.prom")
        for text, sentence in (
            (scrape()[:-20], "line .. : this is cut short"),
            (scrape(power=float("nan")).replace("nan", "fast"), "is 'fast'"),
            ("up 1\n", "no reading of a whole GPU"),
            (scrape(labels='gpu="0",UUID="GPU-1"'), "no `modelName`"),
            (scrape(labels='gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3",'
                    'GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"'), "only MIG instances"),
            (scrape(shares={}), "no reading of sm_active and dram_active"),
        )
    ),
]  # fmt: skip


def imported(sentence: str, text: str, name: str = "log.csv", **options: Any) -> Any:
    return row(sentence, read_log, File(text, name), **options)


BUSY = SMI + sample(0, 90) + sample(1, 90)
IMPORTED = [
    imported("log of no known tool; allowed are `codecarbon`, ", "a,b\n1,2\n"),
    imported("`format` is 'smi'; allowed are", BUSY, format="smi"),
    imported("`gpu` is 't4', but .. log.csv was logged on a10; leave it out", BUSY,
             gpu="t4"),
    imported("`gpu` is missing: .. does not name the GPU", MONITOR),
    imported("neither power nor energy", scrape(power=float("nan"))),
    imported("`passes` is 4, but .. without a length", scrape(), passes=4),
]  # fmt: skip


@pytest.mark.parametrize("refusal", TABLES + LOGS + IMPORTED)
def test_refused(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)
