"""Every JSON is as docs/reference/json.md declares it, and names its version; the
reader of the tests notices when it is not."""

import json
import re

import json_keys
import jsonschema
import pytest

from diffenergy import keys
from diffenergy.cli import app, interruption, refusal

PAGE = """
Version: 7

## wait

Prints [Wait](#wait) or list of [Wait](#wait).

A wait. It also has the keys of [Total](#total).

| key | type | unit | meaning |
|---|---|---|---|
| `parts`? | (list of [Part](#part)), by name |  | by phase |

### Total

| key | type | unit | meaning |
|---|---|---|---|
| `time_s` | number | s | length |

### Part

| key | type | unit | meaning |
|---|---|---|---|
| `size_bytes` | integer or null | W | a unit that is wrong |
| other keys | text |  | names |
"""


@pytest.fixture
def page(monkeypatch):
    """A made-up page."""
    cached = (
        keys.version, keys._sections, json_keys.schema, json_keys.rows, json_keys.owner,
    )  # fmt: skip
    for function in cached:
        function.cache_clear()
    monkeypatch.setattr(keys, "page", lambda: PAGE)
    yield
    for function in cached:
        function.cache_clear()


PART = {"size_bytes": 1}


GOOD = {"schema": 7, "time_s": 1}


@pytest.mark.parametrize(
    "value, wrong",
    [
        ([GOOD, {"schema": 7, "time_s": 0.5}], ""),
        (GOOD | {"parts": {"a": [PART, {"size_bytes": None}, PART | {"b": "c"}]}}, ""),
        ({"schema": 7}, ".time_s is missing"),
        (GOOD | {"schema": 6}, ".schema is 6, not 7"),
        (GOOD | {"time": 1}, ".time is not on the page"),
        (GOOD | {"time_s": True}, ".time_s is True, not number"),
        (GOOD | {"time_s": None}, ".time_s is None, not number"),
        (GOOD | {"parts": [PART]}, ".parts is [{'size_bytes': 1}]"),
        (GOOD | {"parts": {"a": [{}]}}, ".parts.a[0].size_bytes is m"),
        (GOOD | {"parts": {"a": [{"size_bytes": 0.5}]}}, ".parts.a[0].size_bytes is 0"),
        (GOOD | {"parts": {"a": [PART | {"b": 1}]}}, ".parts.a[0].b is 1, not string"),
        ([GOOD, {"time_s": 1}], "[1].schema is missing"),
    ],
)
def test_the_reader_notices_what_the_page_does_not_have(page, value, wrong):
    schema = json_keys.schema("wait")
    result, _ = json_keys.compare(value, schema, schema["$defs"])
    assert len(result) == bool(wrong)
    assert not wrong or result[0].startswith(wrong)
    assert jsonschema.Draft202012Validator(schema).is_valid(value) == (not wrong)


def test_the_reader_notices_a_wrong_unit(page):
    records = json_keys.schema("wait")["$defs"]
    assert not json_keys.wrong_units("wait", records["wait"])
    wrong = ["part.size_bytes is in 'W', not B"]
    assert json_keys.wrong_units("part", records["part"]) == wrong


def test_the_reader_notices_a_key_that_nothing_has(page, monkeypatch, tmp_path):
    monkeypatch.setattr(json_keys, "SEEN", set())
    json_keys.check("wait", json.dumps(GOOD | {"parts": {}}))
    assert json_keys.unseen() == ["part.size_bytes"]
    quick, slow = json_keys.RUNS
    assert json_keys.never(tmp_path, quick) == []  # the slow tests are still to come
    assert json_keys.never(tmp_path, slow) == ["part.size_bytes"]
    json_keys.SEEN.clear()
    json_keys.check("wait", json.dumps(GOOD | {"parts": {"a": [PART]}}))
    assert json_keys.never(tmp_path, slow) == []


@pytest.mark.parametrize(
    "text", ["", "texts", "list of", "(text", "text)", "text, by", "[A](b)", "text,"]
)
def test_a_type_that_is_none_is_refused(text):
    with pytest.raises(ValueError):
        keys.parse_type(text)


# --- the page


def test_every_command_that_answers_is_on_the_page():
    without = {"report", "web", "help"}
    assert {*keys.commands(), *without} == set(app.names())


def test_each_heading_is_there_once_with_one_table():
    """`measure` had two tables below one heading."""
    parts = re.split(r"^##+ ", keys.page(), flags=re.MULTILINE)
    names = [part.splitlines()[0].lower() for part in parts[1:]]
    assert len(set(names)) == len(names)
    several = [x.splitlines()[0] for x in parts if x.count("| key | type |") > 1]
    assert not several


def test_every_table_is_reached_and_every_row_is_read():
    named = {x for c in keys.commands() for x in keys.schema(c)["$defs"]}
    bases = {x for name in keys._sections() for x in _bases(name)}
    tables = {name for name in keys._sections() if json_keys.rows(name)}
    assert tables == named | bases | {"refusals"}
    written = re.findall(r"^\| (?!key |--)", keys.page().replace("|---", "--"), re.M)
    others = keys.page().count(f"\n| {keys._OTHERS} |")
    assert len(written) == sum(len(json_keys.rows(x)) for x in tables) + others


def _bases(section):
    result = keys._BASES.search(keys._sections()[section])
    return keys._LINK.findall(result[1]) if result else []


@pytest.mark.parametrize("command", keys.commands())
def test_units_are_those_that_keys_end_in(command):
    records = keys.schema(command)["$defs"]
    assert not [y for x in records for y in json_keys.wrong_units(x, records[x])]


# --- commands


@pytest.mark.parametrize("command", keys.commands())
def test_schema_is_printed_before_anything_is_missing(run, command):
    outcome = run(command, "--schema")
    assert (outcome.code, outcome.err) == (0, "")
    printed = json.loads(outcome.out)
    jsonschema.Draft202012Validator.check_schema(printed)
    assert printed == keys.schema(command)


def test_ctrl_c_says_what_refusals_say():
    reported = json.dumps(refusal.to_json("interrupted", 130)) + "\n"
    assert interruption._JSON_LINE.decode() == reported


def test_texts_are_indented_as_python_does_and_have_no_nan():
    content = {"a": [], "b": {}, "c": [1, 2.5e-300, {"d": 'é\n"[{,: '}], "e": None}
    text = json.dumps({"schema": keys.version(), **content}, indent=1) + "\n"
    assert keys.json_text(content) == text
    with pytest.raises(ValueError):
        keys.json_text({"a": float("nan")})
