"""Rooms import from rooms above them alone, and what these list; what is public."""

import ast
import functools
import graphlib
import importlib
import inspect
import re
from pathlib import Path

import pytest

import diffenergy

PACKAGE = Path(diffenergy.__file__).parent
ROOT = PACKAGE.parent
ROOMS = (
    "units", "files", "schema", "dtypes", "reading", "prices", "requests", "compiling",
    "records", "smooth", "search", "keys", "charts", "results", "power_time",
    "corrections", "hardware", "nodes", "physics", "collectives", "kernels", "workload",
    "imports", "plans", "estimator", "sweeps", "parallel", "serving", "measurements",
    "service", "fitting", "measure", "dvfs", "codesign", "fleet", "report", "exploring",
    "cli", "__main__",
)  # fmt: skip
"""In the order of the flow; a room is a package or a single file."""
FILES = sorted(PACKAGE.rglob("*.py"))
FACES = sorted(PACKAGE.rglob("__init__.pyi"))
"""What rooms list as public."""
PLUGINS = ("kernels", "workload/models", "cli", "measurements/importers")
"""Where a file is found by being there, or stands at the edge: no `_` in its name."""


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


def test_rooms_import_from_above_and_what_others_list():
    """`from ..room import name`, never `from ..room._module import name`."""
    for path in FILES:
        own = room(path)
        allowed = set(ROOMS[: ROOMS.index(own) + 1]) if own else set(ROOMS)
        if own == "results":  # an answer's words and pictures load when asked for
            allowed.add("report")
        below = imported(path) - allowed
        deep = {
            name
            for name in modules(path)
            if name.split(".")[0] not in ("", own)
            and any(part.startswith("_") for part in name.split(".")[1:])
        }
        wrong = sorted(below | deep)
        assert not wrong, f"{path.relative_to(PACKAGE)} imports {wrong}"


def test_files_import_each_other_one_way():
    """No circles, not even of imports inside functions or for types."""
    names = {_dotted(path): path for path in FILES}
    arrows = {
        name: {x for x in _targets(path, names) if x in names and x != name}
        for name, path in names.items()
    }
    order = graphlib.TopologicalSorter(arrows)
    order.prepare()  # raises CycleError with the circle


def _dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts).removesuffix("__init__").rstrip(".")


def _targets(path: Path, names: dict[str, Path]) -> set[str]:
    """Files that a file imports names of: of a room's lists, where these come from."""
    result = set()
    for name in modules(path):
        if name in names:
            result |= {name} if names[name].name != "__init__.py" else set()
            continue
        package, _, last = name.rpartition(".")
        if package in names:
            result.add(_listed(names[package]).get(last, package))
    return result


@functools.cache
def _listed(init: Path) -> dict[str, str]:
    """File of each name that a package lists."""
    face = init.with_suffix(".pyi")
    package = _dotted(init)
    return {
        alias.name: f"{package}.{node.module or alias.name}".strip(".")
        for node in (parsed(face).body if face.exists() else ())
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_report_only_renders():
    """It computes no estimate: no traced arrays, no programs, no physics."""
    for path in FILES:
        if room(path) != "report":
            continue
        below = imported(path) & {"compiling", "physics"}
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            below |= {name.split(".")[0] for name in names} & {"jax", "equinox"}
        assert not below, f"{path.relative_to(PACKAGE)} imports {sorted(below)}"


# --- collectives: a room that could stand alone, and a verifier that does

COLLECTIVES = sorted((PACKAGE / "collectives").rglob("*.py"))
TYPES = {"_topology", "_demand", "_schedule", "_violation"}
"""Modules of `collectives` that hold data types alone."""
VERIFIER = {"_verify", "_verify_sums", "_verify_switches"}
ENTRY = {"verify", "Violation"}
"""What the rest may take from `_verify`."""
MODEL = {
    "units", "files", "schema", "reading", "requests", "results", "search",
    "hardware",
    "physics.static_power",  # of an idle GPU
    "physics.with_corrections",  # of a byte of memory traffic
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
        assert not parts & (VERIFIER - {"_verify"}), path
        entries = {
            rest[-1]
            for first, *rest in taken
            if first == "collectives" and rest[-2:-1] == ["_verify"]
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

PUBLIC = {"diffenergy"} | {
    f"diffenergy.{x}"
    for x in (
        "codesign", "collectives", "dvfs", "fitting", "fleet", "measurements",
        "service", "sweeps",
    )
}  # fmt: skip
"""The package, and rooms that callers use by `de.room`."""


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
    """Docstrings of functions that callers use tell of every argument."""
    package, names = face(path)
    module = importlib.import_module(package)
    assert set(dir(module)) == set(module.__all__) == names
    for name in sorted(names):
        thing = getattr(module, name)
        assert thing is not None
        if package not in PUBLIC or not inspect.isfunction(thing):
            continue
        text = inspect.getdoc(thing) or ""
        lacking = [
            x for x in inspect.signature(thing).parameters
            if not re.search(rf"\b{x}\b", text)
        ]  # fmt: skip
        assert not lacking, f"{package}.{name} does not tell of {lacking}"
    with pytest.raises(AttributeError):
        module.nothing  # noqa: B018


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
