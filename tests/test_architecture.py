"""Rooms import from rooms above them alone; what is public; files and folders."""

import ast
import functools
import importlib
import inspect
import re
from pathlib import Path

import pytest

import diffenergy

PACKAGE = Path(diffenergy.__file__).parent
ROOT = PACKAGE.parent
ROOMS = (
    "units", "files", "schema", "dtypes", "compiling", "records", "smooth", "search",
    "results",
    "corrections", "hardware", "physics", "collectives", "kernels", "workload",
    "imports", "plans", "estimator", "sweeps", "parallel", "serving", "measurements",
    "fitting", "measure", "dvfs", "codesign", "fleet", "report", "exploring", "cli",
    "__main__",
)  # fmt: skip
"""In the order of the flow; a room is a package or a single file."""
FILES = sorted(PACKAGE.rglob("*.py"))
FACES = sorted(PACKAGE.rglob("__init__.pyi"))
"""What rooms list as public."""
MOST_LINES = 350
MOST_LINES_OF_A_FUNCTION = 60
MOST_ENTRIES = 12
PLUGINS = ("kernels", "workload/models", "cli", "measurements/importers")
"""Where a file is found by being there, or stands at the edge: no `_` in its name."""
GROWING = (
    "diffenergy/workload/models", "diffenergy/measurements/importers",
    "calibration/importers", "tests/calibration/importers",
)  # fmt: skip
"""Folders of files of one kind, each found by being there: as many as there are."""


def room(path: Path) -> str:
    """Room of a file; the package itself is ""."""
    part = path.relative_to(PACKAGE).parts[0]
    return "" if part == "__init__.py" else part.removesuffix(".py")


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text())


@functools.cache
def modules(path: Path) -> frozenset[str]:
    """What a file imports from the package, inside functions too: dotted names without
    the package's; of `from .room import name` both `room` and `room.name`."""
    package = ["diffenergy", *path.relative_to(PACKAGE).parent.parts]
    names = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *(node.module or "").split(".")]
            module = [part for part in module if part]
            names += [module, *([*module, alias.name] for alias in node.names)]
    inside = [name for name in names if name[0] == "diffenergy"]
    return frozenset(".".join(name[1:]) for name in inside if len(name) > 1)


def imported(path: Path) -> set[str]:
    """Rooms that a file imports."""
    return {name.split(".")[0] for name in modules(path)} & set(ROOMS)


def test_rooms_are_listed():
    assert {room(path) for path in FILES} <= {"", *ROOMS}


@pytest.mark.parametrize("name", ROOMS)
def test_rooms_import_from_above(name: str):
    allowed = set(ROOMS[: ROOMS.index(name) + 1])
    if name == "results":  # an answer's words and pictures load when they are asked for
        allowed.add("report")
    for path in FILES:
        if room(path) == name:
            below = imported(path) - allowed
            assert not below, f"{path.relative_to(PACKAGE)} imports {sorted(below)}"


# --- collectives: a room that could stand alone, and a verifier that does

COLLECTIVES = sorted((PACKAGE / "collectives").rglob("*.py"))
TYPES = {"topology", "demand", "schedule", "violation"}
"""Modules of `collectives` that hold data types alone."""
VERIFIER = {"verify", "verify_sums", "verify_switches"}
ENTRY = {"verify", "Violation"}
"""What the rest may take from `verify`."""
MODEL = {
    "units", "files", "schema", "results", "search",
    "hardware", "hardware._spec", "hardware._switching",
    "physics._phase",  # of an idle GPU
    "physics._power",  # of a byte of memory traffic
}  # fmt: skip
"""Modules of other rooms that `collectives` may import."""


def own(path: Path) -> set[str]:
    """Modules of `collectives`, by their last name, that one of its files imports."""
    stems = {other.stem for other in COLLECTIVES}
    named = [name.split(".") for name in modules(path)]
    return {
        part for first, *rest in named if first == "collectives" for part in rest
    } & stems


def test_the_verifier_shares_data_types_alone():
    files = {path.stem: path for path in COLLECTIVES}
    assert VERIFIER | TYPES <= set(files)
    for name in VERIFIER | TYPES:
        allowed = TYPES | VERIFIER if name in VERIFIER else TYPES
        assert own(files[name]) <= allowed, name
        assert not imported(files[name]) - {"collectives"}, name


def test_nothing_reaches_into_the_verifier():
    for path in FILES:
        if path.stem in VERIFIER:
            continue
        taken = [name.split(".") for name in modules(path)]
        parts = {
            part for first, *rest in taken if first == "collectives" for part in rest
        }
        assert not parts & (VERIFIER - {"verify"}), path
        entries = {
            rest[-1]
            for first, *rest in taken
            if first == "collectives" and rest[-2:-1] == ["verify"]
        }
        assert entries <= ENTRY | TYPES, path


def test_collectives_need_little_of_the_model():
    """Units, files, results, solvers, and the power of an idle GPU."""
    for path in COLLECTIVES:
        for name in modules(path):
            inside = name.split(".")[0] == "collectives"
            above = any(allowed.startswith(f"{name}.") for allowed in MODEL)
            known = {name, name.rpartition(".")[0]} & MODEL
            assert inside or above or known, f"{path.name} imports {name}"


# --- what is public


def face(path: Path) -> tuple[str, set[str]]:
    """Package of a list of public names, and the names."""
    package = ".".join(["diffenergy", *path.parent.relative_to(PACKAGE).parts])
    names = {
        alias.name
        for node in parsed(path).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return package, names


@pytest.mark.parametrize("path", FACES, ids=lambda path: face(path)[0])
def test_a_room_shows_its_public_names_alone(path: Path):
    package, names = face(path)
    module = importlib.import_module(package)
    assert set(dir(module)) == set(module.__all__) == names
    for name in names:
        thing = getattr(module, name)
        assert inspect.ismodule(thing) or thing is not None
    with pytest.raises(AttributeError):
        module.nothing  # noqa: B018


@pytest.mark.parametrize("path", FACES, ids=lambda path: face(path)[0])
def test_public_functions_tell_what_they_take(path: Path):
    """Every argument of a public function of a room stands in its docstring."""
    package, names = face(path)
    if package not in ("diffenergy", *PUBLIC):
        return
    for name in sorted(names):
        function = getattr(importlib.import_module(package), name)
        if not inspect.isfunction(function):
            continue
        text = inspect.getdoc(function) or ""
        arguments = [x for x in inspect.signature(function).parameters if x != "self"]
        lacking = [x for x in arguments if not re.search(rf"`?\b{x}\b", text)]
        assert not lacking, f"{package}.{name} does not tell of {lacking}"


PUBLIC = tuple(
    f"diffenergy.{name}"
    for name in (
        "codesign",
        "collectives",
        "dvfs",
        "fitting",
        "fleet",
        "measurements",
        "sweeps",
    )
)
"""Rooms that callers use by `de.room`."""


def test_what_is_not_listed_begins_with_an_underscore():
    for path in FACES:
        folder = path.parent
        if folder == PACKAGE:
            continue
        where = str(folder.relative_to(PACKAGE))
        if where in PLUGINS:
            continue
        stems = {p.stem for p in folder.iterdir() if p.suffix == ".py" or p.is_dir()}
        stems -= {"models", "importers"}
        plain = {stem for stem in stems if not stem.startswith("_")}
        assert not plain, f"{where}: {sorted(plain)}"


def test_notebooks_and_pages_use_public_names_alone():
    """`import diffenergy as de`, and rooms by what they list."""
    texts = [*ROOT.glob("notebooks/*.py"), *ROOT.glob("docs/**/*.md")]
    for path in [ROOT / "README.md", *texts]:
        deep = re.findall(r"(?:from|import) (diffenergy\.\S*\._\S*)", path.read_text())
        assert not deep, f"{path.name} imports {deep}"


# --- sizes


def test_files_are_short():
    long = {
        str(path.relative_to(PACKAGE)): lines
        for path in FILES
        if (lines := len(path.read_text().splitlines())) > MOST_LINES
    }
    assert not long


def _length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_functions_are_short():
    """Signature and body; the text of a public question may be longer than both."""
    long = {}
    for path in FILES:
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.FunctionDef):
                continue
            first = node.body[0]
            told = _length(first) if ast.get_docstring(node) else 0
            lines = _length(node) - told
            if lines > MOST_LINES_OF_A_FUNCTION:
                long[f"{path.relative_to(PACKAGE)}:{node.name}"] = lines
    assert not long


def test_contributors_read_the_limits_that_are_checked():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    limits = f"files have at most {MOST_LINES} lines, folders {MOST_ENTRIES} entries"
    assert limits in " ".join(text.split())


def test_folders_can_be_held_in_a_head():
    """Rooms and calibration; the package's top, its data, `__init__` and folders that
    grow by a file for each of their kind apart."""
    crowded = {}
    for top in (PACKAGE, ROOT / "calibration", ROOT / "tests"):
        for folder in (top, *(x for x in top.rglob("*") if x.is_dir())):
            if folder in (PACKAGE, ROOT / "tests") or {"data", "__pycache__"} & set(
                folder.parts
            ):
                continue
            if str(folder.relative_to(ROOT)) in GROWING:
                continue
            entries = [
                x.name
                for x in folder.iterdir()
                if not x.name.startswith((".", "__")) and x.name != "conftest.py"
            ]
            if len(entries) > MOST_ENTRIES:
                crowded[str(folder.relative_to(ROOT))] = len(entries)
    assert not crowded
