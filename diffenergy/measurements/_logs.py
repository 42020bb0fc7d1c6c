"""Logs of power meters (nvidia-smi, DCGM, Zeus, CodeCarbon) as tables of runs."""

import dataclasses
import gzip
import zlib
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd

from ..hardware import read_gpu
from ..requests import Flag, Request, Whole, accepts
from ..results import Result
from ._cells import Sheet, name_list, sheet_of
from .importers import importers, notes_of

_TOTALS = ("time_s", "energy_j")
"""Columns of a window that its passes share."""


class LogRequest(Request):
    """How the log of a power meter is read."""

    format: Annotated[
        str | None,
        Flag("Tool that wrote a log of a power meter [by its content].", "TOOL"),
    ] = None
    workload: Annotated[
        str | None,
        Flag("Name of the workload that ran during a log [as in the log].", "NAME"),
    ] = None
    passes: Annotated[
        Whole | None, Flag("Passes of the workload in each row of a log [1].", "N")
    ] = None


@dataclasses.dataclass(frozen=True, repr=False)
class LogResult(Result):
    """Measured runs of a log.

    `summary`: the JSON of `diffenergy import LOG --json`; `table`: a row a window, run
    or scrape, in the columns of a measurement file.
    """

    view: ClassVar[str] = "runs.log"
    summary: dict[str, Any]
    table: pd.DataFrame

    @property
    def notes(self) -> list[str]:
        """Notes on rows left out, with the reason."""
        return self.summary["notes"]

    def to_csv(self) -> str:
        """The measurement file, which `fit` and `evaluate` read."""
        return self.table.to_csv(index=False, float_format="%.10g")


class _Read(LogRequest):
    """A log and how it is read."""

    path: str = dataclasses.field(kw_only=False)
    gpu: Annotated[str | None, "GPU where the log names none."] = None


@accepts(_Read, "import")
def read_log(request: _Read) -> LogResult:
    """Measured runs of a log of a power meter: nvidia-smi, the DCGM exporter,
    ZeusMonitor or CodeCarbon.

    `path`: the log; its content decides who wrote it, unless `format` says so.

    Raises:
        ValueError: for a log that cannot be read, that has no energy, or of another
            GPU, in one sentence.

    Example:

        >>> log = read_log("docs/examples/log.csv", workload="gpt2", passes=100)
        >>> log.summary["format"], log.summary["rows"]
        ('nvidia_smi', 1)
    """
    path, tools = request.path, importers()
    name = request.format or log_format(path)
    if name not in tools:
        what = f"`format` is '{name}'" if name else f"{path} is a log of no known tool"
        raise ValueError(f"{what}; allowed are {name_list(tools)}.")
    tables = tools[name].read(Path(path))
    if len(tables) > 1:
        raise ValueError(f"{path} has {len(tables)} logs; give one of them.")
    (table,) = tables.values()
    notes = notes_of(table)
    table = _on_gpu(table, path, request.gpu)
    if "avg_power_w" not in table and "energy_j" not in table:
        raise ValueError(
            f"{path} has neither power nor energy of a GPU; log one of them."
        )
    if request.workload is not None:
        table["workload"] = request.workload
    if request.passes is not None:
        _share(table, request.passes, path)
        notes = [words for words in notes if "divide time and energy" not in words]
    summary = {
        "source": Path(path).name,
        "format": name,
        "gpus": sorted(set(table["gpu"])),
        "rows": len(table),
        "columns": [str(column) for column in table],
        "notes": notes,
    }
    return LogResult(summary, table)


def log_format(path: str) -> str | None:
    """Tool that wrote the log at `path`, by its content; None for any other file."""
    text = log_head(path, 1 << 16)
    lines = [line for line in text.splitlines() if line.strip()]
    return next((x for x, m in importers().items() if lines and m.wrote(lines)), None)


def log_head(path: str, size: int) -> str:
    """Text of the first `size` bytes of the file at `path`, unpacked if it is gzip; ""
    where it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            head = (gzip.GzipFile(fileobj=file) if packed else file).read(size)
    except (OSError, EOFError, zlib.error):
        return ""
    return head.decode("utf-8-sig", errors="replace")


def log_sheet(path: str, gpu: str | None) -> Sheet | None:
    """A log as the cells of a measurement file, None for any other file."""
    if log_format(path) is None:
        return None
    table = read_log(path, gpu=gpu).table
    cells = table.map(lambda x: f"{x:.10g}" if isinstance(x, float) else str(x))
    cells = cells.where(table.notna(), "")
    return sheet_of(path, [*map(str, table)], cells.to_numpy(object).tolist())


def _on_gpu(table: pd.DataFrame, path: str, gpu: str | None) -> pd.DataFrame:
    """The table with `gpu` in its column; raises `ValueError` where the log names
    another GPU, or neither names one."""
    if gpu is None and "gpu" not in table:
        raise ValueError(
            f"`gpu` is missing: {path} does not name the GPU; give it with `--gpu`."
        )
    if gpu is None:
        return table
    card = read_gpu(gpu, exact=True)
    logged = sorted(set(table["gpu"])) if "gpu" in table else []
    if others := [x for x in logged if x not in (card.name, card.corrections)]:
        raise ValueError(
            f"`gpu` is '{gpu}', but {path} was logged on {', '.join(others)}; leave it "
            "out, or give the log of that GPU."
        )
    path_or_name = gpu if gpu.lower().endswith(".toml") else card.name
    rest = table.drop(columns="gpu", errors="ignore")
    rest.insert(0, "gpu", path_or_name)
    return rest


def _share(table: pd.DataFrame, passes: int, path: str) -> None:
    """Divides time and energy of each row by its passes."""
    if "time_s" not in table:
        raise ValueError(
            f"`passes` is {passes}, but the rows of {path} are scrapes without a "
            "length; leave it out."
        )
    for name in _TOTALS:
        if name in table:
            table[name] = np.asarray(table[name], float) / passes
    table["iterations"] = passes
