"""Writes the texts of modules and functions into docs/physics.md.

python docs/physics.py
"""

import ast
import inspect
import re
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).resolve().parent / "physics.md"
TEXT: Final = re.compile(
    r"(<!-- elsewhere, by the text of (\S+) -->\n).*?(<!-- end of the text -->\n)", re.S
)
"""The mark of a module or function, its text, and the end of it."""


def text_of(name: str) -> str:
    """The docstring of a module or of one of its functions, read without running it."""
    module, function = name, ""
    if not _file(name).exists():
        module, _, function = name.rpartition(".")
    tree = ast.parse(_file(module).read_text(encoding="utf-8"))
    named = [x for x in tree.body if getattr(x, "name", None) == function]
    [node] = named if function else [tree]
    assert isinstance(node, ast.Module | ast.FunctionDef), name
    return inspect.cleandoc(ast.get_docstring(node) or "")


def _file(module: str) -> Path:
    path = PAGE.parents[1].joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def written(page: str) -> str:
    """The page with today's text behind each mark."""
    return TEXT.sub(lambda x: f"{x[1]}\n{text_of(x[2])}\n\n{x[3]}", page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{PAGE.name}: {len(TEXT.findall(PAGE.read_text(encoding='utf-8')))} texts")
