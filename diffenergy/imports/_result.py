"""`ImportResult`: the listings of a file, and what share of it they hold."""

import dataclasses
import functools
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from ..files import csv_text
from ..hardware import gpu_names, read_gpu
from ..results import Result
from ..workload import Listing
from ._launches import Graph, Trace
from ._rows import names
from ._rows.assign import Match, busy_us

_MOST_UNKNOWN: Final = 20
"""Number of unknown kernels that are named, those that take longest."""
_MOST_UNSHAPED: Final = 0.1
"""Maximum share of time without a shape for an estimate on another GPU."""
_VENDOR: Final = re.compile(r"^(nvidia|amd|tesla|geforce|radeon|instinct)[\s_-]+", re.I)


@dataclasses.dataclass(frozen=True, repr=False)
class ImportResult(Result):
    """Kernel listings of a file.

    `summary`: the JSON of `diffenergy import --json`; `listings`: one a GPU of the
    file, rows with what the trace says of their time (`traced_us`, `how`, ...);
    `activities`: rows of counters, as measurements for `fit`; `board`: GPU as the file
    names it.
    """

    view: ClassVar[str] = "runs.imported"
    summary: dict[str, Any]
    listings: list[Listing]
    activities: Sequence[Mapping[str, Any]] = ()
    board: str | None = None

    @property
    def notes(self) -> list[str]:
        """Notes on the file."""
        return self.summary["notes"]

    def missing_gpu(self) -> str:
        """Sentence that says what GPU a command needs, with the known ones nearest to
        the file's."""
        source, near = self.summary["source"], similar_gpus(self.board)
        names = "names none" if self.board is None else f"names '{self.board}', which"
        known = " that is known" if self.board is None else " is not known"
        nearest = f" (nearest: {', '.join(near[:2])})" if near else ""
        return (
            f"`gpu` is missing: {source} {names}{known}; give the GPU that it was "
            f"recorded on{nearest}"
        )

    def refuse_other_gpu(self, gpu: str) -> None:
        """Raise `ValueError` where `gpu` is not the one that the file was recorded on
        and more than a tenth of its time has no shape: that time says nothing of
        another GPU."""
        share = self.summary["shape_share"]
        own = (self.gpu,) if self.gpu else similar_gpus(self.board)
        if not own or gpu in own or share is None or share >= 1 - _MOST_UNSHAPED:
            return
        raise ValueError(
            f"`gpu` is {gpu}, but {self.summary['source']} was recorded on "
            f"{self.gpu or self.board} and {100 * (1 - share):.1f} % of its time has "
            f"no shape, which says nothing of another GPU (allowed: "
            f"{100 * _MOST_UNSHAPED:.0f} %); record shapes (record_shapes=True), or "
            "give the model of a serving engine's trace to `import`."
        )

    @property
    def gpu(self) -> str | None:
        """Bundled name of the GPU: the one requested, else that of the file."""
        return self.summary["gpu"]

    def activity_csv(self) -> str:
        """The counters as a table of measurements, which `fit` and `evaluate` read."""
        return csv_text(self.activities)


@functools.cache
def bundled_gpu(name: str | None) -> str | None:
    """Bundled name of a GPU as drivers, traces and tables spell it, None if there is
    none.

    A file named like the GPU without its vendor's words comes before another file that
    claims the spelling; `VF` ends the names of virtual GPUs.

    >>> bundled_gpu("NVIDIA H100 80GB HBM3"), bundled_gpu("NVIDIA A100-PCIE-40GB")
    ('h100-sxm', 'a100-pcie-40gb')
    """
    if not name:
        return None
    bare = name.strip()
    while (shorter := _VENDOR.sub("", bare)) != bare:
        bare = shorter
    for spelling in (bare, name, name.removesuffix(" VF")):
        try:
            return read_gpu(spelling, exact=True).name if spelling else None
        except ValueError:
            continue
    return None


def similar_gpus(name: str | None) -> list[str]:
    """Bundled GPUs of the same chip as a board that is not bundled, those of its form
    and memory first.

    >>> similar_gpus("Tesla V100-SXM2-16GB")[0], similar_gpus("NVIDIA Q1")
    ('v100-sxm-32gb', [])
    """
    words = set(re.findall(r"[a-z]+\d*|\d\w*", (name or "").lower()))
    form = {"sxm" if x.startswith("sxm") else x for x in words}
    ranked = []
    for known in gpu_names():
        parts = set(known.split("-"))
        chip = {x for x in parts if x not in ("sxm", "pcie") and not x.endswith("gb")}
        if chip <= words:
            same_form, same_memory = parts & form - chip, parts & words - chip
            order = (not same_form & {"sxm", "pcie"}, not same_memory, "pcie" in parts)
            ranked.append((-len(chip), *order, known))
    longest = min((x[0] for x in ranked), default=0)
    return [x[-1] for x in sorted(ranked) if x[0] == longest]


def of_graph(path: str, graph: Graph, gpu: str | None) -> ImportResult:
    """Result of a file without times."""
    kernels = graph.listing.kernels
    ops: dict[str, float] = defaultdict(float)
    for kernel in kernels:
        ops[kernel["op"]] += kernel["count"]
    summary = {
        "source": Path(path).name,
        "kind": graph.kind,
        "gpu": gpu,
        "kernels": sum(kernel["count"] for kernel in kernels),
        "rows": len(kernels),
        "busy_us": None,
        "sum_us": None,
        "wait_us": None,
        "classes": {},
        "class_share": None,
        "shape_share": None,
        "unknown": [],
        "ops": dict(ops),
        "notes": list(graph.listing.notes),
    }
    return ImportResult(summary, [graph.listing])


def of_trace(
    path: str,
    trace: Trace,
    matches: Sequence[Match],
    listings: list[Listing],
    gpu: str | None,
) -> ImportResult:
    """Result of a file with times."""
    launches = trace.launches
    classes: dict[str, float] = defaultdict(float)
    unknown: dict[str, float] = defaultdict(float)
    shaped = 0.0
    for launch, x in zip(launches, matches, strict=True):
        time = launch.duration * launch.times
        classes[x.kind] += time
        shaped += time * (matches[x.carrier].row is not None)
        if x.kind == names.UNKNOWN_CLASS:
            unknown[names.short_name(launch.name)] += time
    total = sum(classes.values())
    ranked = sorted(classes.items(), key=lambda x: -x[1])
    longest = sorted(unknown.items(), key=lambda x: -x[1])[:_MOST_UNKNOWN]
    copies = sum(trace.copies.values(), 0.0)
    named = trace.gpu
    rows = [kernel for listing in listings for kernel in listing.kernels]
    waited = sum((kernel.get("wait_us", 0.0) for kernel in rows), 0.0)
    share = 1 - classes[names.UNKNOWN_CLASS] / total if total else 0.0
    summary = {
        "source": Path(path).name,
        "kind": trace.kind,
        "gpu": gpu or bundled_gpu(named),
        "kernels": sum(launch.times for launch in launches),
        "rows": len(rows),
        "busy_us": round(busy_us(launches), 3) if trace.timed else None,
        "sum_us": round(total, 3),
        "wait_us": round(waited, 3),
        "classes": {k: round(v, 3) for k, v in ranked if v}
        | ({"copy": round(copies, 3)} if copies else {}),
        "class_share": share,
        "shape_share": shaped / total if total else 0.0,
        "unknown": [{"name": name, "us": round(us, 3)} for name, us in longest],
        "notes": [*trace.notes, *_remarks(named, total, shaped, copies, waited)],
    }
    if len(unknown) > _MOST_UNKNOWN:
        summary["notes"].append(
            f"{len(unknown):,} names of kernels are of no known class; the "
            f"{_MOST_UNKNOWN} that take longest are named."
        )
    return ImportResult(summary, listings, trace.activities, named)


def _remarks(
    named: str | None,
    total: float,
    shaped: float,
    copies: float,
    waited: float,
) -> list[str]:
    """Notes on a trace: GPU, kernels without a shape, copies, collectives that wait."""
    notes = []
    if named is not None and bundled_gpu(named) is None:
        near = similar_gpus(named)
        notes.append(
            f"the file's GPU, '{named}', is not among those known; give --gpu"
            + (f" (nearest: {', '.join(near[:2])})." if near else ".")
        )
    if total and shaped < (1 - 5e-4) * total:
        share = 100 * (1 - shaped / total)
        notes.append(
            f"kernels without a shape take {share:.1f} % of the time; they keep their "
            "traced time (op traced)."
        )
    if copies:
        notes.append(
            f"memory copies and sets take {copies:.0f} us beside the kernels and are "
            "left out of the listing."
        )
    if waited >= 1.0:
        notes.append(
            f"collectives wait {waited:.0f} us for other ranks: their time beyond the "
            "least of equal ones (wait_us); the least counts as the transfer."
        )
    return notes
