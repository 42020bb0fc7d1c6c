"""Pipelines against the closed forms of their papers and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.plans import closed_form_makespan, makespan
from diffenergy.plans._pipeline import instructions, order


def span(p: int, m: int, schedule: str = "1f1b", v: int = 1) -> float:
    """Forward 1 s, backward 2 s a stage."""
    forward = jnp.full((v, p), 1 / v)
    return float(makespan(forward, 2 * forward, m, schedule))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("p", "m", "plain", "twice", "four_times"),
    [
        (4, 8, 33.0, 28.5, 26.25),
        (8, 16, 69.0, 58.5, 53.25),
        pytest.param(8, 64, 213, 202.5, 197.25, marks=pytest.mark.slow),
    ],
)
def test_interleaving_divides_the_bubble(
    p: int, m: int, plain: float, twice: float, four_times: float
):
    """(m + (p - 1)/v) 3 (arXiv 2104.04473, section 2.2)."""
    assert span(p, m) == span(p, m, "gpipe") == plain == (m + p - 1) * 3
    assert span(p, m, "interleaved", 2) == twice == (m + (p - 1) / 2) * 3
    assert span(p, m, "interleaved", 4) == four_times


@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 16), (2, 5)])
def test_gradients_of_weights_fill_the_bubble(p: int, m: int):
    """f = b = w = 1: 3 m + p - 1 (arXiv 2401.10241, table 1)."""
    assert span(p, m, "zb-h1") == 3 * m + p - 1


def test_a_slow_stage_is_on_the_critical_path_every_time():
    forward = jnp.array([[1.0, 1.0, 1.0, 1.2]])
    one = lambda f, b: makespan(f, b, 8)  # noqa: E731
    assert float(one(forward, 2 * forward)) == pytest.approx(37.8)
    slopes = jax.grad(one, (0, 1))(forward, 2 * forward)
    for slope in slopes:
        assert np.asarray(slope).tolist() == [[1, 1, 1, 8]]
    smooth = makespan(forward, 2 * forward, 8, tau=0.01)
    assert float(smooth) == pytest.approx(37.855, abs=5e-4)


def test_what_is_sent_is_on_its_way_for_a_while():
    """One micro-batch in two stages: 1 s, 0.5 s to the next, 1 + 2 s, 0.5 s back, 2."""
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


def test_an_interleaved_pipeline_wants_whole_groups():
    with pytest.raises(ValueError, match="needs a multiple of pp"):
        order("interleaved", 4, 6, 2)


@pytest.mark.parametrize("early", [0.0, 1.0])
@pytest.mark.parametrize("virtual", [1, 2, 4])
def test_the_closed_form_is_that_of_equal_stages(virtual: int, early: float):
    result = closed_form_makespan(
        jnp.array([3.0]), jnp.array([8.0]), jnp.array(64.0), jnp.array(float(virtual)),
        early,
    )  # fmt: skip
    assert float(result) == pytest.approx(64 * 3 + 7 * 3 / virtual - 7 * 2 * early)


@pytest.mark.slow
def test_more_micro_batches_never_have_a_larger_share_of_bubbles():
    for schedule, v in (("1f1b", 1), ("gpipe", 1), ("interleaved", 2), ("zb-h1", 1)):
        shares = [1 - 3 * m / span(4, m, schedule, v) for m in (4, 8, 16, 32)]
        assert shares == sorted(shares, reverse=True)


def test_kinds_of_stages_that_take_as_long_are_one():
    """First, middle and last stages are three kinds; 1F1B of equal ones is exact."""
    stage, count = jnp.array([3.0, 3.0, 3.0]), jnp.array([1.0, 6.0, 1.0])
    result = closed_form_makespan(stage, count, jnp.array(64.0), jnp.array(1.0))
    assert float(result) == pytest.approx((64 + 7) * 3)


def test_the_closed_form_is_near_the_recursion_for_uneven_stages():
    forward = jnp.array([[1.0, 1.0, 1.0, 1.2]])
    exact = float(makespan(forward, 2 * forward, 32))
    stage, count = 3 * jnp.array([1.0, 1.2]), jnp.array([3.0, 1.0])
    near = closed_form_makespan(stage, count, jnp.array(32.0), jnp.array(1.0))
    assert float(near) == pytest.approx(exact, rel=0.01)
