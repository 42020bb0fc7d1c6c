"""`CollectiveFlags`: the command line of `collective` as typed, read strictly."""

import dataclasses
import re
from typing import TYPE_CHECKING, Final

from . import parse

if TYPE_CHECKING:
    from ..collectives._demand.demand import Demand
    from ..collectives._machine.topology import Topology
    from ..collectives._planning.plan import Search

_ROOTED: Final = ("broadcast", "reduce", "scatter", "gather")
_AUTO_LIMIT: Final = 10.0  # s
_EPOCHS: Final = "s, or fastest, slowest or continuous"
_SOLVER_LIMIT: Final = 300.0
"""s for a method that is a solver's alone."""


@dataclasses.dataclass(frozen=True)
class CollectiveFlags:
    """As typed; None where a flag was not given."""

    topology: str
    collective: str | None = None
    size: str | None = None
    chunks: str | None = None
    root: str | None = None
    matrix: str | None = None
    demand: str | None = None
    tenants: str | None = None
    method: str | None = None
    epoch: str | None = None
    time_limit: str | None = None
    solver: str | None = None
    gap: str | None = None
    objective: str | None = None
    latency: str | None = None
    horizon: str | None = None
    disable: tuple[str, ...] = ()
    scale: tuple[str, ...] = ()
    gpu: str | None = None
    seed: str | None = None
    links: bool = False
    no_sends: bool = False

    def seconds(self) -> float | None:
        """Latency of links that state none."""
        return None if self.latency is None else _seconds("--latency", self.latency)

    @property
    def inputs(self) -> list[str]:
        """Files that this run reads."""
        names = (self.topology, self.matrix, self.demand, self.gpu)
        return [name for name in names if name]

    def sizes(self) -> list[str | None]:
        """Sizes as typed, each once; one None where a file says the bytes."""
        if self.matrix is not None or self.demand is not None:
            which = "matrix" if self.matrix is not None else "demand"
            if self.size is not None:
                raise ValueError(
                    f"`--size` is '{self.size}', but the file of `--{which}` says all "
                    "bytes; leave one out."
                )
            return [None]
        if self.size is None:
            raise ValueError(
                "`--size` is missing; give the output buffer of a GPU, such as 1GB."
            )
        return list(dict.fromkeys(part.strip() for part in self.size.split(",")))

    def machine(self) -> "Topology":
        """The topology with what was changed on it."""
        from ..collectives._machine.topology_files import load_topology
        from ..collectives._what_if.what_if import disable, scale

        topology = load_topology(self.topology, self.seconds(), self.gpu)
        for pair in self.disable:
            topology = disable(topology, pair)
        for change in self.scale:
            topology = scale(topology, change)
        return topology

    def wanted(self, topology: "Topology", size: str | None) -> "Demand":
        """What is asked for, with one of the sizes."""
        from ..collectives._demand.demand_files import (
            read_demand_file,
            read_matrix_file,
        )
        from ..collectives._demand.demands import collective_name, demand

        chunks = parse.whole("--chunks", self.chunks) or 1
        if self.demand is not None:
            given = ("collective", "chunks", "root", "matrix", "tenants")
            self._refuse(given, "demand")
            return read_demand_file(self.demand, topology)
        if self.matrix is not None:
            self._refuse(("root", "tenants"), "matrix")
            kind = self.collective or "all_to_all"
            matrix = read_matrix_file(self.matrix)
            return demand(kind, topology, None, chunks, matrix=matrix)
        if self.collective is None:
            raise ValueError(
                "`--collective` is missing; give all_gather, all_to_all, "
                "reduce_scatter, all_reduce, broadcast, reduce, scatter or gather."
            )
        kind = collective_name(self.collective)
        if self.root is not None and kind not in _ROOTED:
            raise ValueError(
                f"`--root` is '{self.root}', but {kind} has none; leave it out."
            )
        root = self.root if self.root is not None else 0
        groups = self.groups()
        return demand(self.collective, topology, size, chunks, root, groups=groups)

    def groups(self) -> list[list[int | str]] | None:
        """Tenants: `0-3;4,6` are GPUs 0 to 3 and GPUs 4 and 6."""
        if self.tenants is None:
            return None
        return [_group(text, self.tenants) for text in self.tenants.split(";")]

    def search(self) -> "Search":
        """How to look for a schedule."""
        from ..collectives._planning.plan import METHODS, Search

        method = (self.method or "auto").strip().lower()
        if method not in METHODS:
            raise ValueError(
                f"`--method` is '{self.method}'; allowed are {', '.join(METHODS)}."
            )
        epoch: str | float | None = self.epoch and self.epoch.strip().lower()
        if epoch not in (None, "fastest", "slowest", "continuous"):
            epoch = parse.positive("--epoch", str(epoch), _EPOCHS)
        solver = self.solver.strip().lower() if self.solver is not None else None
        if solver is not None and method in ("auto", "greedy"):
            raise ValueError(
                f"`--solver` is '{self.solver}', but method {method} chooses its own; "
                "give --method milp, lp or rounds with it."
            )
        limit = _AUTO_LIMIT if method in ("auto", "greedy") else _SOLVER_LIMIT
        if self.time_limit is not None:
            limit = parse.positive("--time-limit", self.time_limit, "s")
        return Search(
            method,
            epoch,
            solver,
            limit,
            self._gap(),
            parse.whole("--horizon", self.horizon),
            self._seed(),
        )

    def _gap(self) -> float:
        """A share, as 0.05 or 5%."""
        if self.gap is None:
            return 0.0
        text = self.gap.strip()
        share = parse.number("--gap", text.rstrip("% "))
        share = share / 100 if text.endswith("%") else share
        if not 0 <= share < 1:
            raise ValueError(
                f"`--gap` is '{self.gap}'; allowed is a share from 0 to 1, such as "
                "0.05 or 5%."
            )
        return share

    def _seed(self) -> int:
        seed = parse.number("--seed", self.seed) if self.seed is not None else 0.0
        if seed != int(seed) or not 0 <= seed < 2**31:
            raise ValueError(
                f"`--seed` is '{self.seed}'; allowed is a whole number from 0 on."
            )
        return int(seed)

    def _refuse(self, names: tuple[str, ...], file: str) -> None:
        """Flags that say what a file says already."""
        for name in names:
            if getattr(self, name) is not None:
                raise ValueError(
                    f"`--{name}` is '{getattr(self, name)}', but the file of "
                    f"`--{file}` says that; leave one out."
                )


def _seconds(flag: str, text: str) -> float:
    """s, also as 0.7us.

    >>> _seconds("--latency", "0.7us")
    7e-07
    """
    found = re.fullmatch(r"\s*(.*?)\s*(s|ms|us|ns)\s*", text)
    if found is None:
        return parse.number(flag, text, "s")
    scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[found[2]]
    return float(f"{parse.number(flag, found[1]) * scale:.12g}")


def _group(text: str, whole: str) -> list[int | str]:
    """GPUs of one tenant: numbers, names, and ranges of numbers."""
    gpus: list[int | str] = []
    for word in text.replace(",", " ").split():
        first, dash, last = word.partition("-")
        if not dash:
            gpus.append(word)
        elif first.isdecimal() and last.isdecimal() and int(first) <= int(last):
            if int(last) - int(first) > 1e5:
                raise ValueError(f"`--tenants` has {word}, which is too many GPUs.")
            gpus += range(int(first), int(last) + 1)
        else:
            raise ValueError(
                f"`--tenants` is '{whole}'; allowed are GPUs and ranges, tenants "
                "divided by semicolons: '0-3;4-7'."
            )
    return gpus
