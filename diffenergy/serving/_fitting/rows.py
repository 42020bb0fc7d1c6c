"""Tables of measured servers (`serving.csv`): rows as loads with what was read."""

import csv
import dataclasses
import gzip
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from .._engine import ENGINES
from .._load import Load

MEASURED: Final = ("tpot_s", "ttft_s", "avg_power_w", "energy_j_per_output_token")
_LOADS: Final = ("max_batch", "concurrency", "rate")
_WHOLE: Final = ("num_gpus", "tp", "ep")
_NEEDED: Final = ("gpu", "model", "engine", "input_len", "output_len")


@dataclasses.dataclass(frozen=True)
class ServedRow:
    """One measured server: what it was (`server`: arguments of `deploy`), its `load`,
    how many requests ran where that was read (`running`), and `measured` figures by
    column, in SI, of all GPUs."""

    number: int
    gpu: str
    model: str
    engine: str
    server: Mapping[str, Any]
    load: Load
    running: float | None
    measured: Mapping[str, float]


def is_serving(path: str | Path) -> bool:
    """Whether a file is a table of servers: it has the columns `engine` and lengths."""
    try:
        head = _text(Path(path)).partition("\n")[0]
    except (OSError, UnicodeDecodeError, EOFError):
        return False
    columns = {name.strip() for name in head.split(",")}
    return {"engine", "model", "output_len"} <= columns


def read_serving(path: str | Path) -> list[ServedRow]:
    """Rows of a table of measured servers.

    Columns: `gpu, model, engine`, one of `max_batch, concurrency, rate`, `input_len,
    output_len` (as `serve` takes them); `num_gpus, tp, ep, dtype, kv_dtype, sampling,
    cached_len, waves, running_requests` (measured) and `campaign` where they are known;
    measured `tpot_s, ttft_s, avg_power_w, energy_j_per_output_token`, any of them.
    Raises `ValueError` that names row and column for what cannot be read.
    """
    try:
        found = list(csv.DictReader(io.StringIO(_text(Path(path)))))
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise ValueError(f"serving table '{path}' cannot be read ({error}).") from None
    if not found:
        raise ValueError(f"serving table '{path}' has no rows.")
    missing = [name for name in _NEEDED if name not in found[0]]
    if missing:
        raise ValueError(f"`{missing[0]}` is no column of '{path}'; it is needed.")
    if not set(_LOADS) & set(found[0]):
        raise ValueError(
            f"`max_batch` is no column of '{path}', nor are `concurrency` and `rate`; "
            "one of them is needed."
        )
    return [_row(number, cells, str(path)) for number, cells in enumerate(found)]


def _text(path: Path) -> str:
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()


def _row(number: int, cells: Mapping[str, str], path: str) -> ServedRow:
    where = f"row {number} of '{path}'"

    def text(name: str) -> str | None:
        return (cells.get(name) or "").strip() or None

    def value(name: str) -> float | None:
        given = text(name)
        if given is None:
            return None
        try:
            found = float(given)
        except ValueError:
            found = math.nan
        if not math.isfinite(found) or found < 0:
            raise ValueError(f"`{name}` is '{given}' in {where}; give a number.")
        return found

    for name in _NEEDED:
        if text(name) is None:
            raise ValueError(f"`{name}` is empty in {where}; fill it in.")
    engine = text("engine") or ""
    if engine not in ENGINES:
        raise ValueError(
            f"`engine` is '{engine}' in {where}; allowed are {', '.join(ENGINES)}."
        )
    given: dict[str, Any] = {
        name: value(name) for name in (*_LOADS, "cached_len", "waves")
    } | {name: text(name) for name in ("input_len", "output_len")}
    whole = {name: value(name) for name in _WHOLE}
    server = {name: int(x) for name, x in whole.items() if x is not None}
    words = {name: text(name) for name in ("dtype", "kv_dtype", "sampling")}
    server |= {name: x for name, x in words.items() if x is not None}
    try:
        load = Load(**given)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    measured = {x: y for x in MEASURED if (y := value(x)) is not None and y > 0}
    return ServedRow(
        number, text("gpu") or "", text("model") or "", engine, server, load,
        value("running_requests"), measured,
    )  # fmt: skip
