"""What fits and evaluations refuse."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import File, Refusal, row

from diffenergy import measurements
from diffenergy.fitting import Readings, fit, fit_node_table, fit_table
from diffenergy.hardware import load_gpu

from .builders import corrections_file

GPU = load_gpu("a100-pcie-40gb")
SETTINGS = np.array([(np.nan, np.nan), (9e8, np.nan), (6e8, np.nan)])
COLOURS = File(
    "gpu,op,m,n,k,dtype,time_us,colour\na10,gemm,64,64,64,bf16,10,red\n"
    "h100-sxm,gemm,64,64,64,bf16,5,blue\n"
)
SIZES = File(
    "gpu,op,m,n,k,dtype,time_us\n"
    + "".join(f"a10,gemm,{m},8,8,bf16,10\n" for m in (1, 2, 3, 4, 5, 6, 50, 60, 70, 80))
)


def fit_file(path: str, **options: Any):
    fit(measurements.read([path]), **options)


def held_out(sentence: str, rule: str) -> Any:
    return row(sentence, fit_file, SIZES, holdout=rule)


def law(sentence: str, time: Any) -> Any:
    return row(sentence, fit_table, GPU, GPU.corrections, SETTINGS,
               Readings(np.array(time), np.array(time)), 250.0)  # fmt: skip


def meter(sentence: str, *rows: str, node: str | None = None) -> Any:
    """Readings of a server: the first is right."""
    head = "gpu,gpus,board_w,cap,wall_w,idle\nh100-sxm,8,500,,6200,\n"
    text = File(head + "".join(f"{x}\n" for x in rows), "meter.csv")
    return row(sentence, lambda path: fit_node_table([path], node), text)


FITS = [
    meter("meter.csv, line 3: `wall_w` is 3000, not more than its 8 boards draw (4000 W"
          "); give", "h100-sxm,8,500,,3000,"),
    meter("meter.csv, line 3: `board_w`, `power_limit_w` and `idle` are empty; say",
          "h100-sxm,8,,,3000,no"),
    meter("meter.csv, line 4: `idle` is 'maybe'; allowed is 1, 0",
          "h100-sxm,8,,700,8200,", "h100-sxm,8,,,2500,maybe"),
    meter("meter.csv, line 3: `wall_w` is '-3'; allowed is a number above 0",
          "h100-sxm,8,500,,-3,"),
    meter("meter.csv, line 3: `gpus` is '1.5'; allowed is a", "h100-sxm,1.5,,,3,"),
    meter("meter.csv, line 3: 4 `gpus` of `gpu` 'h100-sxm', in the first row 8 of "
          "'h100-sxm'; give rows of one", "h100-sxm,4,500,,3000,"),
    meter("`gpus` is 8, but `node` 'xe8545' has 4; give a node of 8", node="xe8545"),
    row("column `gpus` is missing", lambda path: fit_node_table([path]),
        File("gpu,wall_w\nh100-sxm,500\n")),
    *(
        row(f"`freeze` is '{group}'; allowed are the levels .. global, gpu, .. "
            "gpu:a10, gpu:h100-sxm, link: .. energy, ",
            fit_file, COLOURS, freeze=("energy_", group))
        for group in ("", "gpu:t4", "dram_energy", "vllm/0.22.0:conv2d")
    ),
    *(
        row(f"corrections are a {type(start).__name__}; give a file, a ",
            corrections_file, start, kind=TypeError)
        for start in (3, ["a.json"], b"none")
    ),
    row("nowhere.json", fit_file, COLOURS, start="nowhere.json"),
    *(
        row(f"`table` is a {type(table).__name__}; give what `measurements.read` "
            "gives.", fit, table, kind=TypeError)
        for table in (None, 3)
    ),
    *(
        held_out("give COLUMN=VALUE", rule)
        for rule in ("model", "=a", "model=", ":0.5")
    ),
    *(
        held_out("fractions above 0 and below 1", rule)
        for rule in ("m:x", "m:0", "m:1.0", "m:-0.1")
    ),
    held_out("no file has a column `colour`; allowed are `gpu`, `op`, `m`",
             "colour=red"),
    held_out("`m` has '1', '2', '3', '4', '5', '50', '6', '60' and 2 more", "m=10"),
    held_out("`k` has '8' only, and some of its values have to stay", "k:0.5"),
    held_out("holds out every row; leave some to fit", "k=8"),
]  # fmt: skip
LAWS = [
    law("`time` of kernel 1 holds no positive number",
        [[0.01, 0.02, 0.03], [0.01, bad, 0.03], [0.01, 0.02, 0.03]])
    for bad in (0.0, -1.0)
]  # fmt: skip


@pytest.mark.parametrize("refusal", FITS + LAWS)
def test_refused(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)
