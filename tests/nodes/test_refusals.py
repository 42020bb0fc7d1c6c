"""What no node can be, and what a meter does not read."""

from functools import partial
from typing import Any

import pytest
from refusals import File, Refusal, row

import diffenergy as de
from diffenergy.nodes import load_node

gpt2 = partial(de.estimate, "gpt2", "h200-sxm")
HEAD = 'name = "mine"\ngpu = ["h200-sxm"]\ngpus = 8\n'


def node(sentence: str, text: str) -> Any:
    return row(sentence, load_node, File(HEAD + text, "mine.toml"))


ROWS = [
    row("`node` is 'dgxh100' .. nearest: `dgx-h100`", gpt2, node="dgxh100"),
    row("`node` is 'nowhere.toml', but there is no such file", gpt2,
        node="nowhere.toml"),
    row("`pue` is 0.9; allowed are numbers from 1", gpt2, node="default", pue=0.9),
    row("`spare` is 1; allowed are numbers from 0", gpt2, node="default", spare=1.0),
    row("`carbon` is given without `node`; boards alone are not what a meter", gpt2,
        carbon=400.0),

    row("`price` is '0.12EUR/GJ'; give a number with /kWh or /MWh", gpt2,
        node="default", price="0.12EUR/GJ"),
    row("`price` is -90; give a number of at least 0", gpt2, node="default",
        price=-90.0),
    row("`pue` is given without a node; boards alone", gpt2, node="none", pue=2.0),

    node("mine.toml: `gain` is 2.0; allowed are numbers from -0.1 to 1.", "gain = 2.0"),
    node("mine.toml: `psu_total_w` is 5000; a node of 8 x 700 W draws",
         "psu_total_w = 5000"),
    node("mine.toml: `idle_wall_w` is 600, less than its 8 idle GPUs draw (568"
         " W)", "idle_wall_w = 600"),
    node("mine.toml: `host_idle` is not a key (did you mean `host_idle_w`?)",
         "host_idle = 3"),
    node("mine.toml: `cpu` is 'z80'; allowed are server-2020", 'cpu = "z80"'),
    node("mine.toml: `psu_loss` is [0.1]; give three numbers", "psu_loss = [0.1]"),
]  # fmt: skip


@pytest.mark.parametrize("refusal", ROWS)
def test_refusals(refusal: Refusal, tmp_path):
    refusal.check(tmp_path)
