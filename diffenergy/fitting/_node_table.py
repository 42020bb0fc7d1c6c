"""Readings of a server's meter, and the node that is fitted to them."""

import dataclasses
import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from msgspec.structs import asdict, replace

from ..hardware import idle_power, read_gpu
from ..measurements import (
    POSITIVE,
    Sheet,
    bad_cell,
    read_names,
    read_numbers,
    read_sheet,
    read_texts,
    require_column,
)
from ..nodes import (
    NodeFile,
    Reading,
    build_node,
    fit_node,
    read_node,
    spread_interval,
)
from ..results import Result, written

_IDLE: Final = {
    **dict.fromkeys(("1", "yes", "true"), True),
    **dict.fromkeys(("", "0", "no", "false"), False),
}


@dataclasses.dataclass(frozen=True, repr=False)
class NodeFit(Result):
    """A node fitted to readings of its meter.

    `summary`: the JSON of `diffenergy fit --json`; `file`: the keys of the node, which
    every `node` takes once they are written.
    """

    view: ClassVar[str] = "accuracy.node_fit"
    summary: dict[str, Any]
    file: NodeFile

    def to_toml(self, path: str | Path) -> str:
        """The node file, named like `path`."""
        file = replace(self.file, name=Path(path).stem.strip() or "node")
        plain = NodeFile("")
        lines = [
            f"{key} = {json.dumps(value, ensure_ascii=False)}"
            for key, value in asdict(file).items()
            if key != "provenance" and value != getattr(plain, key)
        ]
        lines += ["", "[provenance]"]
        for key, source in file.provenance.items():
            words = (f"{x} = {json.dumps(y)}" for x, y in source.items())
            lines.append(f"{key} = {{{', '.join(words)}}}")
        return "\n".join(lines) + "\n"

    def write(self, path: str | Path) -> str:
        """Writes the node file; whole or not at all."""
        return written(self.to_toml(path), str(path))


def is_node_table(path: str | Path) -> bool:
    """Whether the file at `path` has readings of a server: the column `wall_w`."""
    try:
        return "wall_w" in read_sheet(str(path)).columns
    except ValueError:
        return False


def fit_node_table(tables: Sequence[str | Path], node: str | None = None) -> NodeFit:
    """Fits the host of a server to readings of its own meter.

    Least squares of ln wall power; idle host and gain of `node` are the centres of the
    priors.

    Args:
        tables: files of readings of one server (`docs/how-to/wall.md`).
        node: bundled name or file of the server that is nearest [the usual one of the
            GPU].

    Returns:
        The node file, with errors and constants before and after.

    Raises:
        ValueError: for what cannot be read, in one sentence that names the row.
    """
    sheets = [read_sheet(str(path)) for path in tables]
    gpu, gpus = _server(sheets)
    file, card, _ = read_node(node or "default", gpu)
    before = build_node(file, card)
    if before.gpus != gpus:
        raise ValueError(
            f"`gpus` is {gpus}, but `node` '{before.name}' has {before.gpus}; give a "
            f"node of {gpus}, or a .toml file with `gpus = {gpus}`."
        )
    readings = [x for sheet in sheets for x in _readings(sheet)]
    fitted = fit_node(file, card, readings)
    idle = float(idle_power(card.spec, card.spec.sm_clock_min))
    board = np.array([x.power(card) for x in readings])
    wall = np.array([x.wall for x in readings])
    year = date.today().year
    names = ", ".join(dict.fromkeys(Path(path).name for path in tables))
    source = {"source": f"fit of {len(readings)} readings of {names}"}
    source |= {"quality": "measured", "year": year}
    loaded = fitted.grade == "calibrated"
    own = replace(
        file,
        gpu=list(dict.fromkeys((card.name, *file.gpu))),
        gpus=gpus,
        grade=fitted.grade,
        idle_wall_w=None,
        host_idle_w=round(fitted.host_idle, 1),
        host_idle_sd=round(fitted.host_idle_sd, 4),
        gain=round(fitted.gain, 4),
        gain_sd=round(fitted.gain_sd, 4),
        psu_total_w=round(fitted.psu_total),
        provenance=dict.fromkeys(
            ("host_idle_w", "gain") if loaded else ("host_idle_w",), source
        ),
    )
    errors = [
        {
            "wall_mape_pct": float(
                100 * np.abs(x.power(board, idle).wall / wall - 1).mean()
            )
        }
        for x in (before, fitted)
    ]
    half = 1.645 * fitted.gain_sd
    host = spread_interval(fitted.host_idle, fitted.host_idle_sd)
    constants = {
        "host_idle_w": (fitted.host_idle, before.host_idle, "W", host),
        "gain": (
            fitted.gain,
            before.gain,
            "",
            [fitted.gain - half, fitted.gain + half],
        ),
    }
    keys = ("value", "before", "unit", "p5_p95")
    summary = {
        "rows": len(readings),
        "node": before.name,
        "gpu": card.name,
        "gpus": gpus,
        "grade": fitted.grade,
        "before": errors[0],
        "after": errors[1],
        "constants": {
            name: dict(zip(keys, values, strict=True))
            for name, values in constants.items()
        },
    }
    return NodeFit(summary, own)


def _server(sheets: Sequence[Sheet]) -> tuple[str, int]:
    """Name of the GPU and their number, which all rows share."""
    first: tuple[str, int] | None = None
    for sheet in sheets:
        rows = np.arange(sheet.num_rows)
        for column in ("gpu", "gpus"):
            require_column(sheet, column, f"add `{column}`")
        counts = read_numbers(sheet, "gpus", rows, POSITIVE, needed=True)
        gpus = read_names(sheet, "gpu", rows, lambda x: read_gpu(x).name, needed=True)
        for row, (gpu, count) in enumerate(zip(gpus, counts, strict=True)):
            if count != int(count):
                raise bad_cell(sheet, row, "gpus", "a whole number from 1 on")
            first = first or (gpu, int(count))
            if (gpu, count) != first:
                raise ValueError(
                    f"{sheet.place(row)}: {count:.0f} `gpus` of `gpu` '{gpu}', in "
                    f"the first row {first[1]} of '{first[0]}'; give rows of one "
                    "server."
                )
    assert first is not None
    return first


def _readings(sheet: Sheet) -> list[Reading]:
    """Readings of a file; each row says what its boards draw, or that they idle."""
    require_column(sheet, "wall_w", "add `wall_w`")
    rows = np.arange(sheet.num_rows)

    def numbers(column: str) -> np.ndarray:
        there = column in sheet.columns
        return (
            read_numbers(sheet, column, rows, POSITIVE)
            if there
            else np.full(len(rows), np.nan)
        )

    wall = read_numbers(sheet, "wall_w", rows, POSITIVE, needed=True)
    board, limit = numbers("board_w"), numbers("power_limit_w")
    limit = np.where(np.isnan(limit), numbers("cap"), limit)
    idle = (
        read_texts(sheet, "idle", rows) if "idle" in sheet.columns else [""] * len(rows)
    )
    readings = []
    for row, word in enumerate(idle):
        where = f"{sheet.place(row)}: "
        if word.lower() not in _IDLE:
            raise bad_cell(sheet, row, "idle", "1, 0, yes, no, true or false")
        if np.isfinite(board[row]):
            readings.append(Reading(wall[row], board[row], where=where))
        elif _IDLE[word.lower()]:
            readings.append(Reading(wall[row], where=where))
        elif np.isfinite(limit[row]):
            readings.append(Reading(wall[row], limit[row], True, where))
        else:
            raise ValueError(
                f"{where}`board_w`, `power_limit_w` and `idle` are empty; say what a "
                "board draws (W), which limit it is at, or `idle` 1."
            )
    return readings
