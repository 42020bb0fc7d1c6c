"""Every command line in README.md, CONTRIBUTING.md, docs/ and the help runs; files that
pages name exist; the site builds strictly.

A command line begins with `diffenergy` or `python` and stands in a fenced block (`sh`,
`bash`, `console`) or in backticks in a row of a table. Blocks and rows run each in a
folder of their own, which holds the files of docs/examples/ and links to the folders of
the repository. What takes over 2 s runs among the slow tests alone. A comment in the
row, or above the block, marks what takes over 30 s (`<!-- slow -->`) and what is to end
with another exit status than 0 (`<!-- exits 3 -->`). A GPU, where one is asked for, is
simulated. Searches of designs are `long`. Figures below a block are those that its
commands answer, and a table of figures without a command names its source (`answers`).
"""

import contextlib
import importlib
import importlib.util
import io
import os
import pkgutil
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from answers import also, below, corrected, figures, unmarked, unsaid
from json_keys import check

from diffenergy.cli import app, main

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = (
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))
)  # fmt: skip
EXAMPLES: Final = ROOT / "docs" / "examples"
LINKED: Final = ("calibration", "docs", "notebooks", "tests")
LANGUAGES: Final = ("sh", "bash", "console")
SET_UP: Final = ("python3 -m venv", "python -m venv")
"""How the blocks begin that make an environment; they are tried by hand and by CI."""
PROGRAMS: Final = ("diffenergy ", "python ")
SLOW: Final = "<!-- slow -->"
QUICK: Final = ("gpus", "models", "measure --dry-run")
"""How commands go on that neither compile nor search."""
ALWAYS: Final = (
    "diffenergy estimate gpt2 --gpu a100-sxm-80gb --sm-clock 900,1410 --json"
)
"""The one that compiles and runs each time."""
LONG: Final = "diffenergy codesign"
"""How commands begin that search for about half a minute each."""
EXITS: Final = re.compile(r"<!-- exits (\d+) -->")
SHARED: Final = "../shared"
IN_TABLE: Final = re.compile(r"`((?:diffenergy|python) [^`]+)`")
SYNOPSIS: Final = re.compile(r" \[|\b[A-Z]{3,}\b")
"""What a line of a table has that shows how a command reads: `gpus show NAME`."""
REDIRECTED: Final = re.compile(r"^(.*\S)\s+>\s+(\S+)$")


class Block(NamedTuple):
    """Command lines that belong together, and where they stand."""

    page: str
    line: int
    commands: tuple[str, ...]
    remark: str = ""
    said: str = ""
    """What the page says of them; its figures are to be theirs."""

    @property
    def status(self) -> int:
        """How the commands are to end."""
        found = EXITS.search(self.remark)
        return int(found[1]) if found else 0

    @property
    def marks(self) -> list[pytest.MarkDecorator]:
        """What is needed to run it."""
        shared = any(SHARED in command for command in self.commands)
        marks = [pytest.mark.shared_data] if shared else []
        if any(command.startswith(LONG) for command in self.commands):
            marks.append(pytest.mark.long)
        return [*marks, *([] if self.quick else [pytest.mark.slow])]

    @property
    def quick(self) -> bool:
        """Whether every run of the tests tries it."""
        begins = tuple(f"diffenergy {words}" for words in QUICK)
        return SLOW not in self.remark and all(
            command.startswith((*begins, ALWAYS)) for command in self.commands
        )


def fences(text: str) -> Iterator[tuple[int, str, list[str], str]]:
    """Line (from 1), language, lines and the line above of every fenced block."""
    lines = text.splitlines()
    start: int | None = None
    for at, line in enumerate(lines):
        if not line.lstrip().startswith("```"):
            continue
        if start is None:
            start = at
            continue
        above = next((x for x in reversed(lines[:start]) if x.strip()), "")
        language = lines[start].strip().removeprefix("```").strip()
        yield start + 1, language, lines[start + 1 : at], above
        start = None


def commands_of(lines: Sequence[str]) -> list[str]:
    """Command lines among lines of a shell, those over several lines joined."""
    whole = "\n".join(lines).replace("\\\n", " ")
    plain = (line.strip().removeprefix("$ ") for line in whole.splitlines())
    return [
        " ".join(x.split("  # ")[0].split()) for x in plain if x.startswith(PROGRAMS)
    ]


def rows(text: str) -> Iterator[tuple[int, list[str], str]]:
    """Line, command lines and text of every row of a table with any."""
    fenced = {
        number
        for start, _, lines, _ in fences(text)
        for number in range(start, start + len(lines) + 2)
    }
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("|") and number not in fenced:
            found = [x for x in IN_TABLE.findall(line) if not SYNOPSIS.search(x)]
            if found:
                yield number, found, line


def blocks(path: Path) -> list[Block]:
    """All command lines of a page."""
    text, page = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
    found = [Block(page, at, tuple(words), line) for at, words, line in rows(text)]
    for at, language, lines, above in fences(text):
        commands = commands_of(lines) if language in LANGUAGES else []
        if commands and not "\n".join(lines).startswith(SET_UP):
            said = below(text, at, len(lines))
            found.append(Block(page, at, tuple(commands), above, said))
    return found


def examples() -> list[Block]:
    """The examples in the help of every command, one block each."""
    found = []
    root = app.build()
    for name in app.names():
        command = root.get_command(None, name)
        lines = (command.help or "").split("Examples:")[1].splitlines()
        for at, words in enumerate(commands_of(lines), 1):
            found.append(Block(f"help-of-{name}", at, (words,)))
    return found


def every() -> list[Any]:
    """Test parameters of all blocks; a single line that another block has runs once,
    unless the page says what it answers."""
    found = [*examples(), *(block for page in PAGES for block in blocks(page))]
    fast = [block for block in found if SLOW not in block.remark]
    long = {x for block in fast if len(block.commands) > 1 for x in block.commands}
    first = {block.commands: block for block in reversed(fast)}
    return [
        pytest.param(block, id=f"{block.page}:{block.line}", marks=block.marks)
        for block in found
        if SLOW in block.remark
        or figures(block.said)
        or (first[block.commands] is block and not long.issuperset(block.commands))
        or len(block.commands) > 1
    ]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder with the examples, beside which the shared tables lie."""
    here = tmp_path / "here"
    shutil.copytree(EXAMPLES, here)
    for name in LINKED:
        if (ROOT / name).exists():
            (here / name).symlink_to(ROOT / name)
    if (ROOT.parent / "shared").exists():
        (tmp_path / "shared").symlink_to(ROOT.parent / "shared")
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def board(monkeypatch):
    """An H100 that only pretends."""
    from diffenergy.measure import _bench as libraries
    from diffenergy.measure import _reading as reading
    from diffenergy.measure import _sensor as sensor

    world = importlib.import_module("measure.simulated").World()
    monkeypatch.setattr(sensor, "Sensor", lambda index: world)
    monkeypatch.setattr(libraries, "find_runner", lambda uuid: world)
    monkeypatch.setattr(reading, "Clock", lambda: world)


def execute(command: str, status: int = 0) -> str:
    """What one command line answers; fails unless it ends with `status` and says
    something."""
    redirected = REDIRECTED.match(command)
    text, target = redirected.groups() if redirected else (command, None)
    program, *words = shlex.split(text)
    if program == "python":
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
        code, out, err = done.returncode, done.stdout, done.stderr
    else:
        stdout, stderr = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            code = main(words)
        out, err = stdout.getvalue(), stderr.getvalue()
        if "--json" in words and out:
            check(words[0], out)
    assert code == status, f"{command}\nexits {code}\n{err}{out}"
    assert err if status else out, f"{command} prints nothing"
    if target is not None:
        Path(target).write_text(out, encoding="utf-8")
    return out + err


@pytest.mark.parametrize("block", every())
def test_commands_run(block: Block, folder: Path, board: None):
    if any(SHARED in x for x in block.commands) and not Path(SHARED).exists():
        pytest.skip(f"the shared measurement tables are not at {SHARED}")
    answers = [execute(command, block.status) for command in block.commands]
    answers += [execute(command) for command in also(block.said)]
    wrong = unsaid(block.said, [*answers, *block.commands])
    stale = corrected(wrong, answers)
    assert not wrong, f"{block.page} says {stale}; the answer is {answers}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_fences_with_commands_are_marked_as_shell(page: Path):
    for line, language, lines, _ in fences(page.read_text(encoding="utf-8")):
        if language not in LANGUAGES:
            assert not commands_of(lines), f"{page.name}:{line} runs, but is no `sh`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_of_figures_are_answered_or_say_their_source(page: Path):
    text = page.read_text(encoding="utf-8")
    answered = [
        (line, len(lines))
        for line, language, lines, _ in fences(text)
        if language == "python" or (language in LANGUAGES and commands_of(lines))
    ]
    wrong = unmarked(text, answered)
    assert not wrong, f"{page.name}, lines {wrong}: put `<!-- elsewhere, by ... -->`"


NAMED: Final = re.compile(
    r"`((?:diffenergy|calibration|tests|docs|notebooks)/[^` *]*)`"
)
"""Files and folders of the repository, in backticks; NAME stands for one's own."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_pages_name_exist(page: Path):
    named = NAMED.findall(page.read_text(encoding="utf-8"))
    lost = [x for x in named if "NAME" not in x and not (ROOT / x).exists()]
    assert not lost, f"{page.name} names {lost}"


SHOWN: Final = re.compile(r"^::: (\S+)$", re.MULTILINE)
"""Code whose docstring a page shows."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_that_pages_show_tells_something(page: Path):
    shown = SHOWN.findall(page.read_text(encoding="utf-8"))
    silent = [x for x in shown if not (pkgutil.resolve_name(x).__doc__ or "").strip()]
    assert not silent, f"{page.name} shows {silent}"
    assert len(set(shown)) == len(shown), f"{page.name} shows some code twice"


def test_errors_in_readme_are_those_of_the_accuracy_table():
    """Each error of time / power / energy, and every other figure of these tables."""
    first, last = "## Accuracy", "One joint fit"
    readme = (ROOT / "README.md").read_text().split(first)[1].split(last)[0]
    shown = "\n".join(x for x in readme.splitlines() if x.startswith("| "))
    table = (ROOT / "calibration" / "README.md").read_text()
    for of in (r"[\d.]+ / [\d.]+ / [\d.]+", r"\d+\.\d+"):
        found = set(re.findall(of, shown))
        assert len(found) > 15
        assert not found - set(re.findall(of, table))


def test_the_table_of_models_is_what_its_script_writes():
    made = runpy.run_path(str(ROOT / "docs" / "models.py"))
    page = made["PAGE"].read_text(encoding="utf-8")
    assert made["written"](page) == page, "run `python docs/models.py`"


def examples_in_python() -> list[Any]:
    """Test parameters of the blocks of Python; two pages have tests of their own."""
    found = []
    for page in PAGES:
        if page.name not in ("codesign.md", "collectives.md"):
            text = page.read_text(encoding="utf-8")
            for line, language, lines, _ in fences(text):
                if language == "python":
                    name, code = f"{page.relative_to(ROOT)}:{line}", "\n".join(lines)
                    said = below(text, line, len(lines))
                    long = any(
                        x in code for x in ("estimate(", "serving.", "dvfs.plan(")
                    )
                    marks = [pytest.mark.slow] if long else []
                    found.append(pytest.param(code, said, id=name, marks=marks))
    return found


@pytest.mark.parametrize("code, said", examples_in_python())
def test_python_runs(code: str, said: str, folder: Path, capsys):
    exec(code, {"__name__": "example"})
    out = capsys.readouterr().out
    assert out.count("\n") >= len(re.findall(r"^print\(", code, re.MULTILINE))
    assert "nan" not in out.split()
    assert not (wrong := unsaid(said, [out])), f"{corrected(wrong, [out])}; {out}"


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
        found = page.evaluate(OVERLAPS)
        assert found and max(found) <= 0, name
        assert page.evaluate("document.documentElement.scrollWidth") == 390, name
