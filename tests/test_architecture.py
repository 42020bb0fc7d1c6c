"""Rooms import only from rooms above them; names and sizes of files."""

import ast
from pathlib import Path

import pytest

import diffenergy

PACKAGE = Path(diffenergy.__file__).parent
ROOMS = (
    "units", "files", "dtypes", "records", "smooth", "corrections", "hardware",
    "physics", "kernels", "workload", "estimator", "metrics", "measurements",
    "fitting", "measure", "dvfs", "codesign", "collectives", "report", "cli",
)  # fmt: skip
"""In the order of the flow; a room is a package or a single file."""
FILES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 450


def room(path: Path) -> str:
    """Room of a file; the package itself is ""."""
    part = path.relative_to(PACKAGE).parts[0]
    return "" if part == "__init__.py" else part.removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Rooms that a file imports, inside functions too."""
    package = ["diffenergy", *path.relative_to(PACKAGE).parent.parts]
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *(node.module or "").split(".")]
            module = [part for part in module if part]
            names += [[*module, alias.name] for alias in node.names]
    inside = [name for name in names if name[0] == "diffenergy" and len(name) > 1]
    return {name[1] for name in inside if name[1] in ROOMS}


def test_rooms_are_listed():
    assert {room(path) for path in FILES} <= {"", *ROOMS}


@pytest.mark.parametrize("name", [r for r in ROOMS])
def test_rooms_import_from_above(name: str):
    allowed = set(ROOMS[: ROOMS.index(name) + 1])
    for path in FILES:
        if room(path) == name:
            below = imported(path) - allowed
            assert not below, f"{path.relative_to(PACKAGE)} imports {sorted(below)}"


def test_no_module_is_named_like_a_public_function():
    modules = {path.stem for path in FILES}
    functions = {name for name in diffenergy.__all__ if name.islower()}
    assert not modules & functions


def test_public_names_load():
    for name in diffenergy.__all__:
        assert getattr(diffenergy, name) is not None
    with pytest.raises(AttributeError):
        diffenergy.nothing  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_are_short(path: Path):
    assert len(path.read_text().splitlines()) <= MOST_LINES
