"""Pipelines against the closed forms of their papers and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.plans import closed_form_makespan, makespan
from diffenergy.plans._pipeline import instructions


def span(p: int, m: int, schedule: str = "1f1b", v: int = 1) -> float:
    """Forward 1 s, backward 2 s a stage."""
    forward = jnp.full((v, p), 1 / v)
    return float(makespan(forward, 2 * forward, m, schedule))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 16)])
def test_bubbles_of_schedules(p: int, m: int):
    """(m + (p - 1)/v) 3 (arXiv 2104.04473, section 2.2); where gradients of weights
    fill the bubble, f = b = w = 1: 3 m + p - 1 (arXiv 2401.10241, table 1)."""
    assert span(p, m) == span(p, m, "gpipe") == (m + p - 1) * 3
    for v in (2, 4):
        assert span(p, m, "interleaved", v) == (m + (p - 1) / v) * 3
    assert span(p, m, "zb-h1") == 3 * m + p - 1
    assert span(2, 5, "zb-h1") == 3 * 5 + 2 - 1


def test_a_slow_stage_is_on_the_critical_path_every_time():
    forward = jnp.array([[1.0, 1.0, 1.0, 1.2]])
    one = lambda f, b: makespan(f, b, 8)  # noqa: E731
    assert float(one(forward, 2 * forward)) == pytest.approx(37.8)
    slopes = jax.grad(one, (0, 1))(forward, 2 * forward)
    for slope in slopes:
        assert np.asarray(slope).tolist() == [[1, 1, 1, 8]]
    smooth = makespan(forward, 2 * forward, 8, tau=0.01)
    assert float(smooth) == pytest.approx(37.855, abs=5e-4)
    # one micro-batch in two stages: 1 s, 0.5 s to the next, 1 + 2 s, 0.5 s back, 2
    one = jnp.ones((1, 2))
    assert float(makespan(one, 2 * one, 1, send=0.5)) == pytest.approx(7.0)


@pytest.mark.parametrize(
    ("schedule", "virtual"),
    [("gpipe", 1), ("1f1b", 1), ("interleaved", 1), ("interleaved", 2), ("zb-h1", 1)],
)
def test_every_micro_batch_runs_once_behind_what_it_needs(schedule, virtual):
    p, m = 4, 8
    program = instructions(schedule, p, m, virtual)
    kinds = 3 if schedule == "zb-h1" else 2
    done = set(zip(program.kind, program.place, program.batch, strict=True))
    assert len(done) == len(program.kind) == kinds * p * virtual * m
    numbers = np.arange(len(program.kind))
    assert (program.needs < numbers).all() and (program.before < numbers).all()


def closed(stage: list[float], count: list[float], m: float, *more: float) -> float:
    arrays = (jnp.array(x) for x in (stage, count, m, more[0] if more else 1.0))
    return float(closed_form_makespan(*arrays, *more[1:]))


@pytest.mark.parametrize("early", [0.0, 1.0])
@pytest.mark.parametrize("virtual", [1.0, 4.0])
def test_the_closed_form_is_that_of_equal_stages(virtual: float, early: float):
    result = closed([3.0], [8.0], 64.0, virtual, early)
    assert result == pytest.approx(64 * 3 + 7 * 3 / virtual - 7 * 2 * early)


def test_the_closed_form_of_kinds_of_stages():
    """First, middle and last stages are three kinds; 1F1B of equal ones is exact, of
    uneven ones it is near the recursion."""
    assert closed([3.0] * 3, [1.0, 6.0, 1.0], 64.0) == pytest.approx((64 + 7) * 3)
    forward = jnp.array([[1.0, 1.0, 1.0, 1.2]])
    exact = float(makespan(forward, 2 * forward, 32))
    assert closed([3.0, 3.6], [3.0, 1.0], 32.0) == pytest.approx(exact, rel=0.01)
