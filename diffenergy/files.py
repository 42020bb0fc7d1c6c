"""Files: bundled facts; inputs that a user names, read whole, or one sentence why not;
outputs written whole or not at all, and never over an input."""

import contextlib
import csv
import functools
import io
import os
import signal
import threading
import tomllib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def read_named(path: Path, key: str, example: str) -> str:
    """Text of the file `path` that was given as `key`, such as `gpu`.

    Raises `ValueError` if it cannot be read; `example`: a bundled name for `key`, ""
    where none is bundled.
    """
    named = f"`{key}` is {str(path)!r}"
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        bundled = f" or a bundled name such as `{example}`" if example else ""
        raise ValueError(
            f"{named}, but there is no such file; give the path of a .toml file"
            f"{bundled}."
        ) from None
    except UnicodeDecodeError:
        raise ValueError(
            f"{named}, which is not UTF-8 text; save it as UTF-8."
        ) from None
    except OSError as error:
        raise ValueError(
            f"{named}, which cannot be read ({error.strerror}); check the path and its "
            f"permissions."
        ) from None


def read_toml(path: Path, key: str, example: str) -> dict[str, Any]:
    """Tables of a TOML file; see `read_named`."""
    try:
        return tomllib.loads(read_named(path, key, example))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(
            f"`{key}` is {str(path)!r}, which is not valid TOML ({error}); correct it "
            f"there."
        ) from None


@functools.cache
def facts(name: str) -> dict[str, Any]:
    """The file `data/facts/{name}.toml`, read once."""
    path = Path(__file__).parent / "data" / "facts" / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def csv_lines(text: str, file: str, **options: Any) -> list[tuple[int, list[str]]]:
    """Rows of a CSV text that are not blank, each with the line of the file on which it
    begins, from 1 as editors count.

    `options`: of `csv.reader`. Raises `ValueError` that names the line of `file`.

    >>> csv_lines("gpu,note\\n\\na10,'x'\\n", "a.csv")
    [(1, ['gpu', 'note']), (3, ['a10', "'x'"])]
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, **options)
    rows, line = list[tuple[int, list[str]]](), 1
    try:
        for row in reader:
            if row:
                rows.append((line, row))
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{file}: line {reader.line_num} cannot be read as CSV ({error}); allowed "
            "are comma-separated cells; correct the line."
        ) from None
    return rows


def row_place(file: str, row: int, lines: Sequence[int]) -> str:
    """Place of data row `row` (from 0) in a file, for errors: its line, of the `lines`
    of all rows; without them its number from 1.

    >>> row_place("a.csv", 0, [2]), row_place("power.log", 0, ())
    ('a.csv, line 2', 'power.log, row 1 of its data')
    """
    if not len(lines):
        return f"{file}, row {row + 1} of its data"
    return f"{file}, line {lines[row]}"


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV with all their keys as columns; what a row lacks is an empty cell."""
    text = io.StringIO()
    columns = dict.fromkeys(key for row in rows for key in row)
    writer = csv.DictWriter(text, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_text_atomic(
    path: str | os.PathLike[str],
    text: str,
    *,
    inputs: Iterable[str | os.PathLike[str]] = (),
) -> None:
    """Writes `text` to `path` as UTF-8; see `write_bytes_atomic`."""
    write_bytes_atomic(path, text.encode(), inputs=inputs)


def write_bytes_atomic(
    path: str | os.PathLike[str],
    content: bytes,
    *,
    inputs: Iterable[str | os.PathLike[str]] = (),
) -> None:
    """Replaces the file at `path` by `content`, or leaves it as it was.

    A temporary file in the same folder takes the content and is then renamed. A link
    keeps pointing where it did; what is no regular file (`/dev/stdout`, a pipe) is
    written to directly. Raises `ValueError` if the folder is missing, `path` is a
    folder or one of `inputs`, or the system does not let us write.
    """
    target = Path(os.path.realpath(path))
    try:
        check_target(path, inputs)
        if target.exists() and not target.is_file():
            target.write_bytes(content)
        else:
            _replace(target, content)
    except OSError as error:
        raise ValueError(
            f"`{path}` cannot be written ({error.strerror}); give another path."
        ) from None


def check_target(
    path: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]]
) -> None:
    """Raises `ValueError` if `write_bytes_atomic` would not write to `path`."""
    shown, target = Path(path), Path(os.path.realpath(path))
    if target.is_dir():
        raise ValueError(f"`{shown}` is a folder; give the name of a file in it.")
    if not target.parent.is_dir():
        raise ValueError(
            f"`{shown}`: there is no folder `{target.parent}`; make it first."
        )
    for source in inputs:
        if os.path.exists(source) and target.exists() and target.samefile(source):
            raise ValueError(
                f"`{shown}` is an input of this run, which is never overwritten; "
                f"give another path."
            )
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise ValueError(f"`{shown}` is write-protected; give another path.")


def _replace(target: Path, content: bytes) -> None:
    part = target.with_name(f".{target.name[:100]}.{uuid.uuid4().hex[:8]}.part")
    with _undisturbed():
        _write(part, target, content)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """A Ctrl-C within it counts at its end."""
    before = signal.getsignal(signal.SIGINT)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupted = False

    def later(*_: object):
        nonlocal interrupted
        interrupted = True

    signal.signal(signal.SIGINT, later)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if interrupted:
            signal.raise_signal(signal.SIGINT)


def _write(part: Path, target: Path, content: bytes) -> None:
    """Writes `part` and renames it to `target`."""
    try:
        with part.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            part.chmod(target.stat().st_mode)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
