"""The compilation cache for Python: where it is, when it is left alone, and undone."""

from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

import diffenergy as de
from diffenergy.compiling import _programs, call_compiled

NAMES = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's cache folder; JAX has no folder of its own, as in a new process."""
    before = {name: getattr(jax.config, name) for name in NAMES}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    yield tmp_path / "diffenergy" / "jax"
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def compile_anew(number: float) -> None:
    """Compiles a program that nobody has compiled before."""
    jax.jit(lambda x: x * number)(jnp.ones(3)).block_until_ready()


def test_what_is_compiled_later_is_stored(home: Path):
    """Until it is undone as the docstring says."""
    compile_anew(1.5)  # it may be switched on late
    assert de.enable_compilation_cache() == home
    assert list(home.iterdir()) == []
    compile_anew(2.5)
    programs = sorted(home.iterdir())
    assert programs
    assert de.enable_compilation_cache() == home  # again changes nothing
    assert sorted(home.iterdir()) == programs
    lines = (de.enable_compilation_cache.__doc__ or "").split("old one:")[1]
    for line in lines.strip().splitlines()[:2]:
        exec(line.strip(), {"jax": jax})
    compile_anew(4.5)
    assert sorted(home.iterdir()) == programs


def test_a_folder_of_the_callers_stays(home: Path, tmp_path: Path):
    own = tmp_path / "own"
    jax.config.update("jax_compilation_cache_dir", str(own))
    assert de.enable_compilation_cache() == own
    assert jax.config.jax_compilation_cache_dir == str(own)  # pyright: ignore
    assert not home.exists()


def test_without_a_folder_nothing_changes(home: Path, monkeypatch: pytest.MonkeyPatch):
    blocked = home.parents[1] / "file"
    blocked.write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert de.enable_compilation_cache() is None
    assert jax.config.jax_compilation_cache_dir is None  # pyright: ignore


def test_our_programs_do_not_come_out_of_it(home: Path, monkeypatch):
    """What JAX has read from its cache cannot be written again."""

    def double(x: jax.Array) -> jax.Array:
        return 2 * x

    de.enable_compilation_cache()
    arguments = (jnp.arange(7.0),)
    for _ in range(2):  # the second time as after an update of the package
        for file in home.glob("*.bin"):
            file.unlink()
        jax.clear_caches()
        monkeypatch.setattr(_programs, "_LOADED", {})
        call_compiled(double, arguments)
    (file,) = home.glob("*.bin")
    monkeypatch.setattr(_programs, "_LOADED", {})
    monkeypatch.setattr(_programs, "_save", None)  # it is not compiled once more
    assert call_compiled(double, arguments).tolist()[-1] == 12.0
    assert jax.config.jax_compilation_cache_dir == str(home)  # pyright: ignore
