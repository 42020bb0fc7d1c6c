"""MSCCL programs, run by an interpreter with numbers."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

from diffenergy.collectives import Schedule, Search, Violation, load_topology, plan
from diffenergy.collectives._msccl import msccl_xml

from .builders import (
    Collective,
    Row,
    read_published,
    reducing_rows,
    ring_rows,
    run_published,
    schedule,
    unit_demand,
    unit_ring,
    unit_star,
    verify,
    without,
)
from .msccl_interpreter import run

KINDS: tuple[Collective, ...] = (
    "all_gather",
    "all_to_all",
    "reduce_scatter",
    "all_reduce",
)


def on_ring(kind: Collective, count: int = 4, chunks: int = 1) -> Schedule:
    """Around a ring one way, chunk after chunk; an all-reduce is both halves."""
    topology = unit_ring(count, latency=0.5)
    wanted = unit_demand(topology, kind, chunks=chunks)
    step, rows, phase = 1.5, [], []
    if kind == "all_to_all":
        rows = [
            (b, f"gpu{(s + k) % count}", f"gpu{(s + k + 1) % count}", s, b)
            for b, (s, c) in enumerate(zip(wanted.source, wanted.chunk, strict=True))
            for k in range((c % count - s) % count)
        ]
        rows = _queued(rows, step)
        return schedule(topology, wanted, rows)
    halves = {
        "all_gather": [ring_rows(count)],
        "reduce_scatter": [reducing_rows(count)],
        "all_reduce": [reducing_rows(count), ring_rows(count)],
    }[kind]
    for number, half in enumerate(halves):
        for (b, a, z, t, _), c in itertools.product(half, range(chunks)):
            begin = (number * (count - 1) + t) * chunks * step + c
            rows.append((b * chunks + c, a, z, begin, begin + step))
            phase.append(number)
    return schedule(topology, wanted, rows, phase=phase)


def _queued(hops: list, step: float) -> list[Row]:
    """Hops of whole blocks one after another, each when link and block are free."""
    free: dict[object, float] = {}
    rows = []
    for block, a, z, *_ in hops:
        start = max(free.get((a, z), 0.0), free.get(block, 0.0))
        free[a, z], free[block] = start + 1.0, start + step
        rows.append((block, a, z, start, start + step))
    return rows


def through_switch(kind: Collective, count: int = 4) -> Schedule:
    """All at once through one switch that copies and adds up."""
    topology = unit_star(count, latency=0.25, reduces=True)
    wanted = unit_demand(topology, kind)
    rows, phase, step = [], [], 1.25
    names = [f"gpu{n}" for n in range(count)]
    for b in range(count):
        others = [name for n, name in enumerate(names) if n != b]
        gather = [(names[b], "sw0")] + [("sw0", name) for name in others]
        reduce = [(name, "sw0") for name in others] + [("sw0", names[b])]
        halves = {
            "all_gather": [gather],
            "reduce_scatter": [reduce],
            "all_reduce": [reduce, gather],
        }[kind]
        for number, half in enumerate(halves):
            for a, z in half:
                begin = 2.0 * (b + number * count) + (0.25 if a == "sw0" else 0.0)
                rows.append((b, a, z, begin, begin + step))
                phase.append(number)
    return schedule(topology, wanted, rows, phase=phase)


def expected(kind: Collective, inputs: np.ndarray) -> np.ndarray:
    """Output buffers (GPU, chunk) as the collective is defined."""
    ranks = len(inputs)
    if kind == "all_gather":
        return np.tile(inputs.ravel(), (ranks, 1))
    if kind == "all_to_all":
        return inputs.reshape(ranks, ranks, -1).swapaxes(0, 1).reshape(ranks, -1)
    if kind == "broadcast":
        return np.tile(inputs[0], (ranks, 1))
    total = inputs.sum(axis=0)
    if kind == "reduce":
        return total[None]
    if kind == "all_reduce":
        return np.tile(total, (ranks, 1))
    return total.reshape(ranks, -1)


def numbers(kind: Collective, ranks: int, chunks: int) -> np.ndarray:
    """Input buffers with a power of two in each place: sums tell their summands."""
    width = chunks if kind == "all_gather" else ranks * chunks
    return 2.0 ** (np.arange(ranks)[:, None] + 0.5 * np.arange(width))


def check_program(text: str, kind: Collective, ranks: int, chunks: int) -> None:
    """The program does what the collective means, in whatever order blocks run."""
    inputs = numbers(kind, ranks, chunks)
    for seed in range(4):
        wanted = expected(kind, inputs)
        assert np.array(run(text, inputs, seed))[: len(wanted)] == pytest.approx(wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunks", [1, 2])
def test_programs_fill_the_output_buffers(kind: Collective, chunks: int):
    original = on_ring(kind, chunks=chunks)
    verify(original)
    check_program(msccl_xml(original), kind, 4, chunks)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
def test_switches_become_peers(kind: Collective):
    text = msccl_xml(through_switch(kind))
    check_program(text, kind, 4, 1)
    assert "sw0" not in text


def both_ways() -> Schedule:
    """A ring of four; blocks for the GPU opposite go half left, half right."""
    topology = unit_ring(4)
    wanted = unit_demand(topology, "all_to_all")
    rows, size = [], []
    for b, (s, d) in enumerate(
        zip(wanted.source.tolist(), wanted.chunk.tolist(), strict=True)
    ):
        if (d - s) % 4 in (1, 3):
            rows.append((b, f"gpu{s}", f"gpu{d}", 0.0, 1.0))
            size.append(1.0)
            continue
        for way in ((s + 1) % 4, (s - 1) % 4):
            rows.append((b, f"gpu{s}", f"gpu{way}", 1.0, 1.5))
            rows.append((b, f"gpu{way}", f"gpu{d}", 1.5, 2.0))
            size += [0.5, 0.5]
    return schedule(topology, wanted, rows, size=size)


def test_parts_become_chunks():
    original = both_ways()
    assert verify(original) == 2.0
    check_program(msccl_xml(original), "all_to_all", 4, 2)


def test_two_roots_are_refused():
    """Blocks of gpu0 and of gpu1, each for all others, by hand."""
    topology = unit_ring(2)
    both = unit_demand(topology, "all_gather")
    wanted = dataclasses.replace(both, collective="broadcast")
    rows = [(0, "gpu0", "gpu1", 0.0, 1.0), (1, "gpu1", "gpu0", 0.0, 1.0)]
    with pytest.raises(ValueError, match="`root` is not one GPU.*for a broadcast"):
        msccl_xml(schedule(topology, wanted, rows))


def test_what_msccl_cannot_say():
    original = on_ring("all_gather")
    odd = dataclasses.replace(original.demand, collective="gather")
    with pytest.raises(ValueError, match="`collective` is gather"):
        msccl_xml(dataclasses.replace(original, demand=odd))
    size = original.demand.size.copy()
    size[0] = 0.5
    sends = dataclasses.replace(
        original.sends, bytes=np.where(original.sends.block == 0, 0.5, 1.0)
    )
    odd = dataclasses.replace(original.demand, size=size)
    with pytest.raises(ValueError, match="`size` differs"):
        msccl_xml(dataclasses.replace(original, demand=odd, sends=sends))
    with pytest.raises(Violation):
        msccl_xml(without(original, 3))
    parts = both_ways()
    ragged = np.where(parts.sends.bytes < 1, 0.5, 1.0)
    for b in range(len(parts.demand.size)):
        mine = np.flatnonzero((parts.sends.block == b) & (ragged < 1))
        if len(mine):
            ragged[mine] = [0.497, 0.497, 0.503, 0.503]
    end = parts.sends.start + ragged
    start = np.where(parts.sends.start == 1.5, 2.0, parts.sends.start)
    sends = dataclasses.replace(
        parts.sends, bytes=ragged, start=start, end=np.maximum(end, start + 1.0)
    )
    with pytest.raises(ValueError, match="no multiples of 1/64"):
        msccl_xml(dataclasses.replace(parts, sends=sends))


@pytest.mark.parametrize("machine", ["dgx1", "dgx-h100", "ring-3"])
@pytest.mark.parametrize("kind", [*KINDS, "broadcast", "reduce"])
def test_planned_collectives(machine: str, kind: Collective):
    """What the search plans, around rings and through a switch, root gpu0."""
    result = plan(machine, kind, "1MB", search=Search(method="greedy"))
    check_program(result.to_xml(), kind, len(result.schedule.topology.gpus), 1)


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("all_gather_fast_1GB", 1),
        ("all_gather_slow_1KB", 1),
        ("all_to_all_slow_1GB", 1),
        ("all_to_all_fast_1GB", 4),
    ],
)
def test_published_schedules_as_programs(shared: Path, name: str, pieces: int):
    """15 GPUs around the switch gpu0; the fast all-to-all moves quarters."""
    path = shared / f"data/teccl/schedules/ndv2-2-published_{name}.json.gz"
    original, _ = run_published(read_published(path, load_topology("ndv2-2-published")))
    text = msccl_xml(original)
    check_program(text, original.demand.collective, 15, pieces)
