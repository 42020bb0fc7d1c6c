"""Every command that answers: Python says the same as its JSON, its tables fit narrow
terminals, every file of `--out` reads back, its charts are whole and one is drawn, and
its page has the JSON, all tables, and the command that gives it."""

import ast
import csv
import io
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from chart_checks import check
from html_page import OURS, Page
from rich.console import Console

import diffenergy as de
from diffenergy import keys
from diffenergy.cli import output
from diffenergy.cli import run as frame
from diffenergy.codesign import Effort, search, tune
from diffenergy.estimator import crossed, prepare
from diffenergy.hardware import read_gpu
from diffenergy.report import Table, to_rich
from diffenergy.serving import Load, steady_state
from diffenergy.workload import read_listings

from .conftest import GPT2, Outcome

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SMALL: dict[str, Any] = {"input_len": 64, "output_len": 5, "batch": 2}
"""What `GPT2` asks for."""
CLOCKED = ("wall_s", "solver_s", "solve_s", "seconds")
"""Keys of times that the machine takes."""
NONE = {"fit", "measure", "sweep"}
"""Commands whose `--out` is their product."""
PLOTTED = {"estimate", "serve", "dvfs", "codesign", "plan", "collective", "fleet"}
PLOTTED |= {"evaluate"}
"""Commands with `--plot`."""
BARE = "evaluate {examples}/trace.json --by op"
"""The answer without a chart."""
PREFILL: dict[str, Any] = {"phase": "prefill", "input_len": 64, "batch": 2}
STEP: dict[str, Any] = {"phase": "train", "input_len": 64, "global_batch": 8}

LISTS: dict[str, None] = dict.fromkeys(
    [
        "gpus",
        "gpus show quadro-rtx-8000",
        "models",
        "models show llama-3.1-8b",
        "compare {examples}/before.json {examples}/before.json",
    ]
)
"""What has no function in Python that gives an answer."""
QUICK: dict[str, Callable[..., Any]] = {
    shlex.join(GPT2): lambda at: prepare("gpt2", "a100-sxm-80gb", **SMALL).run(),
    "import {examples}/trace.json": lambda at: de.imports.read(
        str(at["examples"] / "trace.json")
    ),
    "dvfs --table {examples}/measured.csv": lambda at: de.dvfs.plan(
        table=str(at["examples"] / "measured.csv")
    ),
    "collective dgx1 --collective all_gather --size 1MB --links": lambda at: (
        de.collectives.plan("dgx1", "all_gather", "1MB", links=True)
    ),
    "collective ring-4 --collective all_reduce --size 1MB,16MB": lambda at: (
        de.collectives.plan("ring-4", "all_reduce", ["1MB", "16MB"])
    ),
    "collective verify {folder}/schedule.json": lambda at: de.collectives.verify(
        str(at["folder"] / "schedule.json")
    ),
    "fleet {examples}/fleet/fleet.toml": lambda at: de.fleet.plan(
        str(at["examples"] / "fleet" / "fleet.toml")
    ),
    "evaluate {examples}/trace.json --by op": lambda at: de.measurements.evaluate_trace(
        str(at["examples"] / "trace.json"), by=("op",)
    ),
}
SLOW: dict[str, Callable[..., Any]] = {
    f"{shlex.join(GPT2)} --sm-clock 900,1410": lambda at: prepare(
        "gpt2", "a100-sxm-80gb", **SMALL, sm_clock=(900e6, 1410e6)
    ).run(),
    f"{shlex.join(GPT2)} --sensitivity": lambda at: prepare(
        "gpt2", "a100-sxm-80gb", **SMALL, sensitivity=True
    ).run(),
    "estimate gpt2 --gpu l4,l40s --phase prefill --input-len 64 --batch 2": lambda at: (
        crossed("gpt2", ["l4", "l40s"], **PREFILL)
    ),
    "estimate gpt2 --gpu h100-sxm --phase train --input-len 64 --plan pp=2 "
    "--global-batch 8": lambda at: prepare(
        "gpt2", "h100-sxm", **STEP, plan="pp=2"
    ).run(),
    "serve qwen3-0.6b --gpu h100-sxm --max-batch 32 --rate 20 --input-len 256 "
    "--output-len 64": lambda at: steady_state(
        "qwen3-0.6b", "h100-sxm",
        Load(rate=20.0, max_batch=32, input_len=256, output_len=64),
    ),
    "dvfs gpt2 --gpu a100-sxm-80gb --phase prefill --input-len 64 --batch 2 "
    "--power-curve": lambda at: de.dvfs.plan(
        "gpt2", "a100-sxm-80gb", **PREFILL, power_curve=True
    ),
    "codesign gpt2 --gpu a100-sxm-80gb --phase prefill --input-len 64 --batch 2 "
    "--vary num_sms,dram_bandwidth --starts 2 --rounds 1": lambda at: search(
        "gpt2", "a100-sxm-80gb", vary=["num_sms", "dram_bandwidth"],
        effort=Effort(starts=2, rounds=1), **PREFILL,
    ),
    "codesign gpt2 --gpu a100-sxm-80gb --phase prefill --input-len 64 --batch 2 "
    "--tune-tiles": lambda at: tune("gpt2", "a100-sxm-80gb", **PREFILL),
    "plan gpt2 --gpu h100-sxm --num-gpus 4 --global-batch 8 --input-len 64": (
        lambda at: de.parallel.plan(
            "gpt2", "h100-sxm", num_gpus=4, global_batch=8, input_len=64
        )
    ),
    "plan gpt2 --gpu a40 --input-len 128 --stage-clocks --plan pp=2 --global-batch 4 "
    "--sm-clock 1740,1200 --max-slowdown 2": lambda at: de.parallel.stage_clocks(
        "gpt2", "a40", input_len=128, plan="pp=2", global_batch=4,
        sm_clock=(1740e6, 1200e6), max_slowdown=0.02,
    ),
    "evaluate {examples}/runs.csv --workloads {examples}/listings.jsonl --by gpu": (
        lambda at: de.fitting.evaluate(
            de.measurements.read(
                [str(at["examples"] / "runs.csv")],
                workloads=(str(at["examples"] / "listings.jsonl"),),
            ),
            by=("gpu",),
        )
    ),
}  # fmt: skip
CASES = [
    *((LISTS | QUICK).items()),
    *(pytest.param(*x, marks=pytest.mark.slow) for x in SLOW.items()),
]


@pytest.fixture(scope="module")
def at(run: Callable[..., Outcome], tmp_path_factory: pytest.TempPathFactory):
    """Folders of the cases: `folder` has a schedule."""
    folder = tmp_path_factory.mktemp("answers")
    words = "collective ring-4 --collective all_gather --size 1MB".split()
    assert run(*words, "--out", folder / "schedule.json").code == 0
    return {"examples": EXAMPLES, "folder": folder}


def test_every_command_that_answers_is_here():
    listed = {words.split()[0] for words in LISTS | QUICK | SLOW}
    assert listed == {*keys.commands()} - NONE


@pytest.mark.parametrize(("words", "python"), CASES)
def test_an_answer(run, at, tmp_path, monkeypatch, words: str, python):
    blocks: list[Any] = []
    outcomes: list[frame.Outcome] = []
    monkeypatch.setattr(output, "show", _listening(blocks, output.show))
    monkeypatch.setattr(frame, "_write", _keeping(outcomes, frame._write))
    file, line = tmp_path / "page.html", words.format(**at)
    picture = tmp_path / "chart.svg"
    plotted = words.split()[0] in PLOTTED and words != BARE
    more = ("--plot", picture) if plotted else ()
    actual = run(*shlex.split(line), "--json", "--out", file, *more).json
    schema = keys.schema(words.split()[0])  # read by another validator
    jsonschema.validate(actual, schema, jsonschema.Draft202012Validator)
    (outcome,) = outcomes
    _check_files(outcome, tmp_path)
    if more and outcome.charts is not None:
        check(outcome.charts())
        assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    tables = [x for x in _flat(blocks) if isinstance(x, Table)]
    assert blocks and (tables or "verify" in words)
    for width in (40, 60, 80):
        _check_terminal(tables, width)
    page = Page(file.read_text())
    assert json.loads(page.text(OURS)) == actual
    _check_page(page, tables, line)
    if python is not None:
        result = python(at)
        assert _unclocked(json.loads(result.to_json())) == _unclocked(actual)
        notebook = Page(result._repr_html_())
        assert sorted(notebook.headings) == sorted(_headings(tables))
        again = json.loads(Page(result.to_html()).text(OURS))
        assert _unclocked(again) == _unclocked(actual)


def _listening(blocks: list[Any], show: Callable[..., None]) -> Callable[..., None]:
    """`show` that keeps what it shows."""

    def shown(content: Any, as_json: bool, words: Callable[[], Any]):
        blocks.extend(words())
        show(content, as_json, lambda: blocks)

    return shown


def _keeping(outcomes: list[Any], write: Callable[..., None]) -> Callable[..., None]:
    """`write` that keeps what it writes."""

    def written(flags: Any, outcome: Any, read: Any):
        outcomes.append(outcome)
        write(flags, outcome, read)

    return written


def _check_files(outcome: frame.Outcome, folder: Path):
    """What `--out` writes by its ending is read by what reads such files."""
    for ending, text in outcome.texts.items():
        if ending == ".parquet":
            continue  # of the other half of the suite
        file, content = folder / f"out{ending}", text()
        assert isinstance(content, str)
        file.write_text(content)
        match ending:
            case ".csv":
                heads, *rows = csv.reader(content.splitlines())
                assert rows and {len(row) for row in rows} == {len(heads)}
                assert not {"nan", "inf", "None"} & {x for row in rows for x in row}
            case ".jsonl":
                assert read_listings(str(file))
            case ".toml":
                assert read_gpu(str(file)).values
            case ".xml":
                ElementTree.fromstring(content)
            case ".py":
                ast.parse(content)
            case _:
                assert ending == ".json" and json.loads(content)


def _flat(blocks: list[Any]) -> list[Any]:
    """Blocks, and those within them."""
    inner = [y for x in blocks for y in _flat(getattr(x, "blocks", []))]
    return [*blocks, *inner]


def _headings(tables: list[Table]) -> list[str]:
    return [column.heading for table in tables for column in table.columns]


def _check_terminal(tables: list[Table], width: int):
    """No row is longer than the terminal; at 80 characters nothing is cut."""
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    for table in to_rich(tables):
        console.print(table)
    text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert all(len(line) <= width for line in text.splitlines())
    assert width < 80 or "\u2026" not in text


def _check_page(page: Page, tables: list[Table], line: str):
    """All tables, what watts are of, the command; nothing is loaded, links lead on."""
    assert sorted(page.headings) == sorted(_headings(tables))
    (command,) = (x for x in page.words if x.startswith("diffenergy ") and "--" in x)
    assert set(shlex.split(line)) | {"--json"} <= set(shlex.split(command))
    assert "GPU board" in "".join(page.words)
    loaded = [x for name in ("src", "href", "data") for x in page.values(name)]
    assert all(x == "data:," or x[1:] in page.ids for x in loaded)
    assert set(page.values("aria-labelledby")) <= set(page.ids)
    for identity in page.values("data-points"):
        data = json.loads(page.text(identity))
        which = data["which"] or range(len(data["texts"]))
        assert max(which) < len(data["texts"])
        for places in (data["wide"], data["narrow"]):
            assert len(places) == 2 * len(which) > 0
            assert all(x >= 0 for x in places)  # NaN is not


def _unclocked(content: Any) -> Any:
    """Content without times that the machine took."""
    if isinstance(content, dict):
        return {k: _unclocked(v) for k, v in content.items() if k not in CLOCKED}
    return [_unclocked(x) for x in content] if isinstance(content, list) else content
