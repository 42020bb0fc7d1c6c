"""Every key of the JSON is declared once, and stands in docs/reference/json.md."""

import re
from typing import Annotated, NotRequired, TypedDict

import pytest

from diffenergy.cli import app

from .declared import REFERENCE, ROOT, undeclared

EXAMPLES = ROOT / "docs" / "examples"


class _Part(TypedDict):
    size: Annotated[int | None, "B", "of it"]


class _Whole(TypedDict):
    time_s: Annotated[float, "s", "of it"]
    parts: NotRequired[Annotated[dict[str, list[_Part]], "by name"]]


@pytest.mark.parametrize(
    "value, wrong",
    [
        ({"time_s": 1}, ""),
        ({"time_s": 1.5, "parts": {"a": [{"size": None}, {"size": 2}]}}, ""),
        ({}, ".time_s is missing"),
        ({"time_s": 1.0, "time": 1.0}, ".time is not declared"),
        ({"time_s": True}, ".time_s is True"),
        ({"time_s": None}, ".time_s is None"),
        ({"time_s": 1.0, "parts": {"a": [{"size": 0.5}]}}, ".parts.a[0].size is 0.5"),
        ({"time_s": 1.0, "parts": [{"size": 1}]}, ".parts is [{'size': 1}]"),
        ([{"time_s": 1.0}], "it is [{'time_s': 1.0}]"),
    ],
)
def test_what_is_undeclared_is_found(value, wrong):
    found = undeclared(value, _Whole)
    assert len(found) == bool(wrong)
    assert not wrong or found[0].startswith(wrong)


@pytest.mark.slow
def test_the_page_is_what_its_script_writes():
    page = REFERENCE["PAGE"].read_text(encoding="utf-8")
    assert REFERENCE["written"](page) == page, "run `python docs/json_reference.py`"


def test_each_table_stands_below_a_heading_of_its_own():
    """`measure` had two below one."""
    page = REFERENCE["PAGE"].read_text(encoding="utf-8")
    parts = re.split(r"^##+ ", page, flags=re.MULTILINE)
    several = [x.splitlines()[0] for x in parts if x.count("| key | type |") > 1]
    assert not several


def test_every_command_that_answers_is_declared():
    assert {*REFERENCE["COMMANDS"], "report"} == set(app.names())


def test_every_record_has_a_name_of_its_own():
    titles = [REFERENCE["title"](record) for record in REFERENCE["RECORDS"]]
    assert len(set(titles)) == len(titles)
    assert all(record.__doc__ for record in REFERENCE["RECORDS"])


@pytest.mark.parametrize(
    "words",
    [
        ("gpus",),
        ("gpus", "show", "h100-sxm"),
        ("models",),
        ("models", "show", "gpt2"),
        ("measure", "--dry-run", "--gpu", "l4"),
        ("collective", "ring-4", "--collective", "all_gather", "--size", "1MB"),
        ("fleet", EXAMPLES / "fleet" / "fleet.toml"),
        ("import", EXAMPLES / "trace.json"),
        ("dvfs", "--table", EXAMPLES / "measured.csv"),
    ],
    ids=lambda words: " ".join(map(str, words[:2])),
)
def test_a_command_prints_what_is_declared(run, words):
    """`run` holds every JSON of the tests to it; these are quick."""
    assert run(*words, "--json").json
