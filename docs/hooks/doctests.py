"""Griffe extension: the `>>>` examples of docstrings become blocks of code."""

import re
from typing import Any, Final

import griffe

_EXAMPLE: Final = re.compile(r"(?:^>>>.*\n?(?:^(?!>>>).+\n?)*)+", re.M)


class Doctests(griffe.Extension):
    """Puts a fence around the examples of every docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrites the docstring of `obj`."""
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(result: re.Match[str]) -> str:
    return f"\n```pycon\n{result[0].rstrip()}\n```\n"
