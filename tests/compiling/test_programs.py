"""Kept programs answer like fresh ones, and broken files cost a compilation only."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.compiling import _programs, call_compiled


class Pair(NamedTuple):
    """What a function of a search gives: a tree of arrays."""

    twice: jax.Array
    both: tuple[jax.Array, jax.Array]


class Sum(eqx.Module):
    """What an estimate gives: a module."""

    sum: jax.Array
    word: str = eqx.field(static=True)


def pair(x):
    return Pair(2 * x, (jnp.sum(x), x))


def added(x):
    return {"sums": [Sum(jnp.sum(x), "three"), None], "pair": pair(x)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of programs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "diffenergy" / "jax"


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs as a new process does, which has loaded nothing."""

    def run(function: Any = pair, start: float = 0.0) -> Any:
        monkeypatch.setattr(_programs, "_LOADED", {})
        return call_compiled(function, (start + jnp.arange(3.0),))

    return run


def is_right(result: Any, start: float = 0.0) -> bool:
    """Whether `result` is the pair of three numbers from `start`."""
    x = start + np.arange(3.0)
    same = np.array_equal(result.twice, 2 * x) and np.array_equal(result.both[1], x)
    return isinstance(result, Pair) and same and float(result.both[0]) == x.sum()


def test_a_kept_program_answers_like_a_fresh_one(anew, folder):
    for start in (0.0, 1.0, 2.0):
        assert is_right(anew(start=start), start)
        assert len(list(folder.glob("*.bin"))) == 1


def test_a_program_belongs_to_the_text_of_the_sources(anew, folder, monkeypatch):
    """Another checkout of the same text finds it, a change compiles again."""
    number = []
    for name, text in (("a", "x = 1"), ("b", "x = 1"), ("b", "x = 2"), ("b", "x = 1")):
        source = folder.parents[1] / name / "compiling" / "_programs.py"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        monkeypatch.setattr(_programs, "__file__", str(source))
        _programs._sources.cache_clear()
        assert is_right(anew())
        number.append(len(list(folder.glob("*.bin"))))
    _programs._sources.cache_clear()
    assert number == [1, 1, 2, 2]


def test_a_broken_file_is_replaced(anew, folder):
    anew()
    (file,) = folder.glob("*.bin")
    file.write_bytes(b"broken")
    assert is_right(anew())
    assert file.stat().st_size > 100


def test_without_a_folder_nothing_is_kept(anew, folder, monkeypatch):
    folder.parent.parent.joinpath("file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent.parent / "file"))
    assert is_right(anew()) and is_right(
        call_compiled(pair, (1 + jnp.arange(3.0),)), 1.0
    )
    assert not folder.exists()


def test_trees_come_back_whole(anew, folder):
    for _ in range(2):  # compiled, then loaded
        result = anew(added)
        assert float(result["sums"][0].sum) == 3.0 and result["sums"][0].word == "three"
        assert result["sums"][1] is None and is_right(result["pair"])


def test_programs_are_read_once_a_process(folder, monkeypatch):
    call_compiled(pair, (jnp.arange(4.0),))
    monkeypatch.setattr(_programs, "_answer", None)  # nothing is read or compiled again
    assert float(call_compiled(pair, (jnp.arange(4.0),)).both[0]) == 6.0


def scaled(x, by=1):
    return by * x


def test_options_make_programs_of_their_own(folder, monkeypatch):
    for _ in range(2):  # compiled, then loaded
        monkeypatch.setattr(_programs, "_LOADED", {})
        values = [call_compiled(scaled, (jnp.ones(2),), by=x)[0] for x in (2, 3)]
        assert [float(x) for x in values] == [2.0, 3.0]
    assert len(list(folder.glob("*.bin"))) == 2


def test_threads_compile_a_program_once(folder, monkeypatch):
    compiled, answer = [], _programs._answer
    monkeypatch.setattr(_programs, "_LOADED", {})
    monkeypatch.setattr(
        _programs, "_answer", lambda *x: compiled.append(1) or answer(*x)
    )
    with ThreadPoolExecutor(4) as pool:
        at = [(jnp.full(5, float(n)),) for n in range(8)]
        results = list(pool.map(lambda x: call_compiled(pair, x), at))
    assert [float(x.both[0]) for x in results] == [5.0 * n for n in range(8)]
    assert len(compiled) == 1


def test_a_new_program_makes_room(anew, folder, monkeypatch):
    """Files that nothing has used for 60 days go, then those used longest ago beyond
    the MB; what is loaded counts as used."""
    anew()
    (used,) = folder.glob("*.bin")
    for name, days, size in (("old", 61, 1), ("recent", 59, 1), ("large", 3, 900_000)):
        file = folder / f"{name}.bin"
        file.write_bytes(b"x" * size)
        os.utime(file, (0, time.time() - 86400 * days))
    (folder / "else").write_bytes(b"x" * 5_000_000)  # none of ours
    os.utime(used, (0, 0))
    anew()  # loaded, so that it is used today
    monkeypatch.setenv("DIFFENERGY_CACHE_MB", "2")
    anew(added)
    names = {x.stem for x in folder.iterdir()} - {used.stem}
    assert used.exists() and names >= {"recent", "large", "else"}
    assert "old" not in names and len(names) == 4
    monkeypatch.setenv("DIFFENERGY_CACHE_MB", "0.5")
    call_compiled(pair, (jnp.arange(6.0),))
    assert used.exists() and not (folder / "large.bin").exists()
    assert not (folder / "recent.bin").exists() and (folder / "else").exists()
    monkeypatch.setenv("DIFFENERGY_CACHE_MB", "all")
    with pytest.warns(UserWarning, match="'all'; give a number of MB"):
        call_compiled(pair, (jnp.arange(7.0),))


class Line(eqx.Module):
    """A record as an argument."""

    slope: jax.Array
    offset: jax.Array


def line(record: Line, x: jax.Array) -> jax.Array:
    """offset + slope x."""
    return record.offset + record.slope * x


def test_records_are_told_apart_where_one_takes_the_place_of_another():
    """Their leaves are remembered by identity, which a new record may inherit."""
    seen = set[int]()
    for i in range(20):
        record = Line(jnp.asarray(float(i)), jnp.asarray(1.0))
        seen.add(id(record))
        for x in (2.0, 3.0):  # the second time as it is remembered
            result = call_compiled(line, (record, jnp.asarray(x)))
            assert float(result) == 1 + i * x
        del record
    assert len(seen) < 20  # some did
    wide = Line(jnp.arange(2.0), jnp.ones(2))  # another structure
    assert call_compiled(line, (wide, jnp.ones(2))).tolist() == [1.0, 2.0]


def test_a_process_that_expects_many_calls_has_one_program(
    monkeypatch: pytest.MonkeyPatch,
):
    """That which is optimised, whatever a caller says."""
    monkeypatch.setattr(_programs, "_MANY", threading.Event())
    loaded = dict[Any, Any]()
    monkeypatch.setattr(_programs, "_LOADED", loaded)
    x = (jnp.arange(5.0),)
    call_compiled(pair, x, once=False)
    call_compiled(pair, x)
    assert len(loaded) == 2
    _programs.expect_many_calls(True)
    call_compiled(pair, x)
    assert len(loaded) == 2
