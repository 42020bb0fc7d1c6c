"""Command lines and Python examples of README.md, CONTRIBUTING.md, docs/ and the help,
what they print, and what the pages quote of it (`answers`).

A command line begins with `diffenergy` or `python` and stands in a fenced block (`sh`,
`bash`, `console`) or in backticks in a row of a table. Comments mark, in the row or
above the block, what takes over 30 s (`<!-- slow -->`) and what ends with another exit
status than 0 (`<!-- exits 3 -->`). A fenced block `text` right below a command is its
printed output; a line `...` stands for lines that are left out. `tests/test_docs.py`
runs all of it; `docs/figures.py` writes the figures.
"""

import contextlib
import importlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from answers import also, below, blanked, mentioned, renewed
from json_keys import check

from diffenergy.cli import app, main

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = (
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))
)  # fmt: skip
EXAMPLES: Final = ROOT / "docs" / "examples"
LINKED: Final = ("calibration", "docs", "notebooks", "tests")
LANGUAGES: Final = ("sh", "bash", "console")
SET_UP: Final = ("python -m venv", "python -m pip", "diffenergy web")
"""How lines begin that make an environment or serve until they are stopped; they are
tried by hand and by CI, `web` in `tests/cli/web`."""
PROGRAMS: Final = ("diffenergy ", "python ")
SLOW: Final = "<!-- slow -->"
LONG: Final = "diffenergy codesign"
"""How commands begin that search for about half a minute each."""
SHARED: Final = "../shared"
LEFT_OUT: Final = "..."
"""The line of a printed output that stands for lines left out."""
_EXITS: Final = re.compile(r"<!-- exits (\d+) -->")
_IN_TABLE: Final = re.compile(r"`((?:diffenergy|python) [^`]+)`")
_SYNOPSIS: Final = re.compile(r" \[|\b[A-Z]{3,}\b")
"""What a line of a table has that shows how a command reads: `gpus show NAME`."""
REDIRECTED: Final = re.compile(r"^(.*\S)\s+>\s+(\S+)$")


class Block(NamedTuple):
    """Command lines that belong together, or one example in Python."""

    page: str
    line: int
    commands: tuple[str, ...] = ()
    remark: str = ""
    said: str = ""
    """What the page says of them, the block first; its figures are theirs."""
    python: str = ""
    """The example, where it is one in Python."""
    length: int = 0
    """Number of lines of the fenced block; those of `said` after them are prose."""
    printed: tuple[str, ...] = ()
    """Lines that the page prints as the output of the last command."""

    @property
    def status(self) -> int:
        """Exit status with which the commands end."""
        match = _EXITS.search(self.remark)
        return int(match[1]) if match else 0

    @property
    def shared(self) -> bool:
        """Whether it reads the shared measurement tables."""
        return any(SHARED in command for command in self.commands)


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
        " ".join(x.split("  # ")[0].split())
        for x in plain
        if x.startswith(PROGRAMS) and not x.startswith(SET_UP)
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
            commands = [x for x in _IN_TABLE.findall(line) if not _SYNOPSIS.search(x)]
            if commands:
                yield number, commands, line


def blocks(path: Path) -> list[Block]:
    """All command lines of a page."""
    text, page = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
    result = [Block(page, at, tuple(words), line) for at, words, line in rows(text)]
    for at, language, lines, above in fences(text):
        commands = commands_of(lines) if language in LANGUAGES else []
        if commands:
            said = below(text, at, len(lines))
            shown = printed_at(text, at + len(lines) + 1)
            block = Block(page, at, tuple(commands), above, said)
            result.append(block._replace(length=len(lines), printed=shown))
    return result


def printed_at(text: str, line: int) -> tuple[str, ...]:
    """Lines of the block `text` that follows the fence closed at `line` (from 1)."""
    for at, language, lines, _ in fences(text):
        between = text.splitlines()[line : at - 1]
        if at > line and language == "text" and not any(map(str.strip, between)):
            return tuple(lines)
    return ()


def python_blocks(path: Path) -> list[Block]:
    """The examples in Python of a page."""
    text, page = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
    return [
        Block(
            page,
            at,
            said=below(text, at, len(lines)),
            python="\n".join(lines),
            length=len(lines),
        )  # fmt: skip
        for at, language, lines, _ in fences(text)
        if language == "python"
    ]


def examples() -> list[Block]:
    """The examples in the help of every command, one block each."""
    root = app.build()
    return [
        Block(f"help-of-{name}", at, (words,))
        for name in app.names()
        for at, words in enumerate(commands_of(_examples_of(root, name)), 1)
    ]


def _examples_of(root: Any, name: str) -> list[str]:
    help_text: str = root.get_command(None, name).help or ""
    return help_text.split("Examples:")[1].splitlines()


@contextlib.contextmanager
def example_folder() -> Iterator[Path]:
    """A folder to run commands in, with the examples and links to the repository,
    beside which the shared tables lie."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as place:
        here = Path(place) / "here"
        shutil.copytree(EXAMPLES, here)
        for name in LINKED:
            if (ROOT / name).exists():
                (here / name).symlink_to(ROOT / name)
        if (ROOT.parent / "shared").exists():
            (Path(place) / "shared").symlink_to(ROOT.parent / "shared")
        os.chdir(here)
        try:
            yield here
        finally:
            os.chdir(before)


@contextlib.contextmanager
def simulated_board() -> Iterator[None]:
    """An H100 that only pretends."""
    world = importlib.import_module("measure.simulated").World()
    with (
        patch("diffenergy.measure._sensor.Sensor", lambda index: world),
        patch("diffenergy.measure._bench.find_runner", lambda uuid: world),
        patch("diffenergy.measure._reading.Clock", lambda: world),
    ):
        yield


def execute(command: str, status: int = 0) -> str:
    """Output of one command line; fails unless it ends with `status` and prints
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


def outputs(block: Block) -> list[str]:
    """What the commands of a block print, then those that its text quotes besides."""
    if block.python:
        stdout = io.StringIO()
        with contextlib.redirect_stdout(stdout):
            exec(block.python, {"__name__": "example"})
        return [stdout.getvalue(), *map(execute, also(block.said))]
    quoted = [execute(command, block.status) for command in block.commands]
    return quoted + [execute(command) for command in also(block.said)]


def quotes(block: Block) -> bool:
    """Whether the page quotes figures of what the block prints."""
    return bool(mentioned("\n".join(block.said.splitlines()[block.length :])))


def takes_long(block: Block) -> bool:
    """Whether it takes half a minute or more."""
    return SLOW in block.remark or any(x.startswith(LONG) for x in block.commands)


def excerpts(printed: Sequence[str]) -> list[list[str]]:
    """The runs of lines of a printed output between those left out."""
    runs: list[list[str]] = [[]]
    for line in printed:
        if line.strip() == LEFT_OUT:
            runs.append([])
        else:
            runs[-1].append(line.rstrip())
    return [run for run in runs if run]


def unprinted(printed: Sequence[str], output: str) -> list[str]:
    """First lines of the excerpts that do not stand in the output, one after the
    other."""
    lines, start = [line.rstrip() for line in output.splitlines()], 0
    missing = []
    for run in excerpts(printed):
        places = range(start, len(lines) - len(run) + 1)
        place = next((x for x in places if lines[x : x + len(run)] == run), None)
        if place is None:
            missing.append(run[0])
        else:
            start = place + len(run)
    return missing


def reprinted(printed: Sequence[str], output: str) -> tuple[list[str], list[str]]:
    """A printed output as the command prints it now, and the first lines of the
    excerpts whose words no lines of the output have."""
    lines, start = [line.rstrip() for line in output.splitlines()], 0
    result, missing = list(printed), []
    at = 0
    for run in excerpts(printed):
        at = next(i for i in range(at, len(result)) if result[i].rstrip() == run[0])
        words = [*map(_words, run)]
        place = next(
            (
                x
                for x in range(start, len(lines) - len(run) + 1)
                if [*map(_words, lines[x : x + len(run)])] == words
            ),
            None,
        )
        if place is None:
            missing.append(run[0])
        else:
            pairs = zip(result[at:], lines[place : place + len(run)], strict=False)
            now = [old if old.rstrip() == new else new for old, new in pairs]
            result[at : at + len(run)] = now
            start = place + len(run)
        at += len(run)
    return result, missing


def _words(line: str) -> list[str]:
    """What a line says beside its figures."""
    return blanked(line.replace("─", " ")).split()


def rewritten(text: str, block: Block, answers: Sequence[str]) -> tuple[str, list[str]]:
    """The text of a page with the figures and the printed output of a block as its
    commands print them, and what none of them prints."""
    lines = text.splitlines(keepends=True)
    first = block.line + block.length + 1
    count = len(block.said.splitlines()) - block.length
    prose, head, lost = "".join(lines[first : first + count]), "", []
    if block.printed:
        before = "\n".join(block.printed)
        now, lost = reprinted(block.printed, answers[len(block.commands) - 1])
        start, _, prose = prose.partition(before)
        head = start + "\n".join(now)
    prose, stale = renewed(prose, [*answers, *block.commands])
    return "".join([*lines[:first], head, prose, *lines[first + count :]]), [
        *lost,
        *stale,
    ]
