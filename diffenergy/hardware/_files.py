"""GPU files (`data/gpus/*.toml`): reading and writing them.

A file holds the fields of `GpuSpec` as flat keys in SI, a few names, and the tables
`[published]`, `[physical]` and `[provenance]`.
"""

import dataclasses
import difflib
import functools
import itertools
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..files import read_toml
from ..schema import Text, fitted
from ._card import FOLDER, GpuCard, gpu_names
from ._checks import (
    CHOSEN,
    check_together,
    check_word,
    checked_number,
    checked_provenance,
    close,
    doubts,
    nearest,
)
from ._fields import CLOCK, FIELDS, OPTIONAL, WORDS, GpuFile, NumberField, unstated

if TYPE_CHECKING:
    import diffenergy.hardware._spec

BY_CALLER: Final = {"source": "set by the caller", "quality": "guess", "year": 2026}
"""Provenance of a number that a what-if replaces."""


def field_units() -> dict[str, str]:
    """Unit of every number of a GPU file, in the file's order."""
    return {field: rule.unit for field, rule in FIELDS.items()}


def read_gpu(name_or_path: str, exact: bool = False) -> GpuCard:
    """GPU by bundled name, by another spelling of it, or from a path ending in .toml.

    Case does not matter, and space, `_` and `-` are one: `NVIDIA H200`, `h200_sxm`
    and `h200-sxm` are the same GPU. The name of a family (`h100`) is its SXM board with
    the largest memory, and the result says so (`is_assumed`); where `exact`, as for
    measured data, which have to name their board, it is unknown.

    Raises `ValueError` for an unknown name and for a file that is missing, is not
    TOML, or holds a value that cannot be right.

    >>> read_gpu("A100-PCIE-40GB").name, read_gpu("a100").name
    ('a100-pcie-40gb', 'a100-sxm-80gb')
    """
    if name_or_path.lower().endswith(".toml"):
        return _read_file(Path(name_or_path))
    folded = _fold(name_or_path)
    if folded in gpu_names():
        return _read_bundled(folded)
    board = _board(folded)
    if board and not exact:
        return dataclasses.replace(_read_bundled(board), is_assumed=True)
    if folded in _spellings():
        return _read_bundled(_spellings()[folded])
    if folded and Path(name_or_path).is_dir():
        return _read_file(Path(name_or_path))
    unknown = "a family of boards" if board else "which is not a known GPU"
    raise ValueError(
        f"`gpu` is {name_or_path!r}, {unknown}; "
        f"{nearest(_close_gpus(folded))}, or give the path of a .toml file."
    )


def load_gpu(name: str) -> "diffenergy.hardware._spec.GpuSpec":
    """Numbers of a GPU, by name, other spelling or path: `read_gpu(name).spec`.

    >>> float(load_gpu("h100-sxm").num_sms)
    132.0
    """
    return read_gpu(name).spec


def with_fields(card: GpuCard, changes: Mapping[str, int | float | str]) -> GpuCard:
    """`card` with some numbers (SI), its `process_node` or its `memory` replaced; they
    are checked like those of a file.

    Raises `ValueError` for a field that does not exist (naming the nearest ones) and
    for a value that cannot be right.

    >>> card = with_fields(read_gpu("h100-sxm"), {"dram_bandwidth": 6.7e12})
    >>> card.values["dram_bandwidth"]
    6700000000000.0
    """
    if not changes:
        return card  # the same object: it keeps its record (`GpuCard.served`)
    words: dict[str, Any] = {x: y for x, y in changes.items() if x in CHOSEN}
    numbers = {x: y for x, y in changes.items() if x not in CHOSEN}
    for field in numbers:
        field_rule(field)
    for field, word in words.items():
        check_word(field, word)
    values = {**card.values, **{k: checked_number(k, v) for k, v in numbers.items()}}
    check_together(values)
    sources = dict.fromkeys(changes, BY_CALLER)
    return dataclasses.replace(
        card,
        values=values,
        published={},
        provenance={**card.provenance, **sources},
        **words,
    )


def new_doubts(card: GpuCard) -> list[str]:
    """What cannot be or is unlikely of a GPU and is not so of the bundled one that it
    grew out of: warnings, since a change of one number may be a what-if."""
    like = card.corrections and read_gpu(card.corrections)
    if like and card.alike(like):
        return []
    before = [*itertools.chain(*doubts(like))] if like else []
    return [
        sentence
        for sentence in itertools.chain(*doubts(card))
        if sentence not in before
    ]


def field_rule(field: str) -> NumberField:
    """Unit and range of a number of a GPU file.

    Raises `ValueError` for a field that does not exist, naming the nearest ones.

    >>> field_rule("tdp").unit
    'W'
    """
    if field not in FIELDS:
        raise ValueError(
            f"No numeric field of a GPU is called `{field}`; "
            f"{nearest(close(field, FIELDS))}."
        )
    return FIELDS[field]


# --- names


def _fold(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", name.strip().lower())


@functools.cache
def _spellings() -> dict[str, str]:
    """Folded spelling -> bundled name."""
    spellings = {}
    for name in gpu_names():
        for alias in (name, *_read_bundled(name).aliases):
            spellings[_fold(alias)] = name
    return spellings


@functools.cache
def _read_bundled(name: str) -> GpuCard:
    return _read_file(FOLDER / f"{name}.toml")


def _board(family: str) -> str | None:
    """The board that the name of a family stands for: SXM before PCIe, then the one
    with the largest memory; None where no bundled GPU is of that family.

    >>> _board("h100"), _board("a100-pcie"), _board("l40")
    ('h100-sxm', 'a100-pcie-80gb', None)
    """
    start = re.escape(family.removeprefix("nvidia-"))
    pattern = re.compile(rf"{start}(-(sxm|pcie))?(-\d+gb)?")
    boards = [name for name in gpu_names() if pattern.fullmatch(name)]
    return max(boards, key=_rank, default=None)


def _rank(board: str) -> tuple[bool, float]:
    return "-sxm" in board, _read_bundled(board).values["dram_capacity"]


def _close_gpus(folded: str) -> list[str]:
    """Bundled names that begin like `folded`, else up to three near it, else all."""
    spellings = _spellings()
    begin = [name for name in gpu_names() if folded and name.startswith(folded)]
    near = difflib.get_close_matches(folded, spellings, n=9, cutoff=0.5)
    return begin or list(dict.fromkeys(spellings[n] for n in near))[:3] or gpu_names()


# --- reading


def _read_file(path: Path) -> GpuCard:
    if path.is_dir():
        raise ValueError(f"`gpu` is {str(path)!r}, a folder; give one .toml file.")
    table = read_toml(path, "gpu", "h100-sxm")
    try:
        card = _card(table, path)
        for sentence in () if path.parent == FOLDER else doubts(card)[0]:
            raise ValueError(sentence)
        return card
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


def _card(table: dict[str, Any], path: Path) -> GpuCard:
    """Card of a parsed file, each entry checked."""
    allowed = (*FIELDS, *WORDS, *OPTIONAL)
    for key in table:
        if key not in allowed:
            raise ValueError(
                f"`{key}` is not a key of a GPU file; {nearest(close(key, allowed))}."
            )
    for key in (*WORDS, *FIELDS):
        rule = FIELDS.get(key)
        if key not in table and (rule is None or rule.default is None):
            raise ValueError(
                f"`{key}` is missing; add it "
                + (f"({rule.unit})." if rule else "as text in quotes.")
            )
    file: GpuFile = fitted(table, GpuFile)
    for word in ("architecture", *CHOSEN):
        check_word(word, getattr(file, word))
    values = {
        field: checked_number(field, table.get(field, rule.default))
        for field, rule in FIELDS.items()
    }
    check_together(values)
    usual, clocks = [values["mem_clock"]], file.mem_clocks
    return GpuCard(
        **{word: getattr(file, word) for word in WORDS},
        corrections=_corrections(file.corrections),
        machine=file.machine,
        lane=file.lane or 0.0,
        links=file.links,
        aliases=tuple(fitted(alias, Text, key="aliases") for alias in file.aliases),
        mem_clocks=tuple(
            checked_number("mem_clocks", clock, CLOCK)
            for clock in (usual if clocks is None else clocks)
        ),
        published=file.published,
        physical=file.physical,
        provenance={**unstated(table), **checked_provenance(file)},
        values=values,
        path=path,
    )


def _corrections(value: str | None) -> str | None:
    if value is None:
        return None
    name = _fold(value)
    if name not in gpu_names():
        raise ValueError(
            f"`corrections` is {value!r}, which is not a bundled GPU; "
            f"{nearest(close(name, gpu_names()))}, or leave the key out to take "
            f"those of the architecture."
        )
    return name


def gpu_toml(card: GpuCard) -> str:
    """Text of a complete GPU file, a start for a file of one's own.

    `read_gpu` reads it back to the same numbers. Every number carries its unit in a
    comment.
    """
    lines = ["# Numbers in SI; rates are dense, per cycle of the SM clock and per SM."]
    lines += [f"{word} = {_text(getattr(card, word))}" for word in WORDS]
    if card.corrections is not None:
        lines.append(
            f"corrections = {_text(card.corrections)}  # whose corrections serve it"
        )
    lines += [
        f"{key} = {_literal(value)}"
        for key in ("machine", "lane", "links")
        if (value := getattr(card, key))
    ]
    lines += [
        f"aliases = {_literal(card.aliases)}",
        f"mem_clocks = {_literal(card.mem_clocks)}  # Hz, those that can be locked",
        "",
    ]
    lines += [
        f"{field} = {_literal(card.values[field])}  # {rule.unit}"
        for field, rule in FIELDS.items()
    ]
    tables = {
        "published": "dense peaks, FLOP/s, at the clock they are quoted at, Hz; B/s",
        "physical": "mm2 and counts",
        "provenance": "source, quality and year of every number above",
    }
    for table, comment in tables.items():
        lines += ["", f"[{table}]  # {comment}"]
        lines += [
            f"{_key(key)} = {_literal(value)}"
            for key, value in getattr(card, table).items()
        ]
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    escaped = re.sub(r"[\x00-\x1f\x7f]", lambda x: f"\\u{ord(x[0]):04x}", escaped)
    return f'"{escaped}"'


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def _literal(value: Any) -> str:
    """TOML of a string, number, list or inline table."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _digits(value)
    if isinstance(value, Mapping):
        body = ", ".join(f"{_key(k)} = {_literal(v)}" for k, v in value.items())
        return f"{{{body}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_literal(entry) for entry in value)}]"
    return str(value)


def _digits(value: float) -> str:
    """Shortest text that reads back to `value`: 108, 0.225, 1.41e9."""
    if not math.isfinite(value):
        return repr(value)
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    exact = (text for n in range(18) if float(text := f"{value:.{n}e}") == value)
    mantissa, _, exponent = next(exact).partition("e")
    power = int(exponent)
    return repr(value) if -4 < power < 6 else f"{mantissa}e{power}"
