"""Kernel listings: reading, checking and writing of `.jsonl` workload descriptions."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from .. import dtypes
from ..kernels import Field
from ._kernel import Kernel, Number, as_json, check_field, nearest, normalise_kernel
from ._model_request import Dispatch

_AHEAD: Final = 10.0
"""Years by which software may be newer than the newest that was fitted."""
SPLIT_PHASES: Final = (("prefill", "decode"), ("forward", "backward", "optimizer"))
"""Ends of the names (and modes) of listings that are one workload: a generation, a
training step."""


@dataclasses.dataclass(frozen=True)
class Listing:
    """One workload as a multiset of kernels.

    `kernels`: normalised rows (`normalise_kernel`). `passes`: forward passes that the
    counts cover (decode steps). `module_calls`: `nn.Module` calls of all these passes,
    0 if unknown. `dispatch`: "eager" (one host launch a kernel) or "graph"; None: not
    stated, which measured passes take as eager (see `with_dispatch`). `training`:
    whether its kernels are those of training programs, `age`: years of their software
    before the newest that was fitted. `notes`: what was assumed while reading."""

    name: str
    model: str | None = None
    config: str | None = None
    precision: str | None = None
    batch: Number | None = None
    seq_len: Number | None = None
    mode: str | None = None
    kernels: tuple[Kernel, ...] = ()
    module_calls: Number = 0
    passes: Number = 1
    dispatch: Dispatch | None = None
    training: bool = False
    age: Number = 0
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        texts = ((self.model, "{}"), (self.mode, "{}"), (self.batch, "batch {:,}"),
                (self.seq_len, "{:,} tokens"), (self.passes, "{} passes"),
                (self.dispatch, "dispatch {}"))  # fmt: skip
        about = [text.format(x) for x, text in texts if x not in (None, 1)]
        launches: dict[str, float] = {}
        for row in self.kernels:
            launches[row["op"]] = launches.get(row["op"], 0) + row.get("count", 1)
        return summary(f"Listing '{self.name}'", ", ".join(about), launches)


def summary(title: str, about: str, launches: Mapping[str, float]) -> str:
    """At most ten lines: a title, what else is said, launches by class, most first."""
    ordered = sorted(launches.items(), key=lambda x: -x[1])
    if len(ordered) > _SHOWN:
        rest = ordered[_SHOWN - 1 :]
        more = f"{len(rest)} more", sum(n for _, n in rest)
        ordered = [*ordered[: _SHOWN - 1], more]
    lines = [f"  {name}: {n:,.6g}" for name, n in ordered]
    total = f"{sum(launches.values()):,.6g} launches"
    return (
        "\n".join([f"<{title}: {total}", *([f"  {about}"] * bool(about)), *lines]) + ">"
    )


_SHOWN: Final = 8
"""Classes of a summary."""
_HEADER: Final = (
    *(Field(key, "text", None) for key in ("name", "model", "config")),
    *(Field(key, "text", None) for key in ("precision", "mode")),
    Field("dispatch", "text", None, choices=get_args(Dispatch)),
    Field("training", "bool", False),
    Field("batch", default=None),
    Field("seq_len", default=None),
    Field("module_calls", default=0, minimum=0.0),
    Field("passes", default=1),
    Field("age", default=0, minimum=-_AHEAD, whole=False),
)
"""Fields of a workload beside its kernels and notes."""


def read_listings(path: str | Path) -> list[Listing]:
    """Workloads of the listing file `path`, one a line.

    Raises `ValueError`, naming file and line, for anything that cannot be read.
    """
    path = Path(path)
    listings: list[Listing] = []
    lines: dict[str, int] = {}
    text = _text(path).splitlines()
    single = sum(bool(line.strip()) for line in text) == 1
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        default = path.stem if single else f"{path.stem}:{number}"
        listing = _listing(_object(line, where), where, default)
        if listing.name in lines:
            raise ValueError(
                f"{where}: `name` is '{listing.name}' like on line "
                f"{lines[listing.name]}; give each workload a name of its own."
            )
        lines[listing.name] = number
        listings.append(listing)
    if not listings:
        raise ValueError(
            f"{path}: the listing is empty; write one JSON object a line, with "
            "`name` and `kernels`."
        )
    return listings


def with_dispatch(listing: Listing, dispatch: str | None = None) -> Listing:
    """`listing` with `dispatch`, else its own, else eager where its module calls are
    known: kernels alone are no pass that a host steps through.

    >>> with_dispatch(Listing("one product")).dispatch
    'graph'
    """
    kinds = get_args(Dispatch)
    if dispatch not in (None, *kinds):
        raise ValueError(f"`dispatch` is '{dispatch}'; allowed are {', '.join(kinds)}.")
    usual = "eager" if listing.module_calls else "graph"
    chosen: Any = dispatch or listing.dispatch or usual
    return dataclasses.replace(listing, dispatch=chosen)


def select_listing(listings: Sequence[Listing], name: str | None) -> list[Listing]:
    """The workload called `name`, or the only one.

    `X` also selects the parts `X/prefill` and `X/decode` of a generation, or
    `X/forward`, `X/backward` and `X/optimizer` of a training step, and without a name
    they are returned if they are all there is.
    """
    names = [listing.name for listing in listings]
    if name is None:
        whole = whole_workloads(listings, names[0].rpartition("/")[0])
        if len(listings) == 1 or [len(x) for x in whole] == [len(listings)]:
            return whole[0] if whole else list(listings)
        shown = ", ".join(f"'{x}'" for x in names[:3])
        more = ", ..." if len(names) > 3 else ""
        raise ValueError(
            f"The listing has {len(names)} workloads ({shown}{more}); choose one with "
            "`--workload NAME`."
        )
    chosen = [listing for listing in listings if listing.name == name]
    matches = [chosen] if chosen else whole_workloads(listings, name)
    if len(matches) > 1:
        raise ValueError(
            f"`--workload` is '{name}'; the listing has parts of a generation and of a "
            "training step of that name; give each a file of its own."
        )
    if matches:
        return matches[0]
    raise ValueError(
        f"`--workload` is '{name}'; the listing has no such workload"
        f"{nearest(name, names)}."
    )


def whole_workloads(listings: Sequence[Listing], name: str) -> list[list[Listing]]:
    """Every set of listings that are all parts of the workload `name`, in the order
    of `SPLIT_PHASES`; the end of a part's name is its mode, whether the part says it or
    not: phases need names that differ."""
    named = {listing.name: listing for listing in listings}
    return [
        [dataclasses.replace(named[f"{name}/{part}"], mode=part) for part in parts]
        for parts in SPLIT_PHASES
        if all(f"{name}/{part}" in named for part in parts)
    ]


def listings_by_name(paths: Sequence[str]) -> dict[str, list[Listing]]:
    """Listings of all files by name; the parts of a generation or of a training step
    (`X/prefill` and `X/decode`) are also `X`. Raises `ValueError` for a name that is
    there twice."""
    listings: dict[str, list[Listing]] = {}
    files: dict[str, str] = {}
    for path in paths:
        for listing in read_listings(path):
            if listing.name in listings:
                raise ValueError(
                    f"{path}: the workload '{listing.name}' is also in "
                    f"{files[listing.name]}; give each name once."
                )
            listings[listing.name], files[listing.name] = [listing], path
    single = [listing for one in listings.values() for listing in one]
    stems = dict.fromkeys(name.rpartition("/")[0] for name in listings)
    for stem in stems:
        parts = whole_workloads(single, stem)
        if stem not in listings and len(parts) == 1:
            listings[stem] = parts[0]
    return listings


def listing_lines(listings: Sequence[Listing]) -> str:
    """Text of a listing file that `read_listings` reads back identically."""
    return "".join(json.dumps(_line(listing)) + "\n" for listing in listings)


def _text(path: Path) -> str:
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give a listing file (`.jsonl`).")
    if not path.exists():
        raise ValueError(f"{path} does not exist; give a listing file (`.jsonl`).")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text (byte {error.start}); save the listing as UTF-8 "
            "JSON lines."
        ) from None
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error.strerror}); check its permissions."
        ) from None


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", "a number or the nesting is too large")
        column = f" at column {error.colno}" if hasattr(error, "colno") else ""  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError(
            f"{where}: broken JSON ({reason}{column}); write one JSON object a line."
        ) from None
    if not isinstance(value, dict):
        raise ValueError(
            f"{where}: the line is {as_json(value)}; allowed is a JSON object with "
            "`name` and `kernels`."
        )
    return value


def _listing(raw: dict[str, Any], where: str, default_name: str) -> Listing:
    rows = raw.get("kernels")
    if rows is None:
        raise ValueError(
            f"{where}: `kernels` is missing; add the list of kernels of the workload."
        )
    if not isinstance(rows, list) or not rows:
        raise ValueError(
            f"{where}: `kernels` is {as_json(rows)}; allowed is a list of at least one "
            "kernel object."
        )
    kernels = []
    for index, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ValueError(
                f"{where}, kernel {index}: the kernel is {as_json(row)}; allowed is an "
                "object with `op` and its fields."
            )
        kernels.append(normalise_kernel(row, f"{where}, kernel {index}"))
    fields: dict[str, Any] = {
        field.name: field.default if value is None else check_field(field, value, where)
        for field in _HEADER
        for value in [raw.get(field.name)]
    }
    fields["name"] = fields["name"] or default_name
    precision: str = fields["precision"] or ""
    fields["precision"] = dtypes.canonical(precision) or None
    notes = (*_notes(raw, where), *_remarks(rows))
    return Listing(kernels=tuple(kernels), notes=notes, **fields)


def _line(listing: Listing) -> dict[str, Any]:
    fields = {x.name: getattr(listing, x.name) for x in dataclasses.fields(Listing)}
    kernels = fields.pop("kernels")
    optional = {name: fields.pop(name) for name in ("training", "age", "notes")}
    return {**fields, **{k: v for k, v in optional.items() if v}, "kernels": kernels}


def _remarks(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Notes on what was assumed of the kernels as written, each once."""
    from ..kernels import ops  # the kernel classes load JAX

    remarks = (ops()[row["op"]][0].remark(row) for row in rows)
    return tuple(dict.fromkeys(x for x in remarks if x))


def _notes(raw: dict[str, Any], where: str) -> list[str]:
    values = raw.get("notes") or []
    if not isinstance(values, list) or not all(isinstance(x, str) for x in values):
        raise ValueError(
            f"{where}: `notes` is {as_json(values)}; allowed is a list of texts."
        )
    return values
