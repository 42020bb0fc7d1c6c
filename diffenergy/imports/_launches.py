"""Results of readers: launches of GPU kernels with the operators behind them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..workload import Listing


def to_tuples(value: Any) -> Any:
    """Lists, also within lists, as tuples."""
    return tuple(to_tuples(x) for x in value) if isinstance(value, list) else value


class Operator(NamedTuple):
    """A call of a framework's operator: its name, the sizes of its inputs (of a list of
    tensors a list of sizes), their types, the values of its other arguments as text.

    Equal calls are one object, so that their rows are computed once.
    """

    name: str
    dims: Any = ()
    types: Any = ()
    values: Any = ()

    def sizes(self, index: int) -> tuple[int, ...] | None:
        """Sizes of an input tensor, None where it is none or they are not known."""
        sizes = self.dims[index] if self.dims and index < len(self.dims) else ()
        whole = sizes and all(isinstance(x, int) for x in sizes)
        return tuple(sizes) if whole else None

    def has_sizes(self) -> bool:
        """Whether the sizes of any input are known."""
        return any(self.dims or ())

    def type(self, index: int) -> str:
        """Type of an input, "" where it is not known."""
        return str(self.types[index]) if self.types and index < len(self.types) else ""

    def value(self, index: int) -> str:
        """Value of an argument as text, "" where it is not known."""
        has_value = self.values and index < len(self.values)
        return str(self.values[index]) if has_value else ""


class Launch(NamedTuple):
    """A GPU kernel of a trace; times in us, sizes in threads and blocks.

    `call`: number of the operator's call that launched it (kernels of one call share
    it), -1 where none is known; `times`: launches that this stands for.
    """

    name: str
    duration: float
    start: float = 0.0
    stream: int = 0
    device: int = 0
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    shared_memory: int = 0
    operator: Operator | None = None
    call: int = -1
    collective: Mapping[str, Any] | None = None
    times: int = 1


@dataclasses.dataclass(frozen=True)
class Trace:
    """Launches of a file in order of their start.

    `gpu`: name of the GPUs, None where it is not stated; `copies`: us of memory copies
    and sets by device; `timed`: whether starts are known (else a file of sums);
    `world`: GPUs of the job, 0 where it is not stated; `notes`: what was left out;
    `activities`: rows of counters (`activity`) of the same launches.
    """

    kind: str
    launches: Sequence[Launch]
    gpu: str | None = None
    copies: Mapping[int, float] = dataclasses.field(default_factory=dict)
    timed: bool = True
    world: int = 0
    notes: tuple[str, ...] = ()
    activities: Sequence[Mapping[str, Any]] = ()


@dataclasses.dataclass(frozen=True)
class Graph:
    """Rows of a graph or a program, which has no times."""

    kind: str
    listing: Listing


def one_gpu(
    named: Mapping[int, str], used: set[int], path: str, remedy: str
) -> str | None:
    """Name of the GPUs that kernels ran on (`used`); None where it is not stated.

    Raises `ValueError`, with a `remedy`, if they are of several kinds.
    """
    kinds = sorted({named[x] for x in used if x in named})
    if len(kinds) > 1:
        raise ValueError(
            f"{path}: kernels of different GPUs ({', '.join(kinds)}) stand in {remedy}."
        )
    return kinds[0] if kinds else None
