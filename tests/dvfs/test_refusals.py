"""What plans of clocks and measured tables refuse."""

import gzip
import inspect
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from refusals import File, Refusal, row

import diffenergy as de
from diffenergy.dvfs import Objective, Rules, Switching, plan, read_table, solve
from diffenergy.estimator import prepare
from diffenergy.hardware import read_gpu
from diffenergy.results import Infeasible

from .builders import apply_script, random_problem
from .test_script import AUTO, BOTH, LOW, problem
from .test_script import plan as schedule
from .test_table import PAIRS, PERSEUS, PLAIN, swapped

HEADER = "stage,instruction,frequency,time,energy\n"
CARD = read_gpu("rtx-3080-ti")
gpt2 = partial(plan, "gpt2")


def cell(
    sentence: str, text: str, number: int, column: str, value: str, **options: Any
):
    """A table with one cell changed; the sentence says which."""
    file = File(swapped(text, number, column, value))
    where = f"given.csv, line {number + 2}: .. "  # below the header
    return row(where + f"`{column}` is {sentence}", read_table, file, **options)


def task(**request: Any) -> Any:
    return prepare("gpt2", "a10", phase="decode", **request)


CELLS = [
    cell("'fast'", PLAIN, 1, "frequency", "fast"),
    cell("empty", PLAIN, 1, "frequency", ""),
    cell("'nan' .. a clock in MHz", PLAIN, 1, "frequency", "nan"),
    cell("'1.41' .. looks like GHz", PLAIN, 1, "frequency", "1.41"),
    cell("'29.9'", PAIRS, 7, "frequency", "29.9"),
    cell("'100001'", PAIRS, 7, "frequency", "100001"),
    cell("'1410000000' .. looks like Hz", PLAIN, 1, "frequency", "1410000000"),
    cell("'-1410' .. a clock in MHz (30 to 100000) or `auto`;",
         PLAIN, 1, "frequency", "-1410"),
    cell("'1507' .. 210 to 2100 MHz in steps of 15 on rtx-3080-ti",
         PAIRS, 4, "frequency", "1507", card=CARD),
    cell("'9.501' .. looks like GHz", PAIRS, 1, "memory_frequency", "9.501"),
    cell("'7001' .. 405 or 810 or 5001 or 9251 or 9501 MHz",
         PAIRS, 4, "memory_frequency", "7001", card=CARD),
    cell("'0'; allowed is a number above 0", PLAIN, 2, "time", "0"),
    cell("'inf'", PLAIN, 2, "time", "inf"),
    cell("'0' .. 0 is no reading", PLAIN, 2, "energy", "0"),
    cell("empty", PLAIN, 2, "energy", ""),
    cell("empty", PLAIN, 2, "stage", " "),

    cell("12, but 24 in the first row of `gemm`", PAIRS, 4, "count", "12"),
    cell("'1.5' .. a whole number of 1 to", PAIRS, 4, "count", "1.5"),
    cell("'0'", PAIRS, 4, "count", "0"),
    cell("'1000001'", PAIRS, 7, "count", "1000001"),
]  # fmt: skip
TABLES = [
    row(sentence, read_table, File(text))
    for sentence, text in {
        "the file is empty": "",
        "no data row": HEADER,
        "`energy` is missing": "stage,instruction,frequency,time\na,b,auto,1\n",
        "line 3: `gemm` of stage `forward` at auto MHz is there .. line 2)": swapped(
            PLAIN, 1, "frequency", "auto"
        ),
        "`norm` of stage `forward` has no": swapped(PLAIN, 2, "frequency", "1395"),
        "all rows are at default clocks": "\n".join(PLAIN.splitlines()[:2]),
        "line 8: the row has 3 cells": PLAIN + "backward,gemm,1395\n",
        "--default-clock SM[,MEM] .. is 1410.": PERSEUS,
    }.items()
] + [
    row("cut short", read_table, File(gzip.compress(PLAIN.encode())[:60], "cut.csv.gz"))
]
DEFAULTS = [
    row(sentence, read_table, File(PERSEUS), default_clock=clock)
    for clock, sentence in {
        "1380": "is 1380, but `forward` of stage `0` has no row there .. is 1410",
        "1410,9501": "is 1410,9501, but",
        "30,auto": "has no row there",
        **dict.fromkeys(
            ("29.9", "1410,100001", "1410,auto,1", ""), "allowed is SM or SM,MEM"
        ),
    }.items()
]
REQUESTS = [
    row("is missing; name", plan),
    row("`objective` is 'joules'", gpt2, objective="joules"),
    row("`max_slowdown` is -100", gpt2, max_slowdown=-100.0),
    row("`seed` is given", gpt2, seed=3),
    row("`seed` is -1; allowed .. from 0",
        gpt2, solver="descent", seed=-1),
    row("`starts` is 0; allowed", gpt2, solver="descent", starts=0),
    row("`power_limit` is a list", lambda: plan(task(power_limit=[100.0, 150.0]))),
    row("`sm_clock` is 1501 MHz", gpt2, CARD, sm_clock=[1.5e9, 1.501e9]),
    row("`mem_clock` is 7000 MHz", gpt2, CARD, mem_clock=[9.501e9, 7e9]),
    row("of kind 'jump'", gpt2, switching=Switching()._replace(kind="jump")),
    *(
        row(f"takes {latency:g} s and {energy:g} J; allowed are 0 or more, or infinite",
            gpt2, switching=Switching("stall", latency, energy))
        for latency, energy in ((math.nan, 0.0), (0.0, -1.0))
    ),
    row("`plan` has pp=2 .. known of pp=1, those of stages by `plan --stage-clocks`",
        gpt2, phase="train", plan="tp=2,pp=2", global_batch=4),
    row("`plan` is tp=2 with phase decode .. give `phase` train",
        gpt2, phase="decode", tp=2),
    row("`solver` is 'descent' .. leave it out",
        gpt2, phase="train", plan="tp=2", solver="descent"),
    row("`per_launch` is given", gpt2, phase="train", plan="tp=2", per_launch=True),
    row("`switching` is of kind 'lookahead'", gpt2, phase="train", plan="tp=2",
        switching=Switching("lookahead", 0.01)),
    row("`table` is given beside `plan`", plan, table=File(PLAIN), plan="tp=2"),
    row("`smooth` is given without", gpt2, smooth=True),
    row("`solver` .. model", plan, table=File(PLAIN), solver="descent"),
    row("`power_curve` is given .. table", plan, table=File(PLAIN), power_curve=True),
    row("`node` .. whose GPU is unknown; give `gpu`", plan, table=File(PLAIN),
        node="dgx-h100"),
    row("`table` is given beside `sm_clock`", plan, table=File(PLAIN), sm_clock=[9e8]),

    row("`batch` is", plan, table=File(PLAIN), batch=0),
    row("`smooth` is given without a GPU; name it",
        plan, table=File(PLAIN), smooth=True),
    row("`default_clock` is given beside a Table", lambda path: plan(
        table=read_table(path), default_clock="1500"), File(PLAIN)),
]  # fmt: skip
KINDS = [
    row("`gpu` is given beside a Task", lambda: plan(task(), "a10"), kind=TypeError),

    row("is a Workload, which has no names", lambda: inspect.unwrap(
        plan)(de.load_model("gpt2").workload(phase="decode")), kind=TypeError),
    row("is a int; allowed is str", plan, 3, kind=TypeError),

    row("`max_slowdown` is", gpt2, max_slowdown="2", kind=(TypeError, ValueError)),
    row("`switching` is a float", gpt2, switching=0.1, kind=TypeError),

]  # fmt: skip
SCHEDULES = [
    row("within `forward` (900 and 1500,5001 MHz)",
        apply_script, problem(), schedule(LOW, BOTH, AUTO), "phase"),
    row("`max_slowdown` .. the least reachable is",
        solve, random_problem(1), Objective(max_slowdown=-50.0),
        Rules(per_launch=True, switching=Switching("stall", 0.01)), kind=Infeasible),
]  # fmt: skip


@pytest.mark.parametrize(
    "refusal", CELLS + TABLES + DEFAULTS + REQUESTS + KINDS + SCHEDULES
)
def test_refused(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)
