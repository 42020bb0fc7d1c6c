"""Traces of PyTorch's profiler (Kineto) and other Chrome traces with GPU kernels.

Joined are kernel -> launch by correlation -> innermost operator on its thread, else
kernel -> operator by the profiler's own id. Events stream through a reader that keeps
what it needs: a trace of 200 MB takes a few hundred MB of memory.
"""

import bisect
import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from .._launches import Launch, Operator, Trace, one_gpu, to_tuples
from .._request import ImportRequest
from .._rows.names import kernel_class
from .._rows.operators import base_name
from .._rows.sharing import is_collective
from .._rows.strides import Call, inferred
from .chrome import Events

_KERNELS: Final = ("kernel", "gpu_kernel")
_COPIES: Final = ("gpu_memcpy", "gpu_memset", "memcpy", "memset")
_LAUNCHING: Final = ("cuda_runtime", "cuda_driver", "runtime", "driver")
_OPERATORS: Final = ("cpu_op", "operator")
_STEPS: Final = ("user_annotation", "gpu_user_annotation")
_COLLECTIVE: Final = {
    "name": "Collective name",
    "in": "In msg nelems",
    "out": "Out msg nelems",
    "dtype": "dtype",
    "ranks": "Group size",
}

_Kernel = tuple[Launch, int | None, int | None]
"""A kernel, the number of its launch and that of its operator."""


class _Reader:
    """Takes events one by one; keeps kernels, launches, operators and steps."""

    def __init__(self, where: str):
        self.where = where
        self.kernels: list[_Kernel] = []
        self.copies: dict[int, float] = defaultdict(float)
        self.launched: dict[int, tuple[str, float]] = {}
        self.calls: dict[str, list[Call]] = defaultdict(list)
        self.by_id: dict[int, Call] = {}
        self.steps: dict[str, tuple[float, float]] = {}
        self.operators: dict[str, Operator] = {}
        self.names: dict[str, str] = {}
        self.events = 0

    def take(self, event: Mapping[str, Any]):
        """Sorts one event in."""
        self.events += 1
        category = str(event.get("cat", "")).lower()
        if event.get("ph") not in ("X", None) or not category:
            return
        args = event.get("args") or {}
        if category in _KERNELS:
            self._kernel(event, args)
        elif category in _OPERATORS:
            self._operator(event, args)
        elif category in _LAUNCHING:
            if "correlation" in args:
                at = (str(event.get("tid")), self._number(event, "ts"))
                self.launched[int(args["correlation"])] = at
        elif category in _COPIES:
            device = _whole(args.get("device", event.get("pid")))
            self.copies[device] += self._number(event, "dur")
        elif category in _STEPS:
            start = self._number(event, "ts")
            name = str(event.get("name"))
            end = start + self._number(event, "dur")
            self.steps.setdefault(name, (start, end))

    def _number(self, event: Mapping[str, Any], key: str) -> float:
        """Time of an event, us; of 0 or more."""
        value = event.get(key, 0)
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if not 0 <= number < float("inf"):
            what = "duration" if key == "dur" else "time"
            raise ValueError(
                f"{self.where}: the {what} (`{key}`) of "
                f"'{str(event.get('name'))[:40]}' is {str(value)[:20]}; allowed is a "
                "number of us from 0 on: export the trace again."
            )
        return number

    def _kernel(self, event: Mapping[str, Any], args: Mapping[str, Any]):
        name = str(event.get("name", ""))
        collective = None
        if "Collective name" in args or "In msg nelems" in args:
            collective = {key: args.get(word) for key, word in _COLLECTIVE.items()}
        launch = Launch(
            self.names.setdefault(name, name),
            self._number(event, "dur"),
            self._number(event, "ts"),
            _whole(args.get("stream", event.get("tid"))),
            _whole(args.get("device", event.get("pid"))),
            _triple(args.get("grid")),
            _triple(args.get("block")),
            _whole(args.get("shared memory")),
            collective=collective,
        )
        identifier = _optional(args.get("External id", args.get("external id")))
        self.kernels.append((launch, _optional(args.get("correlation")), identifier))

    def _operator(self, event: Mapping[str, Any], args: Mapping[str, Any]):
        name = str(event.get("name", ""))
        dims = args.get("Input Dims", args.get("Input dims")) or ()
        types = args.get("Input type", args.get("Input Types")) or ()
        values = args.get("Concrete Inputs") or ()
        key = f"{name}|{dims}|{types}|{values}"
        operator = self.operators.get(key)
        if operator is None:
            operator = Operator(
                name, to_tuples(dims), to_tuples(types), to_tuples(values)
            )
            self.operators[key] = operator
        start = self._number(event, "ts")
        end = start + self._number(event, "dur")
        call = (start, end, operator)
        self.calls[str(event.get("tid"))].append(call)
        identifier = _optional(args.get("External id", args.get("external id")))
        if identifier:
            self.by_id[identifier] = call


def read(path: str, request: ImportRequest) -> Trace:
    """Launches of a trace.

    Raises `ValueError` for a file that is no trace, is cut off, holds no GPU kernel,
    or kernels of several kinds of GPUs.
    """
    reader = _Reader(path)
    about = Events(path, reader.take, request.progress).read()
    if not reader.kernels:
        raise ValueError(
            f"{path}: the trace has {reader.events} events and no GPU kernel; record "
            "it with `activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`."
        )
    kernels = sorted(reader.kernels, key=lambda x: (x[0].start, x[0].duration))
    begin, end = _window(request.window, reader, kernels[0][0].start, path)
    kernels = [x for x in kernels if begin <= x[0].start < end]
    if not kernels:
        raise ValueError(
            f"{path}: no kernel starts in the window; `--window` counts us from the "
            "first kernel of the file."
        )
    joined = _join_operators(reader, kernels)
    gpu = _gpu(about, {x.device for x in joined}, path)
    job = about.get("distributedInfo")
    size = job.get("world_size") if isinstance(job, dict) else 0
    world = size if isinstance(size, int) and size > 0 else 0
    return Trace("kineto", joined, gpu, dict(reader.copies), world=world)


def _join_operators(reader: _Reader, kernels: list[_Kernel]) -> list[Launch]:
    """Kernels with the operators that launched them."""
    threads = {thread: _Calls(calls) for thread, calls in sorted(reader.calls.items())}
    strides = inferred([(x.calls, x.around) for x in threads.values()])
    numbers: dict[Any, int] = {}
    launches = []
    for launch, at, identifier in kernels:
        inner, call, outer = None, None, iter(())
        if at is not None and at in reader.launched:
            thread, when = reader.launched[at]
            call_around = threads[thread].innermost(when) if thread in threads else None
            if call_around is not None:
                inner, call = call_around[1], (thread, call_around[0])
                outer = threads[thread].outwards(call_around[0])
        if inner is None and identifier and identifier in reader.by_id:
            inner, call = reader.by_id[identifier], identifier
        operator = inner and strides.get(id(inner), inner[2])
        if operator and not operator.has_sizes():
            operator = _with_sizes(operator, launch, outer)
        number = -1 if call is None else numbers.setdefault(call, len(numbers))
        launches.append(launch._replace(operator=operator, call=number))
    return launches


def _with_sizes(
    operator: Operator, launch: Launch, around: Iterator[Operator]
) -> Operator:
    """The operator with the sizes of a call around it, where it states none and that
    call passes on its own tensors: a collective, or the parts that `cat` joins (the
    kernel has a row of blocks for each)."""
    joins = base_name(operator.name) == "cat" and "CatArray" in launch.name
    if not joins and kernel_class(launch.name) != "collective":
        return operator
    for outer in around:
        if joins:
            parts = tuple(x for x in outer.dims or () if x)
            blocks = launch.grid[1] if len(launch.grid) > 1 else 0
            whole = all(isinstance(n, int) for x in parts for n in x)
            if whole and len(parts) == blocks > 1:
                return Operator(operator.name, (parts,), (outer.type(0),))
        elif is_collective(outer) and outer.has_sizes():
            return outer
    return operator


class _Calls:
    """Calls of one thread, which nest: the innermost one at a time."""

    def __init__(self, calls: list[Call]):
        self.calls = sorted(calls, key=lambda x: (x[0], -x[1]))
        self.starts = [x[0] for x in self.calls]
        self.around = self._parents()

    def _parents(self) -> list[int]:
        """Number of the call around each, -1 of outermost ones."""
        around, stack = [], []
        for number, (start, end, _) in enumerate(self.calls):
            while stack and self.calls[stack[-1]][1] <= start:
                stack.pop()
            around.append(stack[-1] if stack else -1)
            if end > start:
                stack.append(number)
        return around

    def outwards(self, number: int) -> Iterator[Operator]:
        """Operators of the calls around one, the next first."""
        while (number := self.around[number]) >= 0:
            yield self.calls[number][2]

    def innermost(self, when: float) -> tuple[int, Call] | None:
        """(number, call) of the innermost call at a time."""
        number = bisect.bisect_right(self.starts, when) - 1
        while number >= 0 and self.calls[number][1] < when:
            number = self.around[number]
        return (number, self.calls[number]) if number >= 0 else None


def _window(
    window: tuple[int | float, int | float] | str | None,
    reader: _Reader,
    first: float,
    path: str,
) -> tuple[float, float]:
    """Times of the trace between which kernels count."""
    if window is None:
        return 0.0, float("inf")
    if isinstance(window, tuple):
        return first + window[0], first + window[1]
    names = (window, f"ProfilerStep#{window}")
    for name in names:
        if name in reader.steps:
            return reader.steps[name]
    steps = [name for name in reader.steps if name.startswith("ProfilerStep#")]
    examples = ", ".join(steps[:3]) or "none"
    raise ValueError(
        f"{path}: `--window` is '{window[:40]}', which is no step of the trace; those "
        f"that it has: {examples}."
    )


def _gpu(about: Mapping[str, Any], used: set[int], path: str) -> str | None:
    """Name of the GPUs that kernels ran on."""
    names = {}
    for device in about.get("deviceProperties") or ():
        if isinstance(device, dict) and isinstance(device.get("name"), str):
            with contextlib.suppress(TypeError, ValueError):
                names[int(device.get("id", 0))] = device["name"][:60]
    name = one_gpu(names, used, path, "one trace; give a trace of each")
    if name is None and len(set(names.values())) == 1:  # a rank that numbers them anew
        name = next(iter(names.values()))
    return name


def _whole(value: Any) -> int:
    """A number as an int; text such as 'stream 7' by its digits; else 0."""
    if isinstance(value, int):
        return value
    digits = "".join(c for c in str(value) if c.isdigit())
    return int(digits) if digits and value is not None else 0


def _optional(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _triple(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        return ()
    return tuple([x if isinstance(x, int) else _whole(x) for x in value[:3]])
