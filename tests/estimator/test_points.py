"""`at_points`: every question answered as alone, in few calls of few programs."""

from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.estimator import Interrupted, at_points, stacked


@pytest.fixture(autouse=True)
def no_programs_of_other_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


TRACES: list[tuple[int, ...]] = []


class Sums(NamedTuple):
    whole: Any
    parts: Any


def weighed(values: Any, weight: Any, *more: Any) -> Sums:
    """Something to price: notes whenever it is traced, hence compiled."""
    TRACES.append(values.shape)
    parts = values * weight
    return Sums(jnp.sum(parts) + sum(jnp.sum(x) for x in more), parts)


def questions(seed: int, number: int, lengths: tuple[int, ...] = (2, 3)) -> list[Any]:
    """Values of several lengths with a weight each."""
    draw = np.random.default_rng(seed)
    return [
        (draw.normal(size=draw.choice(lengths)), np.float64(draw.normal()))
        for _ in range(number)
    ]


def test_answers_come_in_order_each_as_alone():
    """Two structures mixed with reasons; more of one than a call takes."""
    points = questions(0, 200)
    reasons = {i: ValueError(f"no {i}") for i in (0, 17, 199)}
    mixed: list[Any] = [reasons.get(i, x) for i, x in enumerate(points)]
    result = at_points(mixed, weighed)
    for i, (values, weight) in enumerate(points):
        if i in reasons:
            assert result[i] is reasons[i]
        else:
            assert result[i].parts == pytest.approx(values * weight, rel=1e-12)
            assert result[i].whole == pytest.approx((values * weight).sum(), rel=1e-12)
    assert at_points([], weighed) == []
    alone = [ValueError("none")]
    assert at_points(alone, weighed) == alone
    with pytest.raises(ValueError, match="none"):
        stacked(alone)


def test_what_is_shared_is_given_once():
    values, more = np.arange(5.0), np.array([2.0])
    weights = [np.float64(x) for x in range(70)]
    result = at_points([(values, weight, more) for weight in weights], weighed)
    whole = stacked(result).whole
    assert whole == pytest.approx(10 * np.arange(70) + 2, rel=1e-12)
    same = at_points([(values, weights[3])] * 3, weighed)
    assert [float(x.whole) for x in same] == [30.0] * 3


def test_nothing_is_compiled_again():
    """One program for each structure, whatever the numbers, their count and order."""
    lengths = (7, 11)
    before = len(TRACES)
    at_points(questions(1, 40, lengths), weighed)
    known = len(TRACES)
    assert known == before + 2
    for seed, number in ((2, 40), (3, 9), (4, 150)):
        at_points(questions(seed, number, lengths)[::-1], weighed)
    assert len(TRACES) == known
    one = questions(5, 1, (7,))
    at_points(one, weighed)
    known = len(TRACES)
    at_points(questions(6, 1, (7,)), weighed)
    assert len(TRACES) == known


def test_ctrl_c_keeps_what_is_answered():
    points = questions(7, 150, (3,))
    calls: list[tuple[int, int]] = []

    def progress(done: int, total: int):
        calls.append((done, total))
        if len(calls) == 2:
            raise KeyboardInterrupt

    result = at_points(points, weighed, progress)
    assert calls == [(64, 150), (128, 150)]
    for (values, weight), answer in zip(points[:128], result, strict=False):
        assert answer.whole == pytest.approx((values * weight).sum(), rel=1e-12)
    assert all(isinstance(x, Interrupted) for x in result[128:])
    with pytest.raises(KeyboardInterrupt):  # who needs all of them has none
        stacked(result)

    def stopped(*_: Any):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # before any answer
        at_points(questions(8, 3, (19,)), stopped)
