"""Rows of a listing: an op with its fields, checked and written out in full."""

import difflib
import functools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .. import dtypes
from ..kernels import COMMON_FIELDS, REQUIRED, Field, Op

Number = int | float
Kernel = dict[str, Any]

_SYNONYMS: Final = {"message_bytes": "bytes", "kernel_source": "family"}


def normalise_kernel(raw: Mapping[str, Any], where: str) -> Kernel:
    """Kernel row with all fields of its op, defaults filled and synonyms resolved.

    `count` is always present, other common fields only if they differ from their
    default (`listed` whenever it is given). Fields that the format does not name are
    dropped.

    Arguments:

    - `raw`: the row as written.
    - `where`: file and line, for the message of the `ValueError` raised on bad input.

    Example:

    >>> normalise_kernel(dict(op="softmax", rows=8, cols=128, dtype="half"), "here")
    {'op': 'softmax', 'rows': 8, 'cols': 128, 'dtype': 'fp16', 'residual': False, 'count': 1}
    """  # noqa: E501
    stated = {_SYNONYMS.get(key, key): x for key, x in raw.items() if x is not None}
    stated |= {key: x for key, x in raw.items() if key in _SYNONYMS.values()}
    name = stated.get("op")
    kernel: Kernel = {"op": name}
    op = _op(name, where)
    for column in op.moved:
        if stated.get(column):
            raise ValueError(f"{where}: {op.misplaced(column)}.")
    for field in op.fields:
        value = stated.get(field.name)
        kernel[field.name] = (
            _default(field, kernel, where)
            if value is None
            else check_field(field, value, where)
        )
        if field.quiet and kernel[field.name] == field.default:
            del kernel[field.name]
    for field in COMMON_FIELDS:
        value = stated.get(field.name)
        content = field.default if value is None else check_field(field, value, where)
        if field.name == "count":
            kernel["count"] = _plain(content)
        elif content != field.default or (field.name == "listed" and value is not None):
            kernel[field.name] = content
    _check_shape(kernel, op, where)
    return kernel


def merge_kernels(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """Rows that differ in `count` alone become one, in order of first appearance."""
    counts: dict[tuple[Any, ...], Number] = {}
    for kernel in kernels:
        key = tuple(item for item in kernel.items() if item[0] != "count")
        counts[key] = counts.get(key, 0) + kernel["count"]
    return tuple({**dict(key), "count": count} for key, count in counts.items())


def normalise_rows(
    rows: Sequence[Kernel], where: str, merged: bool = True
) -> tuple[Kernel, ...]:
    """Normalised rows with `listed` (whether traces list the kernel); equal rows are
    merged unless their order matters (`merged` false)."""
    if not merged:
        return tuple(_normalise_row(row, where) for row in rows)
    return merge_kernels(
        [_normalise_row(row, where) for row in merge_kernels(rows)]
    )  # fewer rows to check


def _normalise_row(row: Kernel, where: str) -> Kernel:
    try:
        return {**_normalise_once(tuple(row.items()))}
    except ValueError:  # again, to say where
        return normalise_kernel(row, where)


@functools.lru_cache(maxsize=1 << 15)
def _normalise_once(row: tuple[tuple[str, Any], ...]) -> Kernel:
    """Normalised row, cached: similar models and plans repeat the same rows."""
    return normalise_kernel({"listed": True, **dict(row)}, "a kernel")


def _op(name: Any, where: str) -> Op:
    from ..kernels import ops  # the kernel classes load JAX

    classes = ops()
    if name is None:
        raise ValueError(f"{where}: `op` is missing; allowed are {', '.join(classes)}.")
    if not isinstance(name, str) or name not in classes:
        raise ValueError(
            f"{where}: `op` is {as_json(name)}, which is unknown"
            f"{nearest(str(name), list(classes))}."
        )
    return classes[name][0]


def _default(field: Field, kernel: Kernel, where: str) -> Any:
    """Value of an absent field, which may follow from fields before it."""
    if field.default is REQUIRED:
        raise ValueError(
            f"{where}: `{field.name}` of {kernel['op']} is missing; add it to the "
            "kernel."
        )
    return _plain(field.default(kernel) if callable(field.default) else field.default)


def check_field(field: Field, value: Any, where: str) -> Any:
    """`value` converted to the field's kind, whole numbers as ints. Raises
    `ValueError`, beginning with `where`, for a value of another kind."""
    match field.kind:
        case "dtype":
            name = dtypes.canonical(value) if isinstance(value, str) else None
            allowed = ", ".join((*dtypes.DTYPES, *dtypes.SYNONYMS))
            good, value = name in dtypes.DTYPES, name if name else value
        case "bool":
            good, allowed = isinstance(value, bool), "true and false"
        case "text":
            good = isinstance(value, str) and field.takes(value)
            allowed = ", ".join(field.words) or "text in quotes"
        case "share":
            good = _finite(value) and 0 <= value <= 1
            allowed = "a number from 0 to 1"
        case _:
            good = _finite(value) and value >= field.minimum
            good = good and not (field.whole and value % 1)
            what = "finite whole" if field.whole else "finite"
            allowed = f"a {what} number of at least {field.minimum:g}"
    if not good:
        raise ValueError(
            f"{where}: `{field.name}` is {as_json(value)}; allowed: {allowed}."
        )
    return _plain(value)


def _check_shape(kernel: Kernel, op: Op, where: str):
    """Raises `ValueError` where fields of a kernel contradict each other."""
    for part, whole in op.divisions:
        if kernel[whole] % kernel[part]:
            raise ValueError(
                f"{where}: `{whole}` is {kernel[whole]}, which `{part}` "
                f"{kernel[part]} does not divide; correct one of them."
            )
    if wrong := op.wrong(kernel):
        raise ValueError(f"{where}: {wrong}.")


def _finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond the float range
        return False


def _plain(value: Any) -> Any:
    """Whole floats as ints, so that rows compare and print alike."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def nearest(name: str, names: Sequence[str]) -> str:
    """End of a message that names those of `names` closest to `name`."""
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names[:3]
    return "; the nearest are " + ", ".join(f"'{match}'" for match in near)


def as_json(value: Any) -> str:
    """JSON of a value for a message, cut if it is long."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:37] + "..."


def kernel_name(kernel: Mapping[str, Any]) -> str:
    """Op and size of a kernel of a listing, as tables and schedules call it.

    >>> kernel_name({"op": "elementwise", "elements": 4096, "fn": "gelu"})
    'gelu 4096'
    """
    from ..kernels import ops  # the kernel classes load JAX

    op, _ = ops()[kernel["op"]]
    fields = op.named or op.required
    size = "x".join(f"{kernel[field]:.6g}" for field in fields if field in kernel)
    name = kernel.get("fn", kernel["op"])
    return " ".join(filter(None, [name, size, kernel.get("dtype")]))
