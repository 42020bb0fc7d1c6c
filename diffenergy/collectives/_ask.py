"""The public `plan`: a collective on a machine, of names or of records."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, ParamSpec, Protocol, overload, runtime_checkable

from ..hardware import GpuCard, GpuSpec, read_gpu
from ..requests import accepts
from ._baselines import baselines
from ._demand import Demand
from ._demands import (
    ROOTED,
    collective_name,
    parse_size,
    read_demand_file,
    read_matrix_file,
)
from ._demands import demand as collective_demand
from ._energy import schedule_energy
from ._find_schedule import find_schedule, second_stage, silent
from ._least_energy import Goal, front_rows, read_objective
from ._plan import Plan, Watch
from ._request import CollectiveRequest, Search
from ._result import CollectiveResult, SizesResult, collective_json, wait_clock_json
from ._topology import Topology
from ._topology_files import load_topology
from ._what_if import (
    criticality,
    criticality_rows,
    gathered,
    sensitivities,
    sensitivity_rows,
)
from ._what_if import disable as without
from ._what_if import scale as scaled

_PATH: Final = str | os.PathLike


P = ParamSpec("P")


@runtime_checkable
class _Planning(Protocol[P]):
    """`plan` for editors: one size, or several."""

    @overload
    def __call__(
        self,
        topology: Topology | str | os.PathLike[str],
        collective: str | None,
        size: list[Any] | tuple[Any, ...],
        **request: Any,
    ) -> SizesResult: ...

    @overload
    def __call__(self, *args: P.args, **request: P.kwargs) -> CollectiveResult: ...


def _one_or_several(function: Callable[P, Any]) -> _Planning[P]:
    return function  # pyright: ignore[reportReturnType]


@_one_or_several
@accepts(CollectiveRequest)
def plan(request: CollectiveRequest) -> CollectiveResult | SizesResult:
    """A verified schedule of a collective, a bound that no schedule beats, its energy
    and the standard algorithms beside it: the answer of `diffenergy collective`.

    Links carry one block at a time at their published rate and latency; nothing of a
    library or of kernels stands between. Several sizes give a `SizesResult`. Ctrl-C
    ends the search with the best so far (`interrupted`), if there is one.

    `topology`: a name of `topology_names()`, a .toml file, the text of `nvidia-smi topo
    -m` in a file, or a `Topology`. `collective`: "all_gather", "all_to_all",
    "reduce_scatter", "all_reduce", "broadcast", "reduce", "scatter" or "gather".
    `size`: output buffer of a GPU: B, or text such as "1GB"; a list plans each.
    `matrix`: B from GPU (row) to GPU, or a CSV file of them; `demand`: any `Demand`, or
    a CSV file. `search`: method, time limit and epochs [`Search()`]. `watch`: called
    with what is being tried, and where its solver stands.

    Raises:
        ValueError: for what cannot be read or does not fit, in one sentence.
        Infeasible: nothing within `search.horizon`, or nothing in time.
        TypeError: for arguments of another kind, in one sentence.

    Example:

        >>> from diffenergy.collectives import plan
        >>> result = plan("dgx1", "all_gather", "200KB")
        >>> result.finish < result.baselines.algorithms["ring"].finish, result.certified
        (True, True)
    """
    search, watch = request.search or Search(), request.watch or silent
    topology, size = request.topology, request.size
    matrix, demand, groups = request.matrix, request.demand, request.groups
    _check_kinds(topology, search, demand)
    several = isinstance(size, list | tuple)
    sizes = list(dict.fromkeys(size)) if several else [size]
    goal = read_objective(str(request.objective))
    _check_size(sizes[0] if sizes else None, matrix, demand)
    original, machine = _machine(request)
    names = ("collective", "chunks", "root", "matrix", "groups")
    arguments = {name: getattr(request, name) for name in names}
    demands = [_demand(machine, size, arguments, demand) for size in sizes]
    spec = _spec(machine, request.gpu)
    if spec is None and goal != "time":
        raise ValueError(
            f"`objective` is '{request.objective}', which needs the power of the GPUs, "
            f"but `{machine.name}` names none; give `gpu`."
        )
    about = {
        "topology": _name(topology, original),
        "size_bytes": None,
        "chunks": request.chunks or (1 if demand is None else None),
        "root": request.root,
        "latency_s": request.latency,
        "disable": list(request.disable),
        "scale": list(request.scale),
        "gpu": machine.gpu,
        "seed": search.seed,
    }
    listed = any(x is not None for x in (matrix, demand, groups))
    question = _Question(search, goal, spec, groups, listed, request.links, watch)
    results: list[CollectiveResult] = []
    for size, chunked in zip(sizes, demands, strict=True):
        sized = {} if size is None else {"size_bytes": parse_size(size)}
        results.append(question.answer(machine, chunked, about | sized))
        if results[-1].interrupted:
            break
    return SizesResult([x.summary for x in results], results) if several else results[0]


@dataclasses.dataclass(frozen=True)
class _Question:
    """The request for every size; `listed`: the JSON lists the demand, which no
    collective's name says; `links`: it has what links do to the finish."""

    search: Search
    goal: Goal | float
    spec: GpuSpec | None
    groups: Sequence[Sequence[int | str]] | None
    listed: bool
    links: bool
    watch: Watch

    @property
    def sharing(self) -> int | None:
        """GPUs of each group, if all have as many."""
        teams = {len(group) for group in self.groups or ()}
        return teams.pop() if len(teams) == 1 else None

    def answer(
        self, machine: Topology, demand: Demand, request: dict[str, Any]
    ) -> CollectiveResult:
        """The best schedule of one size, its energy and the standard algorithms."""
        best = find_schedule(machine, demand, self.search, self.watch)
        best, front = second_stage(best, self.goal, self.spec, self.search, self.watch)
        more: dict[str, Any] = {}
        if self.spec is not None:
            more["wait_clock"] = wait_clock_json(best, self.spec)
        if front is not None:
            more["front"] = front_rows(front)
        if self.links:
            more["links"] = _links(best, self.watch)
        energy = schedule_energy(best.schedule, self.spec, finish=best.finish)
        others = best.standard or baselines(machine, demand)
        summary = collective_json(
            best, request, energy, others,
            sharing=self.sharing, listed=self.listed, more=more,
        )  # fmt: skip
        return CollectiveResult(summary, best, energy, others, self.spec)


# --- what was asked for


def _check_kinds(topology: Any, search: Any, demand: Any):
    """Raises `TypeError` for arguments of another kind."""
    allowed = (
        ("topology", topology, Topology | _PATH, "a name, a path or a Topology"),
        ("search", search, Search, "a Search"),
        ("demand", demand, Demand | _PATH | None, "a Demand or the path of a CSV file"),
    )
    for name, value, kinds, words in allowed:
        if not isinstance(value, kinds):
            raise TypeError(
                f"`{name}` is a {type(value).__name__}; allowed is {words}."
            )


def _check_size(size: Any, matrix: Any, demand: Any):
    """Raises `ValueError` unless exactly one argument gives the bytes."""
    if matrix is None and demand is None:
        if size is None:
            raise ValueError(
                "`size` is missing; give the output buffer of a GPU, such as 1GB."
            )
    elif size is not None:
        which = "matrix" if matrix is not None else "demand"
        raise ValueError(
            f"`size` is '{size}', but `{which}` says all bytes; leave one out."
        )


def _machine(request: CollectiveRequest) -> tuple[Topology, Topology]:
    """The machine as named, and the machine with its links disabled or scaled."""
    gpu = request.gpu
    card = str(gpu.path or gpu.name) if isinstance(gpu, GpuCard) else gpu
    machine = original = load_topology(request.topology, request.latency, card)
    for pair in request.disable:
        machine = without(machine, pair)
    for change in request.scale:
        machine = scaled(machine, change)
    return original, machine


def _demand(
    machine: Topology, size: Any, arguments: dict[str, Any], demand: Any
) -> Demand:
    """The chunks, from whichever argument says them; `arguments`: the arguments that a
    `demand` replaces."""
    collective, chunks = arguments["collective"], arguments["chunks"]
    root, matrix = arguments["root"], arguments["matrix"]
    if demand is not None:
        _refuse(arguments, "demand")
        if isinstance(demand, Demand):
            return demand
        return read_demand_file(os.fspath(demand), machine)
    if matrix is not None:
        _refuse({name: arguments[name] for name in ("root", "groups")}, "matrix")
        if isinstance(matrix, str | os.PathLike):
            matrix = read_matrix_file(os.fspath(matrix))
        kind = collective or "all_to_all"
        return collective_demand(kind, machine, None, chunks or 1, matrix=matrix)
    if collective is None:
        raise ValueError(
            "`collective` is missing; give all_gather, all_to_all, reduce_scatter, "
            "all_reduce, broadcast, reduce, scatter or gather."
        )
    kind = collective_name(collective)
    if root is not None and kind not in ROOTED:
        raise ValueError(f"`root` is '{root}', but {kind} has none; leave it out.")
    place = 0 if root is None else root
    return collective_demand(
        collective, machine, size, chunks or 1, place, groups=arguments["groups"]
    )


def _refuse(arguments: dict[str, Any], which: str):
    """Raises `ValueError` for an argument that `which` replaces."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(
                f"`{name}` is '{value}', but `{which}` says that; leave one out."
            )


def _name(topology: Any, machine: Topology) -> str:
    """Name or path by which a reader of the JSON loads the machine."""
    if isinstance(topology, Topology):
        return machine.name
    path = os.fspath(topology)
    return path if Path(path).is_file() and path != machine.name else machine.name


def _spec(machine: Topology, gpu: GpuCard | str | None) -> GpuSpec | None:
    """The GPU whose memory and idle power count."""
    name = machine.gpu if gpu is None else gpu
    if name is None:
        return None
    return (name if isinstance(name, GpuCard) else read_gpu(name)).spec


# --- what is said about a schedule


def _links(plan: Plan, watch: Watch) -> dict[str, Any]:
    """JSON of what rates, latencies and failures of links do to the finish."""
    schedule = plan.schedule
    topology, demand = schedule.topology, schedule.demand

    def tell(done: int, total: int):
        watch(f"failing links: {done} of {total}", None)

    changes, whole = gathered(criticality(topology, demand, progress=tell))
    return {
        "sensitivity": sensitivity_rows(sensitivities(schedule, "link")),
        "media": sensitivity_rows(sensitivities(schedule, "medium")),
        "criticality": criticality_rows(changes),
        "complete": whole,
    }
