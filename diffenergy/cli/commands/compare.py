"""`diffenergy compare`: estimates side by side."""

import json
import math
import string
from pathlib import Path
from typing import Any, Final

from ...estimator import COMPARED, EstimateResult, Task, comparison
from ...keys import version
from ...report import comparison_blocks
from ..run import Outcome, listing
from .compare_flags import Flags
from .estimate import prefix_errors, task_of
from .estimate_flags import estimate_flags

_TITLE: Final = ("model", "gpu", "phase", "batch", "input_len", "output_len", "dtype")


def run(flags: Flags) -> Outcome:
    """Evaluates or reads all sides."""
    arguments = (flags.a, flags.b, *(flags.others or ()))
    if len(arguments) > len(string.ascii_uppercase):
        raise ValueError(f"{len(arguments)} estimates are given; allowed are 26.")
    texts = dict(zip(string.ascii_uppercase, arguments, strict=False))
    read = {word: prefix_errors(word, _prepare, text) for word, text in texts.items()}
    sides = {
        word: prefix_errors(word, side.run) if isinstance(side, Task) else side
        for word, side in read.items()
    }
    summaries = {
        word: side.summary if isinstance(side, EstimateResult) else side
        for word, side in sides.items()
    }
    content = comparison(*summaries.values())
    warnings = [f"{x}: {y}" for x, side in summaries.items() for y in side["warnings"]]
    line = f"{len(arguments)} estimates side by side"
    return listing(line, content, comparison_blocks(content), warnings=warnings)


def _prepare(text: str) -> dict[str, Any] | Task:
    """The summary in a JSON file other than a model's config, or the task that quoted
    flags describe."""
    named = text.lower().endswith(".json")
    if named and (len(text.split()) == 1 or Path(text).exists()):
        content = _read(text)
        if not (isinstance(content, dict) and "model_type" in content):
            return _checked(content, text)
    return task_of(estimate_flags(text, "compare"))


def _read(text: str) -> Any:
    try:
        return json.loads(Path(text).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"'{text}' cannot be read ({error.strerror}); give a file of `diffenergy "
            "estimate --out`, or quoted flags."
        ) from None
    except (ValueError, RecursionError):
        raise ValueError(
            f"'{text}' is no JSON; give a file of `diffenergy estimate --out`."
        ) from None


def _checked(summary: Any, text: str) -> dict[str, Any]:
    """Summary in the JSON file `text` of `estimate`; older ones name no version."""
    if not isinstance(summary, dict) or "points" in summary:
        what = "several settings" if isinstance(summary, dict) else "no JSON object"
        raise ValueError(f"'{text}' holds {what}; give one estimate.")
    written = summary.get("schema", version())
    if written != version():
        raise ValueError(
            f"`schema` of '{text}' is {written!r}; this version reads {version()}: "
            "write the file again with `diffenergy estimate --out`."
        )
    for key in COMPARED:
        value = summary.get(key)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and value > 0):  # pyright: ignore
            raise ValueError(
                f"`{key}` in '{text}' is {value!r}; allowed is a number above 0, as "
                "`diffenergy estimate --json` writes it."
            )
    absent = {**dict.fromkeys(_TITLE), "assumed": {}, "warnings": []}
    return {**absent, **{x: y for x, y in summary.items() if x != "schema"}}
