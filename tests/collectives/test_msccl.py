"""MSCCL programs, run by an interpreter with numbers."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from diffenergy.collectives import Schedule, Search, Violation, load_topology, plan
from diffenergy.collectives._msccl import msccl_xml

from .builders import (
    Collective,
    read_published,
    ring_rows,
    run_published,
    schedule,
    unit_demand,
    unit_ring,
    verify,
    without,
)
from .msccl_interpreter import run

KINDS: tuple[Collective, ...] = (
    "all_gather", "all_to_all", "reduce_scatter", "all_reduce", "broadcast", "reduce"
)  # fmt: skip


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


def check_program(text: str, kind: Collective, ranks: int, chunks: int) -> None:
    """The program does what the collective means, in whatever order blocks run; inputs
    have a power of two in each place, so that sums tell their summands."""
    width = chunks if kind == "all_gather" else ranks * chunks
    inputs = 2.0 ** (np.arange(ranks)[:, None] + 0.5 * np.arange(width))
    wanted = expected(kind, inputs)
    for seed in range(4):
        assert np.array(run(text, inputs, seed))[: len(wanted)] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("machine", "chunks"), [("dgx1", 1), ("dgx-h100", 1), ("ring-3", 1), ("ring-4", 2)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_planned_collectives(machine: str, kind: Collective, chunks: int):
    """What the search plans, around rings and through a switch, root gpu0."""
    search = Search(method="greedy")
    result = plan(machine, kind, "1MB", chunks=chunks, search=search)
    text = result.to_xml()
    check_program(text, kind, len(result.schedule.topology.gpus), chunks)
    assert "sw0" not in text


def halves_both_ways() -> Schedule:
    """A ring of four; blocks for the GPU opposite go half left, half right."""
    topology = unit_ring(4)
    wanted = unit_demand(topology, "all_to_all")
    rows, size = [], []
    for b, (s, d) in enumerate(zip(wanted.source, wanted.chunk, strict=True)):
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
    original = halves_both_ways()
    assert verify(original) == 2.0
    check_program(msccl_xml(original), "all_to_all", 4, 2)


def uneven_parts() -> Schedule:
    """Parts of 0.497 and 0.503 instead of halves."""
    whole = halves_both_ways()
    sends, size = whole.sends, whole.sends.bytes.copy()
    for b in range(len(whole.demand.size)):
        parts = np.flatnonzero((sends.block == b) & (size < 1))
        if len(parts):
            size[parts] = [0.497, 0.497, 0.503, 0.503]
    start = np.where(sends.start == 1.5, 2.0, sends.start)
    end = np.maximum(sends.start + size, start + 1.0)
    return whole.with_sends(
        dataclasses.replace(sends, bytes=size, start=start, end=end)
    )


def test_what_msccl_cannot_say():
    topology = unit_ring(4)
    original = schedule(topology, unit_demand(topology, "all_gather"), ring_rows(4))

    def with_demand(**changes) -> Schedule:
        demand = dataclasses.replace(original.demand, **changes)
        first = original.sends.block == 0
        sends = dataclasses.replace(
            original.sends, bytes=np.where(first, demand.size[0], 1.0)
        )
        return dataclasses.replace(original, demand=demand, sends=sends)

    for wrong, says in (
        (with_demand(collective="gather"), "`collective` is gather"),
        (with_demand(collective="broadcast"), "`root` is not one GPU.*for a broadcast"),
        (with_demand(size=np.array([0.5, 1, 1, 1])), "`size` differs"),
        (uneven_parts(), "no multiples of 1/64"),
    ):
        with pytest.raises(ValueError, match=says):
            msccl_xml(wrong)
    with pytest.raises(Violation):
        msccl_xml(without(original, 3))


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("all_gather_fast_1GB", 1),
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
