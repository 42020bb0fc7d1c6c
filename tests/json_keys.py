"""Whether JSON is as docs/reference/json.md declares it: `check(command, text)`.

What `faults` compares is the JSON Schema that `--schema` prints, so that both are held
to what the commands print. `SEEN` has the rows of the page that any JSON of this
process had; `unseen` those that none had.
"""

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from diffenergy import keys
from diffenergy.cli.refusal import KINDS

SEEN: Final[set[tuple[str, str]]] = set()
"""Sections and keys of the rows that were produced."""
RUNS: Final = ("not slow and not gpu", "slow and not long and not gpu")
"""Marks of the runs that are the whole suite together (README.md)."""
LONG: Final = {("search", "workloads"), ("member", "weight")}
"""Rows that only tests marked `long` produce."""
_UNITS: Final = {
    "s": "s", "us": "us", "j": "J", "kwh": "kWh", "w": "W", "hz": "Hz", "mhz": "MHz",
    "c": "C", "g": "g", "mm2": "mm2", "pct": "%", "bytes": "B", "flops": "FLOP",
    "tokens": "tokens", "hours": "h",
}  # fmt: skip
"""Units by the last word of a key."""
_PER: Final = {"s": "s", "us": "us", "watt": "W"}
"""Units behind `_per_`; a figure per GPU or token is in the unit of the figure."""
_TYPES: Final = {
    "string": str, "number": int | float, "integer": int, "boolean": bool,
    "null": type(None), "array": list, "object": dict,
}  # fmt: skip


@functools.cache
def schema(command: str) -> dict[str, Any]:
    """What `--schema` prints."""
    return keys.schema(command)


def check(command: str, text: str):
    """Fails unless the JSON of a command is as the page has it; notes its keys."""
    wrong, seen = compare(json.loads(text), schema(command), schema(command)["$defs"])
    assert not wrong, f"{command}: {wrong}"
    SEEN.update((owner(record, key), key) for record, key in seen)


def check_part(section: str, value: Any):
    """The same of a part of an answer: an object of a section, or a list of them."""
    kind = {"$ref": f"#/$defs/{section}"}
    records = next(x for x in map(schema, keys.commands()) if section in x["$defs"])
    several = {"type": "array", "items": kind} if isinstance(value, list) else kind
    wrong, seen = compare(value, several, records["$defs"])
    assert not wrong, f"{section}: {wrong}"
    SEEN.update((owner(record, key), key) for record, key in seen)


def check_refusal(line: str, status: int):
    """Fails unless the line on stderr of a command that ends with `status` is as the
    page has it."""
    record = keys._record("refusals", keys._sections())
    content = json.loads(line)
    assert set(content) == {"error"}
    wrong, _ = compare(content["error"], record, {})
    assert not wrong, wrong
    assert content["error"]["kind"] == KINDS[status]
    SEEN.update(("refusals", key) for key in content["error"])


Comparison = tuple[list[str], set[tuple[str, str]]]
"""Faults, and the keys of records that there are."""


def compare(
    value: Any, kind: dict[str, Any], records: dict[str, Any], where: str = ""
) -> Comparison:
    """What in `value` is not of `kind`, with its place, and the keys that it has."""
    if "anyOf" in kind:
        options = [compare(value, x, records, where) for x in kind["anyOf"]]
        return min(
            options, key=lambda unmatched: (len(unmatched[0]), -len(unmatched[1]))
        )
    wrong, seen = [], set()
    if "$ref" in kind:
        name = kind["$ref"].rpartition("/")[2]
        wrong, seen = compare(value, records[name], records, where)
        if isinstance(value, dict):
            seen = seen | {(name, key) for key in value}
    if "const" in kind and value != kind["const"]:
        wrong.append(f"{where} is {value!r}, not {kind['const']}")
    if not _is(value, kind.get("type")):
        return [*wrong, f"{where or 'it'} is {value!r:.40}, not {kind['type']}"], seen
    if isinstance(value, dict):
        lacking = [x for x in kind.get("required", ()) if x not in value]
        wrong += [f"{where}.{x} is missing" for x in lacking]
    for at, part, of in _parts(value, kind):
        if of is False:
            wrong.append(f"{where}{at} is not on the page")
        else:
            more, inside = compare(part, of, records, where + at)
            wrong, seen = wrong + more, seen | inside
    return wrong, seen


def _is(value: Any, kind: str | None) -> bool:
    if isinstance(value, bool):
        return kind in ("boolean", None)
    return kind is None or isinstance(value, _TYPES[kind])


def _parts(value: Any, kind: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Place, value and kind of what is within; False: no such key."""
    if isinstance(value, list) and "items" in kind:
        yield from ((f"[{i}]", x, kind["items"]) for i, x in enumerate(value))
    if isinstance(value, dict):
        named, others = kind.get("properties", {}), kind.get("additionalProperties", {})
        yield from ((f".{x}", y, named.get(x, others)) for x, y in value.items())


def wrong_units(name: str, record: dict[str, Any]) -> list[str]:
    """Keys whose unit is not that which their last words say."""
    return [
        f"{name}.{key} is in '{kind.get('unit', '')}', not {unit}"
        for key, kind in record["properties"].items()
        if (unit := unit_of(key)) and kind.get("unit", "") != unit
    ]


def unit_of(key: str) -> str | None:
    """The unit that a key names.

    >>> [unit_of(x) for x in ("time_s_p5_p95", "energy_j_per_token", "rate_per_s")]
    ['s', 'J', '1/s']
    >>> unit_of("tokens_per_s_per_gpu"), unit_of("phase")
    ('tokens/s', None)
    """
    head, *per = re.sub(r"(_p\d+)+$", "", key).split("_per_")
    unit = _UNITS.get(head.rpartition("_")[2]) if len(head) > 1 else None
    below = [_PER[x] for x in per if x in _PER]
    if not below:
        return unit
    return f"{'tokens' if 'token' in head else unit or 1}/{below[0]}"


@functools.cache
def rows(section: str) -> dict[str, Any]:
    """The keys that a section of the page itself declares."""
    text = keys._sections()[section]
    unmatched = map(keys._ROW.match, text.splitlines())
    return {row["key"]: row for row in unmatched if row and row["key"]}


@functools.cache
def owner(section: str, key: str) -> str:
    """The section whose row declares a key of a record: its own, or one of its bases;
    empty for the keys that have no row."""
    if key in rows(section):
        return section
    bases = keys._BASES.search(keys._sections()[section])
    of = keys._LINK.findall(bases[1]) if bases else []
    return next(filter(None, (owner(base, key) for base in of)), "")


def unseen() -> list[str]:
    """Rows of the page that no JSON had."""
    return [
        f"{section}.{key}"
        for section in keys._sections()
        for key in rows(section)
        if (section, key) not in SEEN | LONG
    ]


def never(folder: Path, marks: str) -> list[str]:
    """Rows of the page that neither the run of `marks`, which is done, nor the last run
    of the other half of the suite produced; none as long as only one half has run.
    `folder` has what each half produced."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{marks}.json").write_text(json.dumps(sorted(SEEN)))
    files = [folder / f"{name}.json" for name in RUNS]
    if not all(file.exists() for file in files):
        return []
    for file in files:
        SEEN.update(map(tuple, json.loads(file.read_text())))
    return unseen()
