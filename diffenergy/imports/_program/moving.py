"""Rows of steps that pass over memory: fused maps and reductions, and moves."""

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from .._rows.operators import Row
from .._rows.types import element_bytes, elementwise_row, gather_row
from .flat import Program, Step, Value

_VIEWS: Final = (
    "reshape", "squeeze", "expand_dims", "broadcast_in_dim", "slice", "rev", "tile",
    "transpose", "dynamic_slice", "split", "unstack", "to_edtype", "from_edtype",
)  # fmt: skip
_NAMES: Final = (
    "stop_gradient", "optimization_barrier", "name", "pvary", "preduced", "reshard",
    "vary_unreduced_cast_p", "reduced_vary_cast_p", "mesh_cast", "sharding_constraint",
    "layout_constraint", "with_memory_space_constraint", "device_put", "random_wrap",
    "random_unwrap", "random_clone", "copy_p", "tie", "pin", "unpin",
)  # fmt: skip
_ENDS: Final = ("psum", "all_gather", "reduce_scatter", "all_to_all", "pbroadcast",
                "ppermute")  # fmt: skip
FREE: Final[Mapping[str, str]] = {
    **dict.fromkeys(_VIEWS, "consumers read through it"),
    **dict.fromkeys(_NAMES, "says something about a value, of which it is the same"),
    **dict.fromkeys(("iota", "axis_index"), "made where it is used"),
    **{f"{name}_done": "its start is priced" for name in _ENDS},
    "precv": "the sending is priced",
}
"""Primitives with no kernel of their own -> why. (Values split over GPUs outside of
`shard_map`, which `reshard` would move, are refused.)"""
_REDUCTIONS: Final = (
    "argmax", "argmin", "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp",
    "reduce", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod",
    "reduce_sum", "reduce_xor",
)  # fmt: skip
_ELEMENTWISE: Final = frozenset(
    """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bitcast_convert_type
    cbrt ceil clamp conj convert_element_type copy cos cosh digamma div eq erf erf_inv
    erfc exp exp2 expm1 floor ge gt igamma igammac imag integer_pow is_finite le lgamma
    log log1p logistic lt max min mul ne neg nextafter not or polygamma population_count
    pow real reduce_precision regularized_incomplete_beta rem round rsqrt select_n
    shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square sub
    tan tanh threefry2x32 random_bits random_seed random_fold_in random_split xor clz
    erf_inv bessel_i0e bessel_i1e nextafter rng_bit_generator rng_uniform zeta
    """.split()
)
_MOVED_OUT: Final = (
    "gather", "concatenate", "stack", "pad", "dynamic_gather", "take", "sort", "top_k",
    "select_and_gather_add", "approx_top_k",
)  # fmt: skip
"""What moves is the output."""
_WINDOWS: Final = (
    "reduce_window", "reduce_window_max", "reduce_window_sum", "reduce_window_min",
    "select_and_scatter_add",
)  # fmt: skip
_SLOW: Final = {"tanh": "tanh", "exp": "exp", "exp2": "exp", "logistic": "silu",
                "pow": "pow", "erf": "gelu", "log": "exp", "rsqrt": "exp"}  # fmt: skip
"""Primitives on special function units -> `fn` that counts them."""


def is_elementwise(step: Step) -> bool:
    """Whether each element of the output follows from those at its place."""
    return step.name in _ELEMENTWISE


def is_reduction(step: Step) -> bool:
    """Whether it is a reduction over some axes."""
    return step.name in _REDUCTIONS


class Regions:
    """Maps and reductions of a program as fused kernels.

    A map joins the kernels of its operands where these have as many elements and runs
    and nothing but maps stands between (`level`: products and reductions on the way); a
    reduction ends a kernel.
    """

    def __init__(self, program: Program, excluded: frozenset[Step], fuse: bool):
        self.program, self.excluded, self.fuse = program, excluded, fuse
        self.source: dict[Value, Value] = {}
        self.level: dict[Value, int] = defaultdict(int)
        self.region: dict[Value, int] = {}
        self.steps: dict[int, list[Step]] = {}
        self.owner: dict[Step, int] = {}
        self.numbers = itertools.count()
        self.counters = {
            x for s in program.steps if s.name == "iota" for x in s.outputs
        }
        self._build()
        self.users = self._users()

    def root(self, value: Value) -> Value:
        """What is read for a value: behind views of it."""
        while value in self.source:
            value = self.source[value]
        return value

    def _build(self):
        for step in self.program.steps:
            deep = max((self.level[self.root(x)] for x in step.inputs), default=0)
            if step.name in FREE:
                for out in step.outputs:
                    if step.inputs:
                        self.source[out] = step.inputs[0]
                    self.level[out] = deep
                continue
            mapped = is_elementwise(step)
            if step in self.excluded or not (mapped or is_reduction(step)):
                for out in step.outputs:
                    self.level[out] = deep + 1
                continue
            size = max(x.size for x in (step.outputs if mapped else step.inputs))
            number = self._joined(step, deep, size)
            self.steps[number].append(step)
            self.owner[step] = number
            for out in step.outputs:
                self.level[out] = deep if mapped else deep + 1
                if mapped:
                    self.region[out] = number

    def _joined(self, step: Step, level: int, size: int) -> int:
        """Region of a step: those of its operands become one."""
        regions: list[int] = []
        for value in step.inputs if self.fuse else ():
            root = self.root(value)
            number = self.region.get(root)
            if number is None or number in regions or root.size != size:
                continue
            first = self.steps[number][0]
            if self.level[root] == level and first.count == step.count:
                regions.append(number)
        if not regions:
            number = next(self.numbers)
            self.steps[number] = []
            return number
        first_region, *others = sorted(regions)
        for other in others:
            for moved_step in self.steps.pop(other):
                self.steps[first_region].append(moved_step)
                self.owner[moved_step] = first_region
                for out in moved_step.outputs:
                    if out in self.region:
                        self.region[out] = first_region
        return first_region

    def _users(self) -> Mapping[Value, set[int | None]]:
        """Regions that read a value (None: another step, or it leaves)."""
        users: dict[Value, set[int | None]] = defaultdict(set)
        for step in self.program.steps:
            if step.name in FREE:
                continue
            for value in step.inputs:
                users[self.root(value)].add(self.owner.get(step))
        for value in self.program.results:
            users[self.root(value)].add(None)
        return users

    def row(self, number: int) -> Row | None:
        """The kernel of a region; None where nothing is written."""
        steps = self.steps[number]
        outputs = [x for step in steps for x in step.outputs]
        inside = set(outputs)
        parts: dict[Value, dict[Value, int]] = {}  # of what lies in memory
        for step in steps:
            for value in step.inputs:
                root = self.root(value)
                if root in inside or (root.size == 1 and not root.shape):
                    continue
                if root in self.counters:
                    continue
                parts.setdefault(root, {})[value] = value.size
        reads = {x: min(sum(part.values()), x.size) for x, part in parts.items()}
        writes = [x for x in outputs if self.users[x] - {number}]
        leaves = any(x in self.program.results for x in writes)
        if not writes or not (reads or leaves):  # a mask by positions costs nothing
            return None
        size = max(x.size for s in steps for x in (*s.inputs, *s.outputs))
        names = [step.name for step in steps]
        slow = next((_SLOW[x] for x in names if x in _SLOW), None)
        fn = slow or ("fused" if len(names) > 1 else names[0])
        if size <= 1:
            return None
        return elementwise_row(
            fn, size, [(n, x.dtype) for x, n in reads.items()],
            [(x.size, x.dtype) for x in writes],
        )  # fmt: skip


def moving_row(step: Step) -> Row | None:
    """Row of a step that moves elements; None of others."""
    if step.name in _MOVED_OUT:
        return _moved_rows(step.outputs[0], step)
    if step.name == "dynamic_update_slice":
        return _moved_rows(step.inputs[1], step)
    if step.name.startswith("scatter"):
        return _moved_rows(step.inputs[2], step)
    if step.name in _WINDOWS:
        x, out = step.inputs[0], step.outputs[0]
        return elementwise_row(
            step.name, x.size, [(x.size, x.dtype)], [(out.size, out.dtype)]
        )
    return None


def _moved_rows(value: Value, step: Step) -> Row | None:
    """A gather row of a value's elements, as rows of its last axis."""
    if not value.size:
        return None
    cols = value.shape[-1] if value.shape else 1
    if step.name == "gather":
        whole = math.prod(step.params.get("slice_sizes") or (1,))
        cols = whole if whole and value.size % whole == 0 else cols
    return gather_row(value.size // cols, cols, value.dtype)


def bytes_of(values: Sequence[Value]) -> float:
    """Bytes of some values together."""
    return sum(x.size * (element_bytes(x.dtype) or 4.0) for x in values)
