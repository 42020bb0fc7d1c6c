"""Every command line in README.md, CONTRIBUTING.md, docs/ and the help runs (`pages`);
files that pages name exist; the site builds strictly.

Blocks and rows run each in a folder of their own, which holds the files of
docs/examples/ and links to the folders of the repository. What takes over 2 s runs
among the slow tests alone, what takes over half a minute among the `long` ones. A GPU
is simulated. Figures below a block are those that its commands print, and a table of
figures without a command names its source (`answers`).
"""

import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from answers import corrected, figures, unmarked, unsaid
from pages import (
    LANGUAGES,
    PAGES,
    ROOT,
    SHARED,
    Block,
    blocks,
    commands_of,
    example_folder,
    examples,
    fences,
    outputs,
    python_blocks,
    simulated_board,
    takes_long,
    unprinted,
)  # fmt: skip

import diffenergy
from diffenergy.cli import app

QUICK: Final = ("gpus", "models", "measure --dry-run")
"""How commands go on that neither compile nor search."""
ALWAYS: Final = (
    "diffenergy estimate gpt2 --gpu a100-sxm-80gb --sm-clock 900,1410 --json"
)
"""The one that compiles and runs each time."""


def marks(block: Block) -> list[pytest.MarkDecorator]:
    """What is needed to run a block."""
    marks = [pytest.mark.shared_data] if block.shared else []
    if takes_long(block):
        marks.append(pytest.mark.long)
    return [*marks, *([] if quick(block) else [pytest.mark.slow])]


def quick(block: Block) -> bool:
    """Whether every run of the tests tries it."""
    begins = tuple(f"diffenergy {words}" for words in QUICK)
    return all(command.startswith((*begins, ALWAYS)) for command in block.commands)


def every() -> list[Any]:
    """Test parameters of all blocks; commands that another block has run once, unless
    the page says what they answer."""
    blocks_of_pages = [block for page in PAGES for block in blocks(page)]
    result: list[Block] = []
    # the longest first, and those that say nothing behind those that do
    for block in sorted([*examples(), *blocks_of_pages], key=_rank):
        if _says(block) or not any(_repeats(block, other) for other in result):
            result.append(block)
    return [
        pytest.param(block, id=f"{block.page}:{block.line}", marks=marks(block))
        for block in result
    ]


def _says(block: Block) -> bool:
    """Whether the page says what the commands answer."""
    return bool(figures(block.said) or block.printed)


def _rank(block: Block) -> tuple[bool, int]:
    return not _says(block), -len(block.commands)


def _repeats(block: Block, other: Block) -> bool:
    """Whether a block that runs as often as this one has its commands."""
    words, own = ("\n".join((*x.commands, "")) for x in (other, block))
    return own in words and marks(other) == marks(block)


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder with the examples, beside which the shared tables lie."""
    with example_folder() as here:
        yield here


@pytest.fixture
def board() -> Iterator[None]:
    """An H100 that only pretends."""
    with simulated_board():
        yield


@pytest.mark.parametrize("block", every())
def test_commands_run(block: Block, folder: Path, board: None):
    if block.shared and not Path(SHARED).exists():
        pytest.skip(f"the shared measurement tables are not at {SHARED}")
    answers = outputs(block)
    lost = unprinted(block.printed, answers[len(block.commands) - 1])
    assert not lost, f"{block.page} prints {lost}: `python docs/figures.py --write`"
    wrong = unsaid(block.said, [*answers, *block.commands])
    stale = corrected(wrong, answers)
    assert not wrong, f"{block.page} says {stale}; the answer is {answers}"


CODE: Final = re.compile(r"`([^`\n]+)`")
NAMED: Final = re.compile(
    r"(?<![\w/.])((?:diffenergy|calibration|tests|docs|notebooks)/[\w./-]*)"
)
"""Files and folders of the repository, in backticks, alone or in a command; NAME stands
for one's own."""
SHOWN: Final = re.compile(r"^::: (\S+)$", re.MULTILINE)
"""Code whose docstring a page shows."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_pages_name_and_show_is_there(page: Path):
    """Fences with commands are `sh`, tables of figures have a command or a source,
    named files exist, and shown code has a docstring, once."""
    text = page.read_text(encoding="utf-8")
    for line, language, lines, _ in fences(text):
        if language not in LANGUAGES:
            assert not commands_of(lines), f"{page.name}:{line} runs, but is no `sh`"
    answered = [
        (line, len(lines))
        for line, language, lines, _ in fences(text)
        if language == "python" or (language in LANGUAGES and commands_of(lines))
    ]
    wrong = unmarked(text, answered)
    assert not wrong, f"{page.name}, lines {wrong}: put `<!-- elsewhere, by ... -->`"
    codes = [x for x in CODE.findall(text) if "NAME" not in x]
    named = [x for code in codes for x in NAMED.findall(code)]
    lost = [x for x in named if not (ROOT / x.rstrip(".")).exists()]
    assert not lost, f"{page.name} names {lost}"
    shown = SHOWN.findall(text)
    silent = [x for x in shown if not (pkgutil.resolve_name(x).__doc__ or "").strip()]
    assert not silent, f"{page.name} shows {silent}"
    assert len(set(shown)) == len(shown), f"{page.name} shows some code twice"


def test_readme_has_the_commands_that_ci_runs():
    """Two fenced pytest commands: those of `.ci/run`."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    tests = ["\n".join(x) for _, _, x, _ in fences(text) if "-m pytest" in "\n".join(x)]
    assert len(tests) == 2 and "slow and" in tests[1] and "slow" not in tests[0]


def errors_of(path: Path) -> set[str]:
    """Errors in a page's tables: `time / power / energy`, and single ones."""
    rows = [x for x in path.read_text().splitlines() if x.lstrip().startswith("| ")]
    text = re.sub(r" \(\d+\)", "", "\n".join(rows)).replace(" | ", " / ")
    three = r"(?=(?<![\d.])(\d+\.\d / (?:\d+\.\d|-) / \d+\.\d)(?![\d.]))"
    return {*re.findall(three, text), *re.findall(r"\d+\.\d+", text)}


def section(path: Path, first: str, last: str, folder: Path) -> Path:
    """A file with the part of a page between two headings."""
    text = path.read_text().split(first)[1].split(last)[0]
    (part := folder / "part.md").write_text(text)
    return part


def test_errors_in_pages_are_those_of_the_accuracy_table(tmp_path: Path):
    """Those of README.md stand in docs/accuracy.md, those of kernels and passes there
    in the table of calibration/."""
    page, table = ROOT / "docs" / "accuracy.md", ROOT / "calibration" / "README.md"
    short = section(ROOT / "README.md", "## Accuracy", "## Speed", tmp_path)
    shown = errors_of(short)
    assert len(shown) > 25 and not shown - errors_of(page)
    shown = errors_of(section(page, "## Whole", "## Served", tmp_path))
    assert len(shown) > 60 and not shown - errors_of(table)


def test_all_name_one_version():
    """The package, its metadata and the newest heading of the changelog."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    newest = re.findall(
        r"^## (\d\S+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M
    )
    assert project["version"] == newest[0] == diffenergy.__version__


MAPPED: Final = re.compile(r"^\| [^|]+ \| `(\w+)` \| .* \| `([^`]+)\.py` \|$", re.M)
"""Name and file in a row of the developers' map."""


def test_the_map_names_records_and_functions_where_they_live():
    page = (ROOT / "docs" / "explanation" / "how-it-works.md").read_text("utf-8")
    mapped = MAPPED.findall(page)
    assert len(mapped) > 10
    for name, file in mapped:
        value = getattr(
            importlib.import_module(f"diffenergy.{file.split('/')[0]}"), name
        )
        module = value.__module__.removesuffix(".__init__").split(".")[1:]
        assert module == file.removesuffix("/__init__").split("/"), name
        assert inspect.isclass(value) or name in page.split("```")[1], name
    for name in re.findall(r"`((?:[a-z]+\.)[A-Za-z]\w+)`", page):
        pkgutil.resolve_name(f"diffenergy.{name.removeprefix('de.')}")


@pytest.mark.parametrize("script", ["models.py", "physics.py"])
def test_parts_of_pages_are_what_their_scripts_write(script: str):
    names = runpy.run_path(str(ROOT / "docs" / script))
    page = names["PAGE"].read_text(encoding="utf-8")
    assert names["written"](page) == page, f"run `python docs/{script}`"


def examples_in_python() -> list[Any]:
    """Test parameters of the blocks of Python; one page has tests of its own."""
    tested = ROOT / "docs" / "how-to" / "codesign.md"
    pages = [x for x in PAGES if x != tested]
    long = ("estimate(", "sensitivity(", "serving.", "dvfs.plan(")
    return [
        pytest.param(
            block,
            id=f"{block.page}:{block.line}",
            marks=[pytest.mark.slow] if any(x in block.python for x in long) else [],
        )
        for page in pages
        for block in python_blocks(page)
    ]


@pytest.mark.parametrize("block", examples_in_python())
def test_python_runs(block: Block, folder: Path):
    out, *also = outputs(block)
    assert out.count("\n") >= len(re.findall(r"^print\(", block.python, re.MULTILINE))
    assert "nan" not in out.split()
    wrong = unsaid(block.said, [out, *also])
    assert not wrong, f"{corrected(wrong, [out])}; {out}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built pages."""
    folder = tmp_path_factory.mktemp("site")
    wanted = ("mkdocs", "material", "mkdocstrings")
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed (the extra `docs`)")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [*command, "--site-dir", str(folder)],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.mark.slow
def test_the_site_builds_without_warnings(site: Path):
    commands = (site / "reference" / "commands" / "index.html").read_text()
    assert all(name in commands for name in app.names())
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'(?:src|href)="(https?://[^"]+\.(?:js|css))"', page.read_text()
        )
        assert not loaded, f"{page} loads {loaded}"


OVERLAPS: Final = """() => [...document.querySelectorAll('.md-typeset pre')].map(
pre => {
  const [code, button] = ['code', '.md-code__nav, .md-clipboard'].map(
    x => pre.querySelector(x)?.getBoundingClientRect());
  return code && button ? code.right - button.left : null;
}).filter(x => x !== null)"""
"""By how much each block of code reaches under its copy button, CSS pixels."""


@pytest.mark.slow
def test_copy_buttons_of_the_site_lie_beside_the_code(site: Path, browser: Any):
    page = browser.new_page(viewport={"width": 390, "height": 844})
    for name in ("index", "dvfs/index", "how-to/my-gpu/index"):
        page.goto((site / f"{name}.html").as_uri())
        page.wait_for_selector(".md-code__nav, .md-clipboard", state="attached")
        result = page.evaluate(OVERLAPS)
        assert result and max(result) <= 0, name
        assert page.evaluate("document.documentElement.scrollWidth") == 390, name
