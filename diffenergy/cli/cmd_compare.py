"""`diffenergy compare`: two estimates side by side."""

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from . import output
from .estimation import Result, Task, prepare
from .quoted import estimate_flags

_NEEDED: Final = ("time_s", "energy_j", "avg_power_w")
_TITLE: Final = ("model", "gpu", "phase", "batch", "input_len", "output_len", "dtype")


def add_to(app: typer.Typer):
    """Adds the command."""
    app.command("compare")(_compare)


def _compare(
    a: Annotated[
        str,
        typer.Argument(
            help="JSON file of `estimate --json`, or one quoted set of its flags."
        ),
    ],
    b: Annotated[str, typer.Argument(help="The same; ratios are B / A.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone.")] = False,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Also write .json.")
    ] = None,
):
    """Time, energy and power of two estimates and their ratios, B / A.

    \b
    Examples:
      diffenergy compare "gpt2 --gpu l40s" "gpt2 --gpu h100-sxm --batch 2"
      diffenergy compare before.json "gpt2 --gpu a10 --dtype fp16" --json
    """
    writers = {".json": lambda: output.json_text(both)}
    output.writer(out, writers)
    sides = [_named(word, _prepare, text) for word, text in (("A", a), ("B", b))]
    from ..report._tables.comparison import comparison, comparison_parts

    found = [
        _named(word, side.run) if isinstance(side, Task) else side
        for word, side in zip("AB", sides, strict=True)
    ]
    both = comparison(*(x.summary if isinstance(x, Result) else x for x in found))
    read = [side.flags.inputs for side in sides if isinstance(side, Task)]
    output.save(out, writers, inputs=[a, b, *itertools.chain(*read)])
    output.show(both, as_json, lambda: comparison_parts(both))
    for word, side in zip("AB", found, strict=True):
        if isinstance(side, Result):
            output.notes(f"{word}: {note}" for note in side.notes)


def _named(word: str, step: Callable[..., Any], *args: Any) -> Any:
    """`step(*args)`; errors say which side they belong to."""
    try:
        return step(*args)
    except (ValueError, output.Infeasible) as error:
        raise type(error)(f"{word}: {error}") from None


def _prepare(text: str) -> dict[str, Any] | Task:
    """The summary in a file, or the task that quoted flags describe."""
    return (
        _read(text) if _is_summary(text) else prepare(estimate_flags(text, "compare"))
    )


def _is_summary(text: str) -> bool:
    """Whether the text is the name of a JSON file other than a model's config."""
    if not text.lower().endswith(".json"):
        return False
    path = Path(text)
    if not path.exists():
        return len(text.split()) == 1
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return True  # `_read` says what is wrong
    return not (isinstance(content, dict) and "model_type" in content)


def _read(text: str) -> dict[str, Any]:
    """Summary in a JSON file of `estimate`."""
    try:
        summary = json.loads(Path(text).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"'{text}' cannot be read ({error.strerror}); give a file of `diffenergy "
            "estimate --out`, or quoted flags."
        ) from None
    except (ValueError, RecursionError):
        raise ValueError(
            f"'{text}' is no JSON; give a file of `diffenergy estimate --out`."
        ) from None
    if not isinstance(summary, dict) or "points" in summary:
        what = "several settings" if isinstance(summary, dict) else "no JSON object"
        raise ValueError(f"'{text}' holds {what}; give one estimate.")
    for key in _NEEDED:
        value = summary.get(key)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and value > 0):  # pyright: ignore
            raise ValueError(
                f"`{key}` in '{text}' is {value!r}; allowed is a number above 0, as "
                "`diffenergy estimate --json` writes it."
            )
    return {**dict.fromkeys(_TITLE), "assumed": {}, **summary}
