"""Public tables and logs of one's own, rewritten as measurement files.

    python calibration/datasets.py --list
    python calibration/datasets.py nvidia_smi log.csv --out measurements/

What it writes is read by `diffenergy evaluate` and `diffenergy fit`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def datasets(
    name: Annotated[str, typer.Argument(metavar="FORMAT", help="see --list")] = "",
    path: Annotated[
        Path | None, typer.Argument(metavar="PATH", help="file or folder")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="folder of the tables")] = None,
    listed: Annotated[bool, typer.Option("--list", help="formats there are")] = False,
) -> None:
    """Write STEM.csv in the folder --out for every table that FORMAT finds in PATH."""
    from calibration.importers import importers

    readers = importers()
    if listed:
        for word, module in readers.items():
            typer.echo(f"{word:20} {module.ABOUT}")
        return
    if name not in readers:
        raise ValueError(f"`FORMAT` is '{name}'; allowed are {', '.join(readers)}.")
    if path is None or out is None:
        raise ValueError("`PATH` and `--out FOLDER` are needed; give both.")
    _write(readers[name].read(path), path, out)


def _write(tables: dict, path: Path, out: Path) -> None:
    """Writes all tables, or none if a target cannot be written."""
    from diffenergy.files import check_target, write_text_atomic
    from diffenergy.measurements.importers import notes_of

    if out.exists() and not out.is_dir():
        raise ValueError(f"`--out` is {out}, a file; give a folder.")
    inputs = [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
    targets = {stem: out / f"{stem}.csv" for stem in tables}
    texts = {
        stem: table.to_csv(index=False, float_format="%.10g")
        for stem, table in tables.items()
    }
    out.mkdir(parents=True, exist_ok=True)
    for target in targets.values():
        check_target(target, inputs)
    for stem, target in targets.items():
        write_text_atomic(target, texts[stem], inputs=inputs)
        typer.echo(f"{target}: {len(tables[stem])} rows")
        for note in notes_of(tables[stem]):
            typer.echo(f"  {note}")


def main(args: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 bad input (one line on stderr)."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(datasets)
    try:
        typer.main.get_command(app).main(args, standalone_mode=False)
    except (ValueError, OSError) as error:
        return _fail(str(error))
    except Exception as error:
        if (spoken := getattr(error, "format_message", None)) is None:
            raise
        return _fail(spoken())  # the parser's own
    return 0


def _fail(message: str) -> int:
    print(f"datasets: {' '.join(message.split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
