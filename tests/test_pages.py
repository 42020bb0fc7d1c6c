"""Commands, examples and printed outputs are found in a page as they stand there."""

import runpy
from pathlib import Path

import pages
import pytest

PAGE = """# A

<!-- exits 3 -->
```sh
diffenergy x  # why
python \\
  y.py
ls
```

```text
a 1
...
b 2
```

3 s of `diffenergy z`.

| what | how |
|---|---|
| it | `diffenergy q --json`, not `diffenergy NAME` |

```python
print(4)
```

5 s
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page, in a repository of its own."""
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_commands_of_blocks_and_tables_are_found(path: Path):
    row, block = pages.blocks(path)
    assert (row.commands, row.line) == (("diffenergy q --json",), 21)
    assert block.commands == ("diffenergy x", "python y.py")
    assert (block.page, block.line, block.status) == ("page.md", 4, 3)
    assert block.printed == ("a 1", "...", "b 2")
    assert "3 s of" in block.said and "5 s" not in block.said
    (example,) = pages.python_blocks(path)
    assert (example.python, example.said.splitlines()[-1]) == ("print(4)", "5 s")
    # a text further down is no output
    path.write_text(PAGE.replace("```text", "It prints\n```text"))
    assert pages.blocks(path)[1].printed == ()


@pytest.mark.parametrize(
    ("output", "lost"),
    [
        ("0\na 1 \nb 2\n", []),
        ("a 1\nc\nb 2\nd", []),
        ("a 1\nc\nb 3", ["b 2"]),
        ("b 2\na 1", ["b 2"]),  # each after the one before it
        ("b 2\na 2", ["a 1"]),
    ],
)
def test_printed_lines_stand_in_the_output_in_their_order(output: str, lost: list):
    assert pages.unprinted(["a 1", "...", "b 2"], output) == lost
    # without a gap they follow each other
    assert pages.unprinted(["a", "b"], "a\nb") == []
    assert pages.unprinted(["a", "b"], "a\nc\nb") == ["a"]


def python(text: str) -> str:
    """A block of a command that prints a text."""
    return f"```sh\npython -c \"print('{text}')\"\n```\n"


STALE = f"""# A
{python("cold 7 s, warm 4.26 s, 3 W")}
```text
cold 5 s, warm 4.25 s, 2 W
```

Warm it takes 4.2 s at 3 W,
as ever 90 W.
<!-- slow -->
{python("8 s")}
9 s
"""


def test_figures_of_a_page_are_written_from_its_commands(path: Path, capsys):
    renew = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "figures.py"))[
        "renew"
    ]
    path.write_text(STALE)
    assert renew(path, write=False, slow=False) == 3  # two lines, and 90 W
    assert path.read_text() == STALE
    out = capsys.readouterr().out
    assert "- Warm it takes 4.2 s at 3 W,\n+ Warm it takes 4.3 s at 3 W," in out
    assert "page.md:2: no output has `90 W`" in out
    assert "page.md:13: left out" in out
    assert renew(path, write=True, slow=False) == 1
    fresh = STALE.replace("cold 5 s, warm 4.25 s, 2 W", "cold 7 s, warm 4.26 s, 3 W")
    assert path.read_text() == fresh.replace("takes 4.2 s", "takes 4.3 s")


def test_printed_lines_are_replaced_where_their_words_agree():
    printed = ["a 1 s  x", "...", "total   12.00 W", "note 1"]
    output = "a 950 ms x\nb 2\ntotal   9.50 W\nnote 2\n"
    new = ["a 950 ms x", "...", "total   9.50 W", "note 2"]
    assert pages.reprinted(printed, output) == (new, [])
    changed = output.replace("note", "remark")
    assert pages.reprinted(printed, changed) == (
        ["a 950 ms x", *printed[1:]],
        ["total   12.00 W"],
    )


@pytest.mark.parametrize("path", pages.PAGES, ids=lambda path: path.name)
def test_figures_that_the_commands_have_stay_as_they_are(path: Path):
    """On every page, with the page itself as what its commands print."""
    text = path.read_text(encoding="utf-8")
    for block in [*pages.blocks(path), *pages.python_blocks(path)]:
        answers = ["\n".join(block.printed)] * len(block.commands)
        assert pages.rewritten(text, block, [*answers, block.said]) == (text, [])
