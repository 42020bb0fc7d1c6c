"""`run`: a sweep from its SPEC.toml to one file or a folder, resumable."""

import dataclasses
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ..requests import accepts
from ._request import Progress, RunRequest
from ._spec import Block, Spec, read_spec

ENDINGS: Final = (".parquet", ".csv")


class _Run(RunRequest):
    """A sweep, and where its rows go."""

    spec: str | Spec = dataclasses.field(kw_only=False)
    out: str = dataclasses.field(kw_only=False)


@accepts(_Run, "run")
def run(request: _Run) -> dict[str, Any]:
    """Estimates of every configuration of a sweep, in blocks, written as they come.

    `spec`: path of a SPEC.toml, or one that was read. `out`: `.parquet` or `.csv`, put
    together from `OUT.parts` when all is done; or a folder, which keeps its parts.

    Returns:
        `out`, `spec_hash`, `rows`, `errors` (of the blocks computed now), `blocks`,
        `computed` (blocks computed now), `seconds`, `rows_per_s`.

    Raises:
        ValueError: for input that cannot be, or parts of another sweep on `resume`.
    """
    from ._parts import join_parts, need_pyarrow

    begun = time.monotonic()
    spec, out, resume = request.spec, request.out, request.resume
    sweep = spec if isinstance(spec, Spec) else read_spec(spec)
    path = _checked(out)
    need_pyarrow()
    address = _address(request.ray)
    is_file = path.suffix.lower() in ENDINGS
    folder = path.with_name(path.name + ".parts")
    if resume:
        _same_sweep((path, folder), sweep)
        if path.exists() and is_file:
            return _reported(out, sweep, 0, 0, 0, begun)
        folder = path if path.exists() else folder
    else:
        shutil.rmtree(folder, ignore_errors=True)
    blocks, rows, errors = _filled(folder, sweep, address, request.progress)
    if is_file:
        join_parts(folder, sweep, path)
        shutil.rmtree(folder, ignore_errors=True)
    elif folder != path:
        _swap(folder, path)
    return _reported(out, sweep, errors, blocks, rows, begun)


def _same_sweep(paths: Sequence[Path], sweep: Spec) -> None:
    """Raises `ValueError` for results of another sweep."""
    from ._parts import spec_hash

    for there in paths:
        if there.exists() and spec_hash(there) != sweep.hash:
            raise ValueError(
                f"`resume` is given, but '{there}' is of another sweep; give the spec "
                "it was made with, another `out`, or no `resume`."
            )


def _filled(
    folder: Path, sweep: Spec, address: int | str | None, progress: Progress | None
) -> tuple[int, int, int]:
    """Computes the parts that `folder` lacks: their number, their rows and errors."""
    from ._parts import missing, write_spec

    folder.mkdir(exist_ok=True)
    write_spec(folder / "spec.json", sweep)
    todo = set(missing(folder, sweep))
    blocks = [block for block in sweep.listed() if block.number in todo]
    sizes = {block.number: len(block.shapes) * sweep.points for block in blocks}
    before = sweep.rows - sum(sizes.values())
    errors = computed = 0
    if progress:
        progress(before, sweep.rows)
    for number, wrong in _finished(address, sweep, blocks, folder):
        computed, errors = computed + sizes[number], errors + wrong
        if progress:
            progress(before + computed, sweep.rows)
    return len(blocks), computed, errors


def _finished(
    address: int | str | None, spec: Spec, blocks: Sequence[Block], folder: Path
) -> Iterator[tuple[int, int]]:
    if address is not None and blocks:
        from ._cluster import on_cluster

        yield from on_cluster(address, spec, blocks, folder)
        return
    from ._block import begun
    from ._parts import write_part

    under_way = None
    for block in (*blocks, None):  # one is computed while the next is prepared
        before, under_way = under_way, block and (block.number, begun(spec, block))
        if before is not None:
            number, finish = before
            yield number, write_part(folder, number, spec, finish())


def _address(ray: str | None) -> int | str | None:
    if ray is None:
        return None
    from ._cluster import check_answers, need_ray, read_address

    address = read_address(ray)
    need_ray()
    check_answers(address)
    return address


def _checked(out: str) -> Path:
    """The target; `ValueError` where it cannot be written."""
    path = Path(os.path.abspath(out))
    ending = path.suffix.lower()
    if ending and ending not in ENDINGS:
        raise ValueError(
            f"`out` is '{out}'; allowed are names ending in {', '.join(ENDINGS)}, or a "
            "folder (a name without ending)."
        )
    if not path.parent.is_dir():
        raise ValueError(
            f"`out` is '{out}', but there is no folder '{path.parent}'; make it first."
        )
    if ending and path.is_dir():
        raise ValueError(f"`out` is '{out}', a folder; give the name of a file.")
    if not ending and path.exists() and not path.is_dir():
        raise ValueError(f"`out` is '{out}', a file; give the name of a folder.")
    if not ending and path.is_dir() and not _ours(path):
        raise ValueError(
            f"`out` is '{out}', a folder that holds other files; give a new one."
        )
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"`out` is '{out}', which is write-protected; give another.")
    return path


def _ours(folder: Path) -> bool:
    """Whether a folder holds parts of a sweep alone."""
    names = [x.name for x in folder.iterdir()]
    return all(x == "spec.json" or x.startswith(("part-", ".")) for x in names)


def _swap(new: Path, path: Path) -> None:
    """Puts a whole folder in the place of an older one."""
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    new.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def _reported(
    out: str, spec: Spec, errors: int, blocks: int, rows: int, begun: float
) -> dict[str, Any]:
    seconds = time.monotonic() - begun
    return {
        "out": out,
        "spec_hash": spec.hash,
        "rows": spec.rows,
        "errors": errors,
        "blocks": spec.blocks,
        "computed": blocks,
        "seconds": seconds,
        "rows_per_s": rows / seconds if rows else None,
    }
