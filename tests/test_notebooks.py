"""Notebooks: source and kept notebook agree, run clean, and are small and honest."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("jupytext", reason="the extra `notebooks` is not installed")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

FOLDER = Path(__file__).parents[1] / "notebooks"
LARGEST = 600 * 1024  # B
SAME = 0.02
"""Relative distance between numbers of two runs: platforms differ a little."""
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")
SLIDERS = ("04_codesign", "06_future_gpu")
SEARCHED = ("05_collectives", "09_fleet")
"""Whose numbers depend on how much a solver finds in its time."""
LONG = ("04_codesign", "05_collectives", "07_serving", "09_fleet", "10_many_gpus")
"""What takes over 40 s."""
MEASURED = {"09_fleet": "fleet"}
"""What reads tables that are not in the repository, and their folder."""


def _builder() -> ModuleType:
    """`notebooks/build.py`."""
    spec = importlib.util.spec_from_file_location("build", FOLDER / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILD = _builder()
NAMES = BUILD.names()


def stored(name: str) -> Any:
    """The notebook as it is kept."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def outputs(notebook: Any) -> list[Any]:
    """All outputs in order."""
    return [x for cell in notebook.cells for x in cell.get("outputs", ())]


def texts(notebook: Any) -> list[str]:
    """What the outputs say in words."""
    result = []
    for output in outputs(notebook):
        data = output.get("data", {})
        text = data.get("text/markdown", data.get("text/plain", output.get("text", "")))
        if "image/png" not in data:
            result.append(text)
    return result


def agree(a: str, b: str) -> bool:
    """Whether two outputs have the same words and, nearly, the same numbers."""
    if NUMBER.sub("#", a).split() != NUMBER.sub("#", b).split():
        return False
    pairs = zip(NUMBER.findall(a), NUMBER.findall(b), strict=True)
    numbers = [[float(x.replace(",", "")) for x in pair] for pair in pairs]
    return all(abs(x - y) <= SAME * max(abs(x), abs(y), 1.0) for x, y in numbers)


def test_all_are_there():
    assert len({name[:2] for name in NAMES}) == len(NAMES) >= 7
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NAMES)


def test_agreement_is_noticed():
    assert agree("takes 100.0 J, 4 to 5 %", "takes  101.0 J, 4 to 5 %")
    assert not agree("takes 100 J", "takes 104 J")
    assert not agree("takes 100 J", "saves 100 J")


@pytest.mark.parametrize("name", NAMES)
def test_the_kept_notebook_is_its_source_run_once(name: str):
    """Small, with two pictures at least and no path of its maker."""
    ours, theirs = BUILD.source(name), stored(name)
    pairs = [
        [(cell.cell_type, cell.source) for cell in notebook.cells]
        for notebook in (ours, theirs)
    ]
    assert pairs[0] == pairs[1], f"run `python notebooks/build.py {name}`"
    assert theirs.metadata == ours.metadata
    nbformat.validate(theirs)
    assert (FOLDER / f"{name}.ipynb").stat().st_size < LARGEST
    code = [cell for cell in theirs.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    pictures = [x for x in outputs(theirs) if "image/png" in x.get("data", {})]
    assert len(pictures) >= 2
    assert not any(str(Path.home()) in text for text in texts(theirs))
    # sliders keep a picture for readers without a kernel
    moved = [cell for cell in theirs.cells if "de.explore(" in cell.source]
    assert len(moved) == (name in SLIDERS)
    for cell in moved:
        (data,) = (x["data"] for x in cell["outputs"])
        assert set(data) == {"image/svg+xml", "text/plain"}


@pytest.mark.parametrize("name", NAMES)
def test_one_question_and_one_answer_by_public_names(name: str):
    """Nothing that a stranger lacks; compilations are kept from the start."""
    notebook, source = stored(name), (FOLDER / f"{name}.py").read_text()
    title = notebook.cells[0].source.splitlines()[0]
    assert title.startswith("# ") and title.endswith("?")
    heading, answer = notebook.cells[-2:]
    assert heading.source == "## Answer"
    (text,) = texts(nbformat.v4.new_notebook(cells=[answer]))
    first, rests = text.split("\n\n")
    assert "**" in first and first.endswith(".")
    assert len(re.findall(r"\.\s", first)) == 0  # one sentence
    assert rests.startswith("*It rests on*")
    assert not re.search(r"import _|\._[a-z]|diffenergy\.cli", source)
    assert not re.search(r"\.\./(?!docs/)|[\"']/", source)
    switched = 'jax_enable_x64", True)\nde.enable_compilation_cache()\n' in source
    assert switched == ("import jax\n" in source)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[pytest.mark.long] * (x in LONG)) for x in NAMES],
)
def test_runs_without_error_or_warning(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if name in SLIDERS:
        pytest.importorskip("ipywidgets", reason="the extra `explore` is not there")
    if name in MEASURED:
        data = FOLDER.parents[1] / "shared" / "data" / MEASURED[name]
        if not data.is_dir():
            pytest.skip(f"{data} is not there.")
        monkeypatch.setenv("DIFFENERGY_FLEET_DATA", str(data))
    (tmp_path / "docs").symlink_to(FOLDER.parent / "docs")
    folder = tmp_path / "notebooks"  # as a checkout has it: examples are `../docs`
    folder.mkdir()
    result = BUILD.executed(name, folder)
    errors = [x.text for x in outputs(result) if x.get("name") == "stderr"]
    assert not errors
    assert not list(folder.iterdir())  # nothing is left where it ran
    before, now = texts(stored(name)), texts(result)
    assert len(before) == len(now)
    if name not in SEARCHED:
        stale = [(a, b) for a, b in zip(before, now, strict=True) if not agree(a, b)]
        assert not stale, f"run `python notebooks/build.py {name}`"
