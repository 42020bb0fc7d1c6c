"""What specs and outputs of sweeps cannot be."""

from pathlib import Path
from typing import Any

import pytest
from refusals import File, Refusal, row

import diffenergy as de

from .test_sweeps import HAS_RAY, SPEC

SWEEP = File(SPEC, "spec.toml")


def spec(sentence: str, old: str, new: str) -> Any:
    assert old in SPEC
    file = File(SPEC.replace(old, new, 1), "spec.toml")
    return row(sentence, de.sweeps.run, file, "out.parquet")


ROWS = [
    spec("`gpus` is no axis", "gpu =", "gpus ="),
    spec("is an axis too", "input_len", "batch = 3\ninput_len"),
    spec("`speed` is no flag", "input_len", "speed = 3\ninput_len"),
    spec("[axes] has no axis", SPEC.partition("[fixed]")[0], "[axes]\n"),
    spec("`model` is missing", 'model = "gpt2"', ""),
    spec("`batch` is []", "batch = [1, 4, 100000]", "batch = []"),
    spec("`batch` is 1.5", "batch = [1, 4, 100000]", "batch = [1.5]"),
    spec("has 4 twice", "batch = [1, 4, 100000]", "batch = [4, 4]"),
    spec("FROM below TO", "600:1200:200", "1200:600:200"),
    spec("`block` is 0", "block = 8", "block = 0"),
    spec("`blocks` is no key", "block = 8", "blocks = 8"),
    spec("a number, in C", "input_len", 'temperature = "hot"\ninput_len'),
    spec("`attention` is 3", "input_len", "attention = 3\ninput_len"),
    spec("a whole number from 1 on", "input_len", "tp = 1.5\ninput_len"),
    spec("true or false", "input_len", "checkpointing = 1\ninput_len"),
    spec("in W", "power_limit = [72, 60]", 'power_limit = ["72W"]'),
    row("names ending in", de.sweeps.run, SWEEP, "out.txt"),
    row("names ending in", de.sweeps.run, SWEEP, SWEEP),
    row("there is no folder", de.sweeps.run, SWEEP, "nowhere/out.csv"),
    row("a folder; give the name of a file", de.sweeps.run, SWEEP,
        File(None, "out.csv")),
    row("a file; give the name of a folder", de.sweeps.run, SWEEP, File("", "out")),
    row("holds other files", lambda path, other: de.sweeps.run(
        path, str(Path(other).parent)), SWEEP, File("", "full/thesis.txt")),
    *(
        row("`ray` is", de.sweeps.run, SWEEP, "out.csv", ray=ray)
        for ray in ("local:0", "local:x", "head", "")
    ),
    *(
        row("Ray is not installed", de.sweeps.run, SWEEP, "out.csv", ray="local:2")
        for _ in range(not HAS_RAY)
    ),
]  # fmt: skip


@pytest.mark.parametrize("refusal", ROWS)
def test_refused(refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nothing is written."""
    monkeypatch.chdir(tmp_path)
    refusal.check(tmp_path)
    files = [x for x in tmp_path.rglob("*") if x.is_file() and x.stat().st_size]
    assert [x.name for x in files] == ["spec.toml"]
