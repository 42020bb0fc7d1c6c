"""A jaxpr as a flat list of steps: calls are walked into, loops multiply counts, and
every value has a name of its own, so that regions see through calls."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from jax.extend.core import ClosedJaxpr, Literal
from jax.sharding import NamedSharding

INLINED: Final = (
    "jit", "pjit", "closed_call", "core_call", "named_call", "remat", "remat2",
    "checkpoint", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
    "shard_map", "custom_lin", "xla_call", "custom_transpose", "run_state",
    "custom_partitioning", "composite", "custom_vmap_call", "call",
)  # fmt: skip
"""Primitives that call a jaxpr once."""
_BODIES: Final = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call")


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """An array of a program; `constant`: what it holds, where that is known."""

    shape: tuple[int, ...]
    dtype: str
    constant: Any = None

    @property
    def size(self) -> int:
        """Elements."""
        return int(np.prod(self.shape, dtype=float)) if self.shape else 1


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """One operation, run `count` times; `mesh`: GPUs along each axis of the `shard_map`
    around it, empty outside of one."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    params: Mapping[str, Any]
    count: float
    mesh: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Program:
    """Steps in order; `results`: values that leave it, or a loop's iteration; `split`:
    axes over which shardings split values outside of `shard_map` -> GPUs."""

    steps: list[Step]
    results: set[Value]
    notes: dict[str, None]
    split: dict[str, int] = dataclasses.field(default_factory=dict)


def flatten(
    closed: ClosedJaxpr,
    trips: int | Sequence[int] | None,
    flop: Callable[["Step"], float],
) -> Program:
    """The steps of a program that its results need.

    `trips`: how often loops without a known end run (`while`): of each, in order, or
    one number for all [once, with a note]. `flop`: FLOP of a step; of the branches
    of a condition that with most of them counts.
    """
    flat = _Flattener(trips, flop)
    inputs = [_value(x.aval) for x in closed.jaxpr.invars]
    results = flat.walk(closed.jaxpr, closed.consts, inputs, 1.0)
    flat.program.results |= set(results)
    return _without_dead_steps(flat.program)


def walk(body: Any, count: int, flop: Callable[["Step"], float]) -> Program:
    """All steps of a kernel's body, run `count` times; it writes to its operands."""
    flat = _Flattener(None, flop)
    flat.walk(body, (), [_value(x.aval) for x in body.invars], float(count))
    return flat.program


class _Flattener:
    def __init__(
        self,
        trips: int | Sequence[int] | None,
        flop: Callable[["Step"], float],
    ):
        self.flop = flop
        self.program = Program([], set(), {})
        self.mesh: Mapping[str, int] = {}
        several = isinstance(trips, Sequence)
        self.trips: Iterator[int | None] = (
            itertools.chain(trips, itertools.repeat(None))  # pyright: ignore[reportArgumentType]
            if several
            else itertools.repeat(trips)  # pyright: ignore[reportAssignmentType]
        )

    def walk(
        self,
        jaxpr: Any,
        consts: Sequence[Any],
        inputs: Sequence[Value],
        count: float,
    ) -> list[Value]:
        """Appends the steps of a jaxpr; returns its results."""
        env: dict[Any, Value] = {}
        for var, const in zip(jaxpr.constvars, consts, strict=False):
            env[var] = _value(var.aval, const)
        for var in jaxpr.constvars[len(consts) :]:
            env[var] = _value(var.aval)
        env |= dict(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> Value:
            literal = isinstance(atom, Literal)
            return _value(atom.aval, atom.val) if literal else env[atom]

        for eqn in jaxpr.eqns:
            operands = [read(x) for x in eqn.invars]
            results = self._step(eqn, operands, count)
            env |= dict(zip(eqn.outvars, results, strict=True))
        return [read(x) for x in jaxpr.outvars]

    def _step(self, eqn: Any, operands: list[Value], count: float) -> list[Value]:
        name, params = eqn.primitive.name, eqn.params
        stated = [params.get(x) for x in ("sharding", "dst_sharding")]
        for several in ("in_shardings", "out_shardings"):
            stated += params.get(several, ())
        stated += [getattr(x.aval, "sharding", None) for x in eqn.outvars]
        for sharding in stated:
            self.program.split |= split_axes(sharding)
        if name in INLINED:
            body = next((params[x] for x in _BODIES if x in params), None)
            if body is not None:
                inner, consts = _jaxpr_and_constants(body)
                if name == "shard_map":  # inside are the parts of one GPU
                    parts = [_value(x.aval) for x in inner.invars]
                    around, self.mesh = self.mesh, dict(params["mesh"].shape)
                    self._note_other_axes(params)
                    results = self.walk(inner, consts, parts, count)
                    self.mesh = around
                    self.program.results |= {*results, *operands}
                    return [_value(x.aval) for x in eqn.outvars]
                if len(inner.invars) == len(operands):
                    return self.walk(inner, consts, operands, count)
        loops = {"scan": self._scan, "while": self._while, "cond": self._cond}
        if name in loops:
            return loops[name](params, operands, count)
        outputs = tuple(_value(x.aval) for x in eqn.outvars)
        step = Step(name, tuple(operands), outputs, params, count, self.mesh)
        self.program.steps.append(step)
        return list(outputs)

    def _note_other_axes(self, params: Mapping[str, Any]):
        """Says which axes of a mesh XLA would split values over by itself."""
        manual = params.get("manual_axes") or params.get("newly_manual_axes") or ()
        others = [x for x, n in self.mesh.items() if n > 1 and x not in manual]
        if manual and others:
            self.program.notes[
                f"`shard_map` leaves axis {', '.join(map(str, others))} of its mesh to "
                "XLA: each GPU along it counts as doing all of the work"
            ] = None

    def _scan(
        self, params: Mapping[str, Any], operands: list[Value], count: float
    ) -> list[Value]:
        """The body `length` times; what it starts from is in memory, what it stacks is
        written in each iteration."""
        inner, consts = _jaxpr_and_constants(params["jaxpr"])
        fixed, carried = params["num_consts"], params["num_carry"]
        length = params["length"]
        inside = [
            x if i < fixed else _value(var.aval)
            for i, (x, var) in enumerate(zip(operands, inner.invars, strict=True))
        ]
        results = self.walk(inner, consts, inside, count * length)
        self.program.results |= {*results, *operands[fixed:]}
        stacked = results[carried:]
        return [
            *(_like(x) for x in results[:carried]),
            *(Value((length, *x.shape), x.dtype) for x in stacked),
        ]

    def _while(
        self, params: Mapping[str, Any], operands: list[Value], count: float
    ) -> list[Value]:
        """The body as often as `trips` states, else once."""
        inner, consts = _jaxpr_and_constants(params["body_jaxpr"])
        trips = next(self.trips)
        if trips is None:
            self.program.notes[
                "a `while` loop is counted once: nothing says how often it runs; give "
                "`trips`"
            ] = None
        skip, fixed = params["cond_nconsts"], params["body_nconsts"]
        carried = operands[skip:]
        inside = [x if i < fixed else _like(x) for i, x in enumerate(carried)]
        times = 1 if trips is None else trips
        results = self.walk(inner, consts, inside, count * times)
        self.program.results |= {*results, *carried[fixed:]}
        return [_like(x) for x in results]

    def _cond(
        self, params: Mapping[str, Any], operands: list[Value], count: float
    ) -> list[Value]:
        """The branch with most work."""
        branches: list[tuple[float, int, Program, list[Value]]] = []
        whole = self.program
        for branch in params["branches"]:
            self.program = Program([], set(), whole.notes, whole.split)
            inner, consts = _jaxpr_and_constants(branch)
            results = self.walk(inner, consts, operands[1:], count)
            work = sum(self.flop(step) for step in self.program.steps)
            branches.append((work, len(self.program.steps), self.program, results))
        _, _, best, results = max(branches, key=lambda x: x[:2])
        whole.steps += best.steps
        whole.results |= best.results
        self.program = whole
        return results


def _jaxpr_and_constants(body: Any) -> tuple[Any, Sequence[Any]]:
    """(jaxpr, constants) of a closed or an open one."""
    return (body.jaxpr, body.consts) if hasattr(body, "consts") else (body, ())


def _value(aval: Any, constant: Any = None) -> Value:
    shape = tuple(int(x) for x in getattr(aval, "shape", ()))
    return Value(shape, str(getattr(aval, "dtype", "float32")), constant)


def split_axes(sharding: Any) -> dict[str, int]:
    """Axes (of more than one GPU) over which a sharding splits an array -> GPUs."""
    if not isinstance(sharding, NamedSharding):
        return {}
    sizes, spec = sharding.mesh.shape, sharding.spec
    names = [x for part in spec for x in (part if isinstance(part, tuple) else (part,))]
    return {x: sizes[x] for x in names if isinstance(x, str) and sizes[x] > 1}


def _like(x: Value) -> Value:
    return Value(x.shape, x.dtype)


def _without_dead_steps(program: Program) -> Program:
    """The program without steps whose results are not read."""
    live, steps = set(program.results), []
    for step in reversed(program.steps):
        if live.intersection(step.outputs) or not step.outputs:
            live.update(step.inputs)
            steps.append(step)
    return dataclasses.replace(program, steps=steps[::-1])
