"""Settings and fixtures of all tests.

Compiled programs go to `diffenergy/tests` in the user's cache folder, where the next
run, other workers and other checkouts load them again: the name of a program has the
sources that it was made of. `pytest --cache-clear` empties that folder. Bytecode is
written even where the environment says otherwise, because many tests start a Python of
their own.
"""

import contextlib
import ctypes
import gc
import gzip
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import jax
import json_keys
import pandas as pd
import pytest

from diffenergy import measurements
from diffenergy.compiling import cache_folder, compiler_options
from diffenergy.measurements import MeasurementTable

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
jax.config.update("jax_enable_x64", True)


def _move_cache() -> Path | None:
    """Folder of compiled programs, the user's own apart; None if none can be written.
    A worker or a command of a test inherits the variable and stays in that folder."""
    home = cache_folder()
    if home is not None and home.parents[1].name != "tests":
        os.environ["XDG_CACHE_HOME"] = str(home.parent / "tests")
    return cache_folder()


_PROGRAMS: Final = _move_cache()
os.environ["DIFFENERGY_CACHE_MB"] = "inf"  # more programs than a user ever has
_UNUSED_DAYS: Final = 30
"""Programs that no run has read for so long are deleted: every change of the model
makes others."""
jax.config.update("jax_compilation_cache_dir", _PROGRAMS and str(_PROGRAMS))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_LONG: Final = ("test_notebooks", "test_docs")
_MOST_MEMORY: Final = 1.4e9
"""B of a worker beyond which it lets go of its compiled programs after a file."""
_GROWN: Final = 0.4e9
"""B more than after the last time, so that what is left is not looked at again."""
_IN_A_FILE: Final = 0.8e9
"""B more between tests of a file, which share their programs."""
_left = [0.0]


def pytest_configure(config: pytest.Config):
    """`--cache-clear` forgets compiled programs, too. Programs of tests run few times:
    workers and commands compile them without optimisation, in half the time."""
    if hasattr(config, "workerinput"):
        return
    if getattr(config.option, "cacheclear", False):
        _delete_programs(unused_days=0)
    flags = [f"--{x}={y}".lower() for x, y in compiler_options(once=True).items()]
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])


def _delete_programs(unused_days: float):
    """Deletes the programs that were not read for so long."""
    oldest = time.time() - unused_days * 86400
    for file in () if _PROGRAMS is None else _PROGRAMS.iterdir():
        with contextlib.suppress(OSError):  # another run has deleted it
            if file.stat().st_atime <= oldest:
                file.unlink()


def pytest_collection_modifyitems(items: list[pytest.Item]):
    """What takes longest first, so that no worker waits for it at the end."""
    items.sort(key=lambda item: item.path.stem not in _LONG)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None):
    """Compiled programs are forgotten where they take too much memory: a process that
    holds thousands of them may crash where it loads another."""
    most = max(_MOST_MEMORY, _left[0] + _GROWN)
    if nextitem is not None and nextitem.path == item.path:
        most += _IN_A_FILE
    if _memory() <= most:
        return
    from diffenergy.compiling import _programs

    _programs._LOADED.clear()
    jax.clear_caches()
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # glibc keeps what was freed
        libc.malloc_trim(0)
    _left[0] = _memory()


def _memory() -> float:
    """B of this process in memory; 0 where the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0.0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


# --- the page of JSON keys: every answer has them, and each stands in some answer


@pytest.fixture(scope="session", autouse=True)
def answers_have_the_keys_of_the_page() -> Iterator[None]:
    """Holds what commands answer to the page of keys, printed as JSON or not."""
    from diffenergy.cli import run
    from diffenergy.keys import json_text

    write = run._write

    def checked(flags: Any, outcome: Any, read: Any):
        if hasattr(flags, "as_json") and outcome.content is not None:
            module = type(flags).__module__.rpartition(".")[2]
            json_keys.check(module.removesuffix("_flags"), json_text(outcome.content))
        write(flags, outcome, read)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_write", checked)
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any):
    """Takes over what a worker of xdist produced."""
    json_keys.SEEN.update(
        map(tuple, getattr(node, "workeroutput", {}).get("json_keys", ()))
    )


def pytest_sessionfinish(session: pytest.Session, exitstatus: int):
    """Ends whole runs with status 1 where a row of the page stood in no answer: of this
    run, or of the other half of the suite. Parts of the suite say nothing."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["json_keys"] = sorted(json_keys.SEEN)  # pyright: ignore
    elif exitstatus in (0, 1) and _whole(config):
        _delete_programs(_UNUSED_DAYS)
        produced = config.cache.mkdir("json_keys")  # pyright: ignore[reportOptionalMemberAccess]
        never = json_keys.never(produced, config.option.markexpr)
        if never:
            print(f"\nno test produces these keys of docs/reference/json.md: {never}")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _whole(config: pytest.Config) -> bool:
    """Whether a run takes all tests of its marks; without the shared tables some are
    skipped."""
    if not (Path(__file__).parents[2] / "shared").is_dir():
        return False
    x = config.option
    part = (
        x.keyword,
        x.deselect,
        x.ignore,
        getattr(x, "lf", False),
        x.maxfail,
        x.collectonly,
    )
    of_paths = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return of_paths and x.markexpr in json_keys.RUNS and not any(part)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of the shared measurement tables, beside the repository."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"the shared measurement tables are not at {folder}")
    return folder


_SIZES = {
    "head_dim": 128,
    "input_hw": 56,
    "kernel_size": 3,
    "kv_len": 1500,
    "num_experts": 8,
    "num_gpus": 8,
    "num_heads": 32,
    "num_kv_heads": 8,
    "q_len": 700,
    "topk": 2,
}
_TEXTS = {"collective": "all_reduce"}
_SHARES = {"dram_active": 0.4, "fp32_active": 0.3}
_TILE = dict.fromkeys(("mdimc", "ndimc", "mdima", "ndimb"), 8) | {"vwm": 1, "vwn": 1}
_FITTING = {"clblast_gemm": _TILE | {"tile_m": 64, "tile_n": 64}}
"""Fields of one op that have to fit each other."""


@pytest.fixture(scope="session")
def sample() -> Callable[..., dict[str, Any]]:
    """`sample(op, **fields)`: a listing row of any op, every field filled.

    Sizes that are not given are 640 or those of `_SIZES`, so that a new op has a row
    without being named here.
    """
    from diffenergy import kernels
    from diffenergy.kernels import REQUIRED
    from diffenergy.workload import normalise_kernel

    anything = {"size": 640, "dtype": "bf16", "text": "gelu"}

    def row(op: str, **words: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {"op": op}
        for field in kernels.ops()[op][0].fields:
            if field.name in _SHARES:
                fields[field.name] = _SHARES[field.name]
            elif field.default is REQUIRED or field.name == "num_kv_heads":
                usual = field.words[0] if field.words else anything[field.kind]
                fields[field.name] = (_SIZES | _TEXTS).get(field.name, usual)
        return normalise_kernel(fields | _FITTING.get(op, {}) | words, op)

    return row


@pytest.fixture(scope="session")
def phases() -> Callable[..., Any]:
    """`phases(rows, ...)`: workload with one phase for every list of rows, no host."""
    from diffenergy.workload import Listing, assemble

    def build(*lists: list[dict[str, Any]]) -> Any:
        names = [f"phase {i}" for i in range(len(lists))]
        return assemble(
            [
                Listing(name, kernels=tuple(rows), dispatch="graph")
                for name, rows in zip(names, lists, strict=True)
            ]
        )

    return build


# --- importers


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """`write(text, name)`: a file of that text, packed if the name ends in `.gz`."""

    def write(text: str, name: str = "runs.csv") -> Path:
        path = tmp_path / "given" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = text.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


@pytest.fixture
def read_back(tmp_path: Path) -> Callable[..., dict[str, MeasurementTable]]:
    """`read_back(tables, gpu=None)`: what `measurements.read` makes of the tables."""

    def read_back(
        tables: Mapping[str, pd.DataFrame], gpu: str | None = None
    ) -> dict[str, MeasurementTable]:
        result = {}
        for stem, table in tables.items():
            path = tmp_path / f"{stem}.csv"
            table.to_csv(path, index=False, float_format="%.10g")
            named: dict[str, Any] = {}
            if "workload" in table:
                named = dict.fromkeys(table["workload"], [])
            result[stem] = measurements.read([str(path)], workloads=named, gpu=gpu)
        return result

    return read_back


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium, such as Debian's; tests skip without one."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed"
    )
    path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(_BROWSERS)} is installed")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # root has none
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=sandbox)
        yield started
        started.close()
