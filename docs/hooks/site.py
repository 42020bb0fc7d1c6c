"""Pages that are made while the site is built: what the package says about itself.

`reference/commands.md` from the help of every command, `reference/kernels.md` from the
ops of listings, `reference/gpu-fields.md` from the fields of GPU files,
`reference/python.md` from the public names, `contributing.md` from the file beside
README.md, and a tutorial from every notebook, as it stands in the repository: nothing
is executed.
"""

import base64
import contextlib
import importlib.util
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[2]
NOTEBOOKS: Final = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
PICTURES: Final = {"image/png": "png", "image/svg+xml": "svg"}
BLOCK: Final = re.compile(r"- |\d+\. |\|")
"""How a list or a table begins."""
INSIDE: Final = re.compile(r"\s|- |\d+\. |\|")
"""How a line begins that may belong to a list or a table."""
ROOMS: Final = (
    ("Frequency schedules", "dvfs"),
    ("Co-design", "codesign"),
    ("Collectives", "collectives"),
    ("Measured tables", "measurements"),
    ("A running service", "service"),
    ("Fits", "fitting"),
)
"""Rooms that callers use by `de.room`, in the order of the page."""
MATH: Final = re.compile(r"^```math\n(.*?)^```$|\$([A-Za-z][^$\n]*)\$", re.M | re.S)
"""A displayed equation, or one inside a line, of a page that displays any."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the notebooks to the navigation."""
    for part in config.nav or []:
        if "Tutorials" in part:
            part["Tutorials"] += [_tutorial(path) for path in NOTEBOOKS]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made."""
    built: dict[str, str | bytes] = {
        "reference/commands.md": _commands(),
        "reference/kernels.md": _kernels(),
        "reference/gpu-fields.md": _gpu_fields(),
        "reference/python.md": _python(),
        "contributing.md": _contributing(),
        "tutorials/index.md": _tutorials(),
    }
    for path in NOTEBOOKS:
        built |= _notebook(path)
    for name, content in built.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **kwargs: Any) -> str:
    """A page with its equations as MathML, and with empty lines before its lists and
    tables, as this renderer needs."""
    if "```math" in markdown and importlib.util.find_spec("latex2mathml"):
        markdown = MATH.sub(_mathml, markdown)
    lines: list[str] = []
    fenced = False
    for line in markdown.splitlines():
        fenced ^= line.lstrip().startswith("```")
        before = lines[-1] if lines else ""
        if not fenced and BLOCK.match(line) and before and not INSIDE.match(before):
            lines.append("")
        lines.append(line)
    return "\n".join(lines) + "\n"


def _mathml(result: re.Match[str]) -> str:
    """An equation in the elements that browsers draw by themselves."""
    from latex2mathml.converter import convert  # pyright: ignore[reportMissingImports]

    if result[1] is None:
        return convert(result[2])
    return f"<p>{convert(result[1].strip(), display='block')}</p>"


# --- reference


def _commands() -> str:
    from diffenergy.cli.app import QUESTIONS

    parts = ["# Commands\n", _help()]
    for question, names in QUESTIONS.items():
        parts.append(f"## {question}\n")
        parts += [f"### diffenergy {name}\n\n{_help(name)}" for name in names]
    return "\n".join(parts)


def _help(*words: str) -> str:
    from diffenergy.cli import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main([*words, "--help"])
    return f"```text\n{out.getvalue().rstrip()}\n```\n"


def _kernels() -> str:
    from diffenergy import kernels
    from diffenergy.kernels import COMMON_FIELDS, REQUIRED

    def text(field: Any) -> str:
        name = f"`{field.name}`"
        if field.default is REQUIRED:
            return name
        if callable(field.default) or field.default in ("", 0.0):
            return f"{name} *"
        return f"{name} [{field.default:g}]" if field.kind == "size" else f"{name} *"

    rows = [
        f"| `{name}` | {', '.join(map(text, op.fields))} |"
        for name, (op, _) in sorted(kernels.ops().items())
    ]
    common = ", ".join(map(text, COMMON_FIELDS))
    return (
        "# Kernels of a listing\n\n"
        "Fields of every op of a [listing](formats.md#kernel-listing-jsonl). "
        "Those with a default in brackets, or with a star (it follows from the others, "
        "or means that nothing is said), may be left out.\n\n"
        "| op | fields |\n|---|---|\n" + "\n".join(rows) + "\n\n"
        f"Every kernel also takes: {common}.\n"
    )


def _gpu_fields() -> str:
    from diffenergy.hardware import FIELDS

    rows = [f"| `{name}` | {x.unit} | {x.what} |" for name, x in FIELDS.items()]
    return (
        "# Fields of a GPU file\n\n"
        "What `--set FIELD=VALUE` and `--vary` take too. Numbers are in SI.\n\n"
        "| field | unit | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def _contributing() -> str:
    """`CONTRIBUTING.md`, with links from where the site has it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.replace("](docs/", "](")


def _python() -> str:
    import diffenergy

    rooms = {room for _, room in ROOMS}
    top = sorted(set(diffenergy.__all__) - rooms - {"report", "units"})
    parts = [f"::: diffenergy.{name}\n" for name in top]
    for title, room in ROOMS:
        names = getattr(diffenergy, room).__all__
        parts.append(f"## {title}: `de.{room}`\n")
        parts += [f"::: diffenergy.{room}.{name}\n" for name in sorted(names)]
    head = (ROOT / "docs" / "hooks" / "python.md").read_text(encoding="utf-8")
    return "\n".join([head, *parts])


# --- tutorials


def _tutorials() -> str:
    head = (ROOT / "docs" / "hooks" / "tutorials.md").read_text(encoding="utf-8")
    return head + "".join(f"- [{_title(p)}]({p.stem}.md)\n" for p in NOTEBOOKS)


def _tutorial(path: Path) -> dict[str, str]:
    return {_title(path): f"tutorials/{path.stem}.md"}


def _title(path: Path) -> str:
    """The first heading of a notebook."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for line in "".join(cell["source"]).splitlines():
            if cell["cell_type"] == "markdown" and line.startswith("# "):
                return line.removeprefix("# ").strip()
    return path.stem


def _notebook(path: Path) -> dict[str, str | bytes]:
    """Markdown of a notebook, and its pictures."""
    parts, pictures = [], {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code" and source.strip():
            parts.append(f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            for kind, content in _shown(output):
                if kind in PICTURES:
                    name = f"{path.stem}_{len(pictures)}.{PICTURES[kind]}"
                    pictures[f"tutorials/{name}"] = _picture(kind, content)
                    parts.append(f"![figure]({name})")
                elif kind == "text/markdown":
                    parts.append(content)
                else:
                    parts.append(f"```text\n{content.rstrip()}\n```")
    return {f"tutorials/{path.stem}.md": "\n\n".join(parts) + "\n", **pictures}


def _shown(output: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Kind and content of what a reader sees of an output."""
    if output["output_type"] == "stream":
        yield "text/plain", "".join(output["text"])
        return
    data = output.get("data", {})
    for kind in (*PICTURES, "text/markdown", "text/plain"):
        if kind in data:
            yield kind, "".join(data[kind])
            return


def _picture(kind: str, content: str) -> bytes:
    return base64.b64decode(content) if kind == "image/png" else content.encode()
