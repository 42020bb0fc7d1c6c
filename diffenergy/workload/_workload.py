"""`Workload`: launches as structs of arrays, grouped by shape record; made of listings,
whose rows of dicts become columns, one phase a listing."""

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import equinox as eqx
import jax
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from .. import dtypes, kernels
from ..kernels import COMMON_FIELDS, REQUIRED, Context, Field, as_floats, take_rows
from ..records import Keyed, Record, as_float, as_index, is_concrete
from ._listing import (
    Listing,
    read_listings,
    select_listing,
    summary,
    with_dispatch,
)


class Phases(Record):
    """Attributes of each phase: host, operand contents, software."""

    stream_ops: Float[Array, "*p"] = eqx.field(converter=as_float)
    matrix_ops: Float[Array, "*p"] = eqx.field(converter=as_float)
    module_calls: Float[Array, "*p"] = eqx.field(converter=as_float)
    passes: Float[Array, "*p"] = eqx.field(converter=as_float)
    """Forward passes that the phase covers (decode steps)."""
    eager: Float[Array, "*p"] = eqx.field(converter=as_float)
    """1 where the host dispatches every operator, 0 for replayed graphs."""
    other_core_work: Float[Array, "*p"] = eqx.field(converter=as_float)
    """Core energy at V0 that no activity explains, J; left over by a power reading."""
    data_activity: Float[Array, "*p"] = eqx.field(converter=as_float)
    """Switching by the operands' contents, relative to random data."""
    math_activity: Float[Array, "*p"] = eqx.field(converter=as_float)
    """Switching of the math beyond that of the bytes it is fed with."""
    training: Float[Array, "*p"] = eqx.field(converter=as_float)
    """1 where kernels are those of training programs."""
    age: Float[Array, "*p"] = eqx.field(converter=as_float)
    """Years of these programs' software before the newest that was fitted."""


class LaunchGroup(Record):
    """Count, listing row and phase of each launch of a shape record."""

    count: Float[Array, "*k"] = eqx.field(converter=as_float)
    row: Int[Array, "*k"] = eqx.field(converter=as_index)
    phase: Int[Array, "*k"] = eqx.field(converter=as_index)


class Workload(eqx.Module):
    """Launches grouped by shape record, their counts, and the phases they belong to.

    Every group is padded (`_group_size`) with copies of a real row and count 0, so that
    workloads of similar size share one compilation.
    """

    shapes: tuple[Record, ...]
    groups: tuple[LaunchGroup, ...]
    phases: Phases
    names: tuple[str, ...] = eqx.field(static=True)
    """Phase names; empty strings where nobody reads them."""

    @property
    def num_rows(self) -> int:
        """Number of listing rows; the workload is no tracer."""
        return 1 + max(int(np.max(group.row)) for group in self.groups)

    @property
    def num_launches(self) -> int:
        """Launches with those that fill groups up: at least as many as rows."""
        return sum(len(group.row) for group in self.groups)

    def __repr__(self) -> str:
        if not is_concrete(self):
            return super().__repr__()
        launches: dict[str, float] = {}
        for shape, group in zip(self.shapes, self.groups, strict=True):
            name = type(shape).__name__
            launches[name] = launches.get(name, 0.0) + float(np.sum(group.count))
        phases = ", ".join(x for x in self.names if x)
        return summary("Workload", f"{self.num_rows} rows; {phases}", launches)


@dataclasses.dataclass(frozen=True)
class OpRows:
    """Rows of one op as NumPy columns: its fields and the common ones (dtypes are
    codes), with their number in the listing and their phase."""

    op: str
    fields: Mapping[str, np.ndarray]
    row: np.ndarray
    phase: np.ndarray


@dataclasses.dataclass(frozen=True)
class PhaseColumns:
    """Phase attributes as NumPy columns (see `Phases`); `copies`: how many sets of
    weights a campaign cycles through."""

    passes: Any = 1.0
    eager: Any = 0.0
    module_calls: Any = 0.0
    copies: Any = 1.0
    other_core_work: Any = 0.0
    data_activity: Any = 1.0
    math_activity: Any = 1.0
    training: Any = 0.0
    age: Any = 0.0

    @classmethod
    def single(cls, count: int, **columns: Any) -> "PhaseColumns":
        """Columns for `count` phases; by default one pass without a host."""
        filled = vars(cls(**columns))
        return cls(
            **{n: np.broadcast_to(as_floats(v), count) for n, v in filled.items()}
        )


def pad_size(n: int) -> int:
    """Next power of two, or the number half way to it."""
    whole = 1 << max(n - 1, 0).bit_length()
    return whole * 3 // 4 if n <= whole * 3 // 4 and whole >= 16 else whole


def _group_size(n: int, shape: type[Record]) -> int:
    """Launches of a group of `n`, filled up: those of light shapes, which cost hardly
    any time, to 16 or 48 first, so that most models of a kind share their programs."""
    sizes = (16, 48) if getattr(shape, "is_light", False) else (2,)
    return next((size for size in sizes if n <= size), pad_size(n))


def build_workload(
    parts: Sequence[OpRows],
    phases: PhaseColumns,
    names: tuple[str, ...] | None = None,
    like: Workload | None = None,
) -> Workload:
    """Lower op rows to launches and pack them.

    `like`: a workload whose groups this one fills up to, so that one program serves
    both where it has all of these classes and as many launches. Raises `ValueError` if
    there is no kernel at all.
    """
    if not any(len(part.row) for part in parts):
        raise ValueError("the workload has no kernels; give at least one.")
    lowered = [item for part in parts for item in _lower(part, phases)]
    num_phases = len(phases.passes)
    touched = np.zeros(num_phases)
    ops = {"stream": np.zeros(num_phases), "matrix": np.zeros(num_phases)}
    for launches, count, _, phase, hidden in lowered:
        np.add.at(touched, phase, launches.bytes * count)
        if launches.host != "none":
            np.add.at(ops[launches.host], phase, count * ~hidden)
    distance = phases.copies * touched / np.maximum(phases.passes, 1.0)
    shapes, groups = _packed(_grouped(lowered, distance), like)
    columns = {name: x for name, x in vars(phases).items() if name != "copies"}
    return Workload(
        shapes,
        groups,
        Phases(ops["stream"], ops["matrix"], **columns),
        names if names is not None else ("",) * num_phases,
    )


def _grouped(
    lowered: Sequence[tuple], distance: Float[np.ndarray, " phase"]
) -> dict[tuple, list]:
    """Columns and rows of launches by (shape record, whether its key is complete).

    `distance`: bytes that a phase touches between two uses of its operands, all sets of
    weights counted; columns of distances are shares of it.
    """
    grouped: dict[tuple, list] = defaultdict(list)
    for launches, count, row, phase, _ in lowered:
        columns = dict(launches.columns)
        for name in ("a_distance", "b_distance", "distance"):
            if name in columns:
                columns[name] = columns[name] * distance[phase]
        complete = np.full(len(row), bool(launches.key))
        for name in launches.key:
            complete = complete & (columns[name] > 0)
        for flag in (False, True):
            index = np.flatnonzero(complete == flag)
            if index.size:
                key = (launches.shape, flag)
                rows = {"count": count, "row": row, "phase": phase}
                grouped[key].append((take_rows(columns, index), take_rows(rows, index)))
    return grouped


def _packed(
    grouped: dict[tuple, list], like: Workload | None
) -> tuple[tuple[Record, ...], tuple[LaunchGroup, ...]]:
    """Shape record and launch group of each group, padded to at least the size that
    `like` has."""
    shapes, groups = [], []
    sizes = {} if like is None else _sizes(like, grouped)
    for shape, flag in sorted(grouped, key=lambda key: (key[0].__name__, key[1])):
        items = grouped[shape, flag]
        columns = concatenate([columns for columns, _ in items])
        rows = concatenate([rows for _, rows in items])
        least = sizes.get((shape, flag), 0)
        extra = max(_group_size(len(rows["row"]), shape), least) - len(rows["row"])
        rows = _pad(rows, extra)
        if extra:
            rows["count"][-extra:] = 0.0
        static = {"fixed_tile": True} if flag else {}
        shapes.append(shape(**_pad(columns, extra), **static))
        groups.append(LaunchGroup(**rows))
    return tuple(shapes), tuple(groups)


def _sizes(like: Workload, grouped: dict[tuple, list]) -> dict[tuple, int]:
    """Number of launches of each group of `like`. Classes that `grouped` lacks are
    added to it with count 0."""
    sizes = {}
    for shape, group in zip(like.shapes, like.groups, strict=True):
        key = (type(shape), getattr(shape, "fixed_tile", False))
        sizes[key] = len(group.row)
        if key not in grouped:
            fields = {x: y for x, y in vars(shape).items() if x != "fixed_tile"}
            columns = {x: np.asarray(y)[:1] for x, y in fields.items()}
            zero = np.zeros(1, int)
            grouped[key].append(
                (columns, {"count": 0.0 * zero, "row": zero, "phase": zero})
            )
    return sizes


def _lower(part: OpRows, phases: PhaseColumns) -> list[tuple]:
    """(launches, count, row, phase, hidden from the host) of one op's rows."""
    _, module = kernels.ops()[part.op]
    one = np.ones(len(part.row))
    context = Context(pass_bytes=one, eager=phases.eager[part.phase])
    result = []
    for launches in module.lower(part.op, part.fields, context):
        index = slice(None) if launches.rows is None else launches.rows
        hidden = part.fields["framework"][index].astype(str) == "conv_layout"
        count = as_floats(part.fields["count"])[index]
        item = (launches, count, part.row[index], part.phase[index], hidden)
        result.append(item)
    return result


def concatenate(items: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Columns of all items, one after the other."""
    return {name: np.concatenate([item[name] for item in items]) for name in items[0]}


def _pad(columns: dict[str, np.ndarray], extra: int) -> dict[str, np.ndarray]:
    return {
        name: np.concatenate([column, np.repeat(column[:1], extra, axis=0)])
        for name, column in columns.items()
    }


def from_listings(listings: Sequence[Listing]) -> Workload:
    """Workload with one phase a listing, named after its mode; rows are numbered
    through all listings in order."""
    return assemble(listings)


def assemble(listings: Sequence[Listing], like: Workload | None = None) -> Workload:
    """Workload of listings, one phase each; `like`: see `build_workload`. Without it,
    equal listings give the same record: what stays in memory costs nothing twice."""
    rows = sum(len(x.kernels) for x in listings)
    if like is not None or rows > _REMEMBERED_ROWS:
        return _assembled(listings, like)
    return _remembered(Keyed(_content(listings), tuple(listings)))


_REMEMBERED_ROWS: Final = 2000
"""Rows of listings whose workloads are remembered at most."""


def _content(listings: Sequence[Listing]) -> Any:
    """What tells the workloads of listings apart."""
    config: Any = jax.config
    return (
        config.jax_enable_x64,
        config.jax_default_device,
        *(
            (
                *(x.mode, x.passes, x.dispatch, x.module_calls, x.training, x.age),
                *(tuple(kernel.items()) for kernel in x.kernels),
            )
            for x in listings
        ),
    )


@functools.lru_cache(maxsize=64)
def _remembered(listings: Keyed) -> Workload:
    with jax.ensure_compile_time_eval():  # it is kept: no tracers of a first caller
        return _assembled(listings.value)


def _assembled(listings: Sequence[Listing], like: Workload | None = None) -> Workload:
    phases = phase_columns(listings)
    rows = [(kernel, index) for index, x in enumerate(listings) for kernel in x.kernels]
    names = tuple(listing.mode or "" for listing in listings)
    return build_workload(op_rows(rows), phases, names, like)


def phase_columns(listings: Sequence[Listing]) -> PhaseColumns:
    """Phase attributes of listings, one phase each."""
    return PhaseColumns.single(
        len(listings),
        passes=[listing.passes for listing in listings],
        eager=[listing.dispatch != "graph" for listing in listings],
        module_calls=[listing.module_calls for listing in listings],
        training=[listing.training for listing in listings],
        age=[listing.age for listing in listings],
    )


def op_rows(rows: Sequence[tuple[Mapping[str, Any], int]]) -> list[OpRows]:
    """(kernel, phase) pairs as columns by op."""
    classes = kernels.ops()
    by_op: dict[str, list[int]] = {}
    for number, (kernel, _) in enumerate(rows):
        by_op.setdefault(kernel["op"], []).append(number)
    parts = []
    for name, numbers in by_op.items():
        picked = [rows[number][0] for number in numbers]
        fields = (*classes[name][0].fields, *COMMON_FIELDS)
        columns = {field.name: _column(field, picked) for field in fields}
        phase = np.array([rows[number][1] for number in numbers])
        parts.append(OpRows(name, columns, np.array(numbers), phase))
    return parts


def _column(field: Field, kernels_: Sequence[Mapping[str, Any]]) -> np.ndarray:
    default = None if field.default is REQUIRED else field.default
    values = [kernel.get(field.name, default) for kernel in kernels_]
    return as_codes(field, values)


def as_codes(field: Field, values: Any) -> np.ndarray:
    """Column of a field: dtypes as codes, text as objects, numbers as float64."""
    if field.kind == "dtype":
        return np.array([dtypes.code(value) for value in values])
    if field.kind == "text":
        return np.asarray(values, dtype=object)
    return np.asarray(values, dtype=float)


def load_workload(path: str, name: str | None = None) -> Workload:
    """Workload from the listing file at `path`; `name` picks one of several.

    Raises `ValueError` in one sentence for anything that cannot be read.
    """
    listings = select_listing(read_listings(path), name)
    return from_listings([with_dispatch(listing) for listing in listings])
