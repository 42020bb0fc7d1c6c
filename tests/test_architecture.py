"""Rooms import only from rooms above them; names and sizes of files."""

import ast
from pathlib import Path

import pytest

import diffenergy

PACKAGE = Path(diffenergy.__file__).parent
ROOMS = (
    "units", "files", "dtypes", "compiling", "records", "smooth", "corrections",
    "hardware", "physics", "kernels", "workload", "estimator", "metrics",
    "measurements", "fitting", "measure", "dvfs", "codesign", "collectives", "report",
    "cli",
)  # fmt: skip
"""In the order of the flow; a room is a package or a single file."""
FILES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 450


def room(path: Path) -> str:
    """Room of a file; the package itself is ""."""
    part = path.relative_to(PACKAGE).parts[0]
    return "" if part == "__init__.py" else part.removesuffix(".py")


def modules(path: Path) -> set[str]:
    """What a file imports from the package, inside functions too: dotted names without
    the package's; of `from .room import name` both `room` and `room.name`."""
    package = ["diffenergy", *path.relative_to(PACKAGE).parent.parts]
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *(node.module or "").split(".")]
            module = [part for part in module if part]
            names += [module, *([*module, alias.name] for alias in node.names)]
    inside = [name for name in names if name[0] == "diffenergy"]
    return {".".join(name[1:]) for name in inside if len(name) > 1}


def imported(path: Path) -> set[str]:
    """Rooms that a file imports."""
    return {name.split(".")[0] for name in modules(path)} & set(ROOMS)


def test_rooms_are_listed():
    assert {room(path) for path in FILES} <= {"", *ROOMS}


@pytest.mark.parametrize("name", [r for r in ROOMS])
def test_rooms_import_from_above(name: str):
    allowed = set(ROOMS[: ROOMS.index(name) + 1])
    for path in FILES:
        if room(path) == name:
            below = imported(path) - allowed
            assert not below, f"{path.relative_to(PACKAGE)} imports {sorted(below)}"


# --- collectives: a room that could stand alone, and a verifier that does

COLLECTIVES = sorted((PACKAGE / "collectives").rglob("*.py"))
TYPES = {"topology", "demand", "schedule", "violation"}
"""Modules of `collectives` that hold data types alone."""
VERIFIER = {"verify", "verify_sums", "verify_switches"}
ENTRY = {"verify", "Verified", "Violation"}
"""What the rest may take from `verify`."""
MODEL = {
    "units", "files", "dtypes", "compiling", "records",
    "corrections", "hardware", "hardware.spec",
    "physics.power",  # of an idle GPU, and of a byte of memory traffic
    "physics.links", "physics.link_costs",
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


@pytest.mark.parametrize("path", COLLECTIVES, ids=lambda path: path.stem)
def test_collectives_need_little_of_the_model(path: Path):
    """Records, dtypes, units, files, idle power, and the costs of links."""
    for name in modules(path):
        inside = name.split(".")[0] == "collectives"
        above = any(allowed.startswith(f"{name}.") for allowed in MODEL)
        known = {name, name.rpartition(".")[0]} & MODEL
        assert inside or above or known, f"{path.name} imports {name}"


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
