"""What files of corrections, constants and processes cannot be."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from refusals import File, Refusal, row

from diffenergy.corrections import (
    CONSTANTS,
    known_process,
    prior_file,
    read_corrections,
    write_corrections,
)

WHOLE = json.loads(write_corrections(prior_file()))


def file(sentence: str, content: Any) -> Any:
    text = content if isinstance(content, str) else json.dumps(WHOLE | content)
    return row(sentence, read_corrections, File(text, "mine.json"))


def constants(sentence: str, **values: Any) -> Any:
    return file(sentence, {"levels": {"global": values}})


FILES = [
    *(file("mine.json", text) for text in ("{", "[]", '{"schema": 1}')),
    file("is 99; this version reads 1", '{"schema": 99}'),
    file("`levels` is [3]; give a table", {"levels": [3]}),
    file("`spread.x` is 3; give a table", {"spread": {"x": 3}}),
    file("`levels.global` is missing", {"levels": {"gpu:t4": {}}}),
    constants("`global.zzz` .. is no constant", zzz=1),
    constants("`levels.global.energy_dram` is", energy_dram="x"),
    constants("is -1; give a number above 0", energy_dram=-1),
    constants("is 1.0; allowed .. 0 and 1", activity_dram=1),
    file("continues' is no const", {"continues": {"levels": {"global": {"zzz": 1}}}}),
    row("cannot be read", read_corrections, File(None, "folder")),
]
CONSTANT = [
    row(f"`{name}` of the constant 'DRAM rate",
        lambda x: dataclasses.replace(CONSTANTS["dram_efficiency"], **x), {name: empty})
    for name, empty in (("rows", ()), ("frees", ()), ("source", ""))
]  # fmt: skip
PROCESSES = [
    row(f"`process_node` is '{word}'; known are 28nm, .. A16; write the nearest",
        known_process, word)
    for word in ("Q7", "6nm/5nm/4N", "5nm/", "/", "6nm/Q7", "")
]  # fmt: skip


@pytest.mark.parametrize("refusal", FILES + CONSTANT + PROCESSES)
def test_refused(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)
