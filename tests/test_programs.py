"""Kept programs answer like fresh ones, and broken files cost a compilation only."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.estimator import _programs as programs


def double(x):
    return {"twice": 2 * x, "sum": jnp.sum(x)}


@pytest.fixture
def answer(tmp_path):
    def run(folder=tmp_path):
        total, twice = programs.run(double, (jnp.arange(3.0),), folder, {})
        return float(total), np.asarray(twice).tolist()

    return run


def test_a_kept_program_answers_like_a_fresh_one(answer, tmp_path):
    assert answer() == (3.0, [0.0, 2.0, 4.0])
    assert len(list(tmp_path.glob("*.bin"))) == 1
    assert answer() == (3.0, [0.0, 2.0, 4.0])


def test_a_broken_file_is_replaced(answer, tmp_path):
    answer()
    (file,) = tmp_path.glob("*.bin")
    file.write_bytes(b"broken")
    assert answer() == (3.0, [0.0, 2.0, 4.0])
    assert file.stat().st_size > 100


def test_without_a_folder_nothing_is_kept(answer):
    assert answer(None) == (3.0, [0.0, 2.0, 4.0])


class Pair(NamedTuple):
    """What a function of a search gives: a tree of arrays."""

    twice: jax.Array
    both: tuple[jax.Array, jax.Array]


def pair(x):
    return Pair(2 * x, (jnp.sum(x), x))


def test_trees_come_back_whole(tmp_path):
    kept = programs.Programs(tmp_path, lambda _: {})
    for start in (0.0, 1.0, 2.0):
        x = start + jnp.arange(3.0)
        found = kept(pair, (x,))
        assert isinstance(found, Pair) and float(found.both[0]) == 3 * start + 3
        assert np.array_equal(found.twice, 2 * x)
    assert len(list(tmp_path.glob("*.bin"))) == 1


def test_programs_are_read_once_a_process(tmp_path, monkeypatch):
    arguments = (jnp.arange(4.0),)
    programs.Programs(tmp_path, lambda _: {})(pair, arguments)
    monkeypatch.setattr(programs, "_answer", None)  # nothing is read or compiled again
    again = programs.Programs(tmp_path, lambda _: {})(pair, arguments)
    assert float(again.both[0]) == 6.0
