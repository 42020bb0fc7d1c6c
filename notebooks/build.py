"""Runs every notebook from its source and keeps it beside it with its outputs.

    python notebooks/build.py                     all
    python notebooks/build.py 01_estimate ...     some

The source is `NAME.py` (jupytext, percent format); `NAME.ipynb` is written from it and
never edited by hand. Needs the extra `notebooks`.
"""

import sys
import time
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
SECONDS: Final = 540
"""Longest that one cell may take, on a busy machine too."""
_KERNEL: Final = {"display_name": "Python 3", "language": "python", "name": "python3"}
_WIDGET: Final = "application/vnd.jupyter.widget-view+json"
_LANGUAGE: Final = {
    "name": "python",
    "file_extension": ".py",
    "pygments_lexer": "ipython3",
}


def names() -> list[str]:
    """Names of the notebooks, in order."""
    return sorted(path.stem for path in HERE.glob("[0-9][0-9]_*.py"))


def source(name: str) -> Any:
    """The notebook of `NAME.py`, without outputs; its cells are numbered."""
    import jupytext

    notebook: Any = jupytext.read(HERE / f"{name}.py")
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
    notebook.metadata = {
        "jupytext": {"formats": "ipynb,py:percent"},
        "kernelspec": dict(_KERNEL),
        "language_info": dict(_LANGUAGE),
    }
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def executed(name: str, folder: Path) -> Any:
    """The notebook of `NAME.py`, run in `folder`; raises what a cell raises."""
    from nbclient import NotebookClient

    notebook = source(name)
    NotebookClient(
        notebook,
        kernel_name=_KERNEL["name"],
        extra_arguments=["--log-level=40"],  # its own loopback is not news
        timeout=SECONDS,
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        store_widget_state=False,
    ).execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):  # sliders keep their picture alone
            output.get("data", {}).pop(_WIDGET, None)
    # the client writes what the kernel says of itself, down to its patch version
    notebook.metadata["language_info"] = dict(_LANGUAGE)
    return notebook


def build(name: str) -> Path:
    """Runs a notebook and writes `NAME.ipynb`, whole or not at all."""
    import nbformat

    from diffenergy.files import write_text_atomic

    target = HERE / f"{name}.ipynb"
    notebook = executed(name, HERE)
    nbformat.validate(notebook)
    write_text_atomic(target, nbformat.writes(notebook) + "\n")
    return target


def main(wanted: list[str]) -> None:
    """Builds the notebooks named, or all."""
    for name in wanted:
        if name not in names():
            raise SystemExit(f"there is no `{name}`; there are {', '.join(names())}.")
    for name in wanted or names():
        began = time.monotonic()
        size = build(name).stat().st_size
        took = time.monotonic() - began
        print(f"{name}: {took:.0f} s, {size / 1024:.0f} KiB")


if __name__ == "__main__":
    main([name.removesuffix(".py") for name in sys.argv[1:]])
