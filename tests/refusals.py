"""Tables of refusals: calls, and the sentences that refuse them.

Each `tests/ROOM/test_refusals.py` is a list of rows, checked by one test:

    row("`size` is -8; allowed", plan, "ring-4", "all_gather", size=-8)
    row("line 2: `time` is '0'", read_table, File("stage,time\\na,0\\n", "table.csv"))
"""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class File(NamedTuple):
    """An argument that is the path of a file of this content (None: a folder)."""

    content: str | bytes | None
    name: str = "given.csv"

    def written(self, folder: Path) -> str:
        path = folder / self.name
        path.parent.mkdir(exist_ok=True)
        if self.content is None:
            path.mkdir()
        elif isinstance(self.content, bytes):
            path.write_bytes(self.content)
        else:
            path.write_text(self.content)
        return str(path)


class Refusal(NamedTuple):
    """A call, and the decisive part of the sentence that refuses it; several parts in
    their order have ` .. ` between them."""

    sentence: str
    kind: type[Exception] | tuple[type[Exception], ...]
    call: Callable[..., Any]
    args: tuple[Any, ...]
    keywords: dict[str, Any]

    def check(self, folder: Path):
        """Calls, and compares the one sentence that is raised. Types of arguments are
        not checked before the function itself sees them."""

        def value(x: Any) -> Any:
            return x.written(folder) if isinstance(x, File) else x

        call = _unchecked(self.call, *self.args, **self.keywords)
        args = [value(x) for x in call.args]
        keywords = {name: value(x) for name, x in call.keywords.items()}
        with pytest.raises(self.kind) as raised:
            call.func(*args, **keywords)
        rest = text = str(raised.value)
        for part in self.sentence.split(" .. "):
            assert part in rest, text
            rest = rest.partition(part)[2]
        assert "\n" not in text and text.endswith("."), text


def _unchecked(
    call: Callable[..., Any], *args: Any, **keywords: Any
) -> functools.partial[Any]:
    """The call without the check of types that tests run with."""
    if isinstance(call, functools.partial):
        return _unchecked(call.func, *call.args, *args, **call.keywords, **keywords)
    if inspect.ismethod(call):
        return _unchecked(call.__func__, call.__self__, *args, **keywords)
    return functools.partial(inspect.unwrap(call), *args, **keywords)


def row(
    sentence: str,
    call: Callable[..., Any],
    *args: Any,
    kind: type[Exception] | tuple[type[Exception], ...] = ValueError,
    **keywords: Any,
) -> Any:
    """A row of a table: `call(*args, **keywords)` raises `kind`."""
    return pytest.param(Refusal(sentence, kind, call, args, keywords), id=sentence)
