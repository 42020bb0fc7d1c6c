"""Write the figures of pages as their commands print them today.

    python docs/figures.py                           # list what is stale
    python docs/figures.py --write README.md docs/dvfs.md
    python docs/figures.py --write --all             # slow commands and searches, too

Commands and figures are found as tests/test_docs.py finds them (`tests/pages.py`,
`tests/answers.py`). A stale figure becomes the nearest number of its unit where that is
clear; where it is not, or where a command fails, the figure is reported and stays as it
is. Look at the diff. Exit status 1: something is stale, or could not be renewed.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]


def figures(
    files: Annotated[list[Path] | None, typer.Argument(metavar="[PAGE]...")] = None,
    write: Annotated[bool, typer.Option("--write", help="write the pages")] = False,
    slow: Annotated[
        bool, typer.Option("--all", help="slow, long and shared-data commands, too")
    ] = False,
) -> None:
    """List or write the stale figures of pages."""
    import pages

    stale = 0
    for path in [path.resolve() for path in files or pages.PAGES]:
        stale += (number := renew(path, write, slow))
        print(f"{path.relative_to(ROOT)}: {number} stale")
    raise typer.Exit(1 if stale else 0)


def renew(path: Path, write: bool, slow: bool) -> int:
    """Number of lines and figures of a page that are stale, or stay so when written."""
    import pages

    text, remaining = path.read_text(encoding="utf-8"), 0
    for block in [*pages.blocks(path), *pages.python_blocks(path)]:
        where = f"{block.page}:{block.line}"
        if not (block.printed or pages.quotes(block)):
            continue
        if not slow and (pages.takes_long(block) or block.shared):
            print(f"{where}: left out; --all runs it")
            continue
        try:
            with pages.example_folder(), pages.simulated_board():
                answers = pages.outputs(block)
            new, lost = pages.rewritten(text, block, answers)
        except (Exception, AssertionError) as error:
            print(f"{where}: {error}")
            remaining += 1
            continue
        changed = list(differences(text, new))
        for line, before, after in changed:
            print(f"{block.page}:{line}:\n- {before}\n+ {after}")
        for figure in lost:
            print(f"{where}: no output has `{figure}`")
        remaining += len(lost) + (0 if write else len(changed))
        text = new
    if write:
        path.write_text(text, encoding="utf-8")
    return remaining


def differences(before: str, after: str) -> Iterable[tuple[int, str, str]]:
    """Line (from 1) and texts of the lines that changed."""
    pairs = zip(before.splitlines(), after.splitlines(), strict=True)
    return ((at, x, y) for at, (x, y) in enumerate(pairs, 1) if x != y)


if __name__ == "__main__":
    typer.run(figures)
