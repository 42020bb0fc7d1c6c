"""Training steps over time: ends, bubbles and joules by hand arithmetic."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffenergy as de
from diffenergy.plans import (
    EXCHANGE_AXES,
    SLICE_KINDS,
    STEP_PARTS,
    Pipeline,
    Steps,
    Timeline,
    build_timeline,
    compose_step,
    step_energy,
)
from diffenergy.plans._timeline import EXCHANGE, OPTIMIZER

M, P = 8, 4
STATIC = 50.0
"""W of idling."""


CORRECTIONS = de.load_gpu("h100-sxm").corrections
_compose = jax.jit(compose_step, static_argnums=3)
_energy = jax.jit(step_energy)


@functools.cache
def built(
    schedule: str = "1f1b", virtual: int = 1, **changes: float
) -> tuple[Timeline, float, float]:
    """(timeline, s, J) of 8 micro-batches on 4 equal stages of 3 GPUs: 1 s forward, 2 s
    backward, whose kernels draw 100 and 300 W beyond 50 W of idling; `changes`: s of
    other parts, which draw nothing more but `reduce_w` W of gradients, `dp_overlap`,
    `beyond`, the share of the step that no part explains, and `limit` (W)."""
    gradients, limit = changes.pop("reduce_w", 0.0), changes.pop("limit", np.inf)
    overlap, beyond = changes.pop("dp_overlap", 1.0), changes.pop("beyond", 0.0)
    parts = {"forward": M / virtual, "backward": 2 * M / virtual, **changes}
    phase = np.full((1, len(STEP_PARTS)), -1)
    phase[0, [STEP_PARTS.index(name) for name in parts]] = np.arange(len(parts))
    rest = [0.0] * (len(STEP_PARTS) - len(parts))  # so that a program serves all
    times = jnp.array([*parts.values(), *rest])
    watts = {"forward": 100.0, "backward": 300.0, "reduce": gradients}
    dynamic = times * jnp.array([*(watts.get(name, 0.0) for name in parts), *rest])
    none = np.zeros(phase.shape)
    steps = Steps(
        phase=phase, far=none, hops=none, members=np.full((1, 1), virtual),
        count=np.array([P]), batches=M, virtual=virtual, abreast=3, network=np.inf,
        gathers=0, reduces=0, tp_overlap=0, dp_overlap=overlap, ep_overlap=0,
        zero_bubble=float(schedule == "zb-h1"), both_ways=0,
    )  # fmt: skip
    order = Pipeline(schedule, M, ((0,) * P,) * virtual)  # pyright: ignore[reportArgumentType]
    own = dict(plan_fixed=jnp.array(beyond), plan_straggle=jnp.array(0.0))
    constants = dataclasses.replace(CORRECTIONS, **own)  # pyright: ignore
    result = _compose(times, steps, constants, order)
    drawn = _energy(times, dynamic, jnp.full(len(times), STATIC), result, steps)
    power, joules = np.asarray(drawn.stage_power), np.asarray(dynamic)
    line = build_timeline(order, [0] * P, steps, result, joules, power, limit)
    return line, float(result.time), float(drawn.energy)


def running(line: Timeline, stage: int) -> np.ndarray:
    """Slices of the pipeline on a stage, in order."""
    own = line.of_stage(stage)
    return own[line.batch[own] >= 0]


def test_slices_of_1f1b_begin_when_they_can():
    """Stage 0 runs 4 forward in a row and waits for stage 3, which begins at 3 s; its
    first backward comes back at 4 + 3 x 2 = 10 s; all end at (8 + 3) 3 = 33 s."""
    line, time, _ = built()
    first, last = running(line, 0), running(line, P - 1)
    assert line.start[first[:5]] == pytest.approx([0, 1, 2, 3, 10])
    assert line.end[first[4]] == pytest.approx(12)
    assert line.start[last[:3]] == pytest.approx([3, 4, 6])
    assert [SLICE_KINDS[x] for x in line.kind[last[:4]]] == ["forward", "backward"] * 2
    assert line.pipeline == pytest.approx(33)
    assert line.end[line.batch >= 0].max() == pytest.approx(33)
    assert line.end.max() == pytest.approx(time, rel=1e-6)


@pytest.mark.parametrize(
    ("schedule", "virtual", "end", "idle"),
    [
        ("1f1b", 1, 33.0, 9.0),  # (p - 1) (f + b) a stage
        ("interleaved", 2, 28.5, 4.5),  # a vth of that
        ("zb-h1", 1, 27.0, 3.0),  # weights fill two thirds: f = b = w = 1
    ],
)
def test_bubbles_have_their_area(schedule: str, virtual: int, end: float, idle: float):
    """None of the micro-batches, down and up the stages, begins before it is sent."""
    line, _, _ = built(schedule, virtual)
    assert line.pipeline == pytest.approx(end)
    for stage in range(P):
        own = running(line, stage)
        busy = (line.end[own] - line.start[own]).sum()
        assert end - busy == pytest.approx(idle, rel=1e-5)
        assert (line.start[own][1:] >= line.end[own][:-1] - 1e-5).all()
    place = line.chunk * P + line.stage
    for batch, (kind, sign) in itertools.product(range(M), ((0, 1), (1, -1))):
        own = np.flatnonzero((line.batch == batch) & (line.kind == kind))
        own = own[np.argsort(sign * place[own])]
        assert len(own) == virtual * P
        assert (line.start[own][1:] >= line.end[own][:-1] - 1e-5).all()


def test_late_exchange_and_optimizer_follow():
    """3 s of gradients that nothing hides, then 0.5 s of the optimizer."""
    line, time, _ = built(reduce=3.0, optimizer=0.5, dp_overlap=0.0)
    spans = [
        (line.start[line.kind == kind], line.end[line.kind == kind])
        for kind in (EXCHANGE, OPTIMIZER)
    ]
    for (start, end), wanted in zip(spans, ((33, 36), (36, 36.5)), strict=True):
        assert start == pytest.approx([wanted[0]] * P)
        assert end == pytest.approx([wanted[1]] * P, rel=1e-6)
    late = line.exposed[line.kind == EXCHANGE]
    assert late[:, EXCHANGE_AXES.index("dp")] == pytest.approx([3.0] * P)
    assert time == pytest.approx(36.5)
    hidden, _, _ = built(reduce=0.5, optimizer=0.5, forward_tp=M * 0.25)
    behind = (hidden.batch == M - 1) & (hidden.kind == 1)
    assert (hidden.hidden[behind, EXCHANGE_AXES.index("dp")] > 0).all()
    # of 0.25 s forward a part is exposed, and stands behind 1 s of computation
    own = np.flatnonzero(hidden.kind == 0)
    assert hidden.work[own] == pytest.approx(1.0)
    exposed = float(CORRECTIONS.plan_tp_exposed) * 0.25
    assert hidden.exposed[own, 0] == pytest.approx(exposed, rel=1e-5)
    assert (hidden.end - hidden.start)[own] == pytest.approx(1 + exposed, rel=1e-4)
    both = hidden.exposed[own, 0] + hidden.hidden[own, 0]
    assert both == pytest.approx(0.25, rel=1e-5)


def test_what_no_part_explains_slows_all_of_them():
    """A step 4 % longer: the same order and joules, idle nowhere where it was not."""
    line, time, energy = built()
    slow, longer, more = built(beyond=0.04)
    assert longer == pytest.approx(1.04 * time)
    for name in ("start", "end", "work", "exposed", "hidden"):
        assert getattr(slow, name) == pytest.approx(1.04 * getattr(line, name))
    assert slow.pipeline == pytest.approx(1.04 * line.pipeline)
    assert more - energy == pytest.approx(12 * STATIC * 0.04 * time, rel=1e-4)
    assert slow.energy == pytest.approx(more, rel=1e-6)
    assert slow.end.max() == pytest.approx(longer)


def test_exchanges_beside_work_do_not_pass_the_limit():
    """0.5 s of gradients at 240 W lie beside 3 s of work, but for their last part: up
    to 50 + 340 / 1.1 W in the last backward pass. The governor slows it, of the time
    that no part explains."""
    parts = {"reduce": 0.5, "reduce_w": 240.0, "beyond": 0.1}
    free, time, energy = built(**parts)
    assert 50 + 330 / 1.1 < free.power.max() < 50 + 340 / 1.1
    line, *same = built(**parts, limit=345.0)
    assert same == [time, energy]
    assert 340 < line.power.max() <= 345.0
    assert line.energy == pytest.approx(energy, rel=1e-6)
    assert line.end.max() == pytest.approx(time)
    for stage in range(P):
        own = line.of_stage(stage)
        assert (line.start[own][1:] >= line.end[own][:-1] - 1e-9).all()


def test_joules_are_the_area_below_the_power():
    """12 GPUs of 50 W all along, 8 times 100 W for 1 s and 300 W for 2 s each."""
    line, time, energy = built()
    by_hand = 12 * (STATIC * time + M * (100 + 600))
    assert energy == pytest.approx(by_hand, rel=1e-5)
    assert line.energy == pytest.approx(by_hand, rel=1e-5)
    edges, watts = line.curve()
    assert np.diff(edges) @ watts[:-1] == pytest.approx(by_hand, rel=1e-4)
    # at 0.5 s one stage runs forward, at 10.5 s the first backward, the others too
    at = [watts[np.searchsorted(edges, x, "right") - 1] for x in (0.5, 10.5)]
    assert at[0] == pytest.approx(3 * (4 * STATIC + 100), rel=1e-4)
    busy = (line.start < 10.5) & (line.end > 10.5)
    beyond = np.where(line.kind[busy] == 0, 100.0, 300.0).sum()
    assert at[1] == pytest.approx(3 * (4 * STATIC + beyond), rel=1e-4)
    edges, watts = line.curve(0)
    assert watts[0] == pytest.approx(STATIC + 100, rel=1e-4)


@pytest.mark.parametrize(("schedule", "backward"), [("gpipe", P), ("1f1b", 3)])
def test_the_peak_is_that_of_most_stages_backward(schedule: str, backward: int):
    """GPipe: all four stages run backward at once."""
    line, _, _ = built(schedule)
    forward = P - backward
    by_hand = 3 * (P * STATIC + 300 * backward + 100 * forward)
    assert line.peak == pytest.approx(by_hand, rel=1e-4)
