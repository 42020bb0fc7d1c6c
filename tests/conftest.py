"""Settings and fixtures of all tests.

What is compiled is kept in the checkout for the next run and the other worker (`pytest
--cache-clear` empties it), of commands whole programs, and so is bytecode, even where
the environment says otherwise: every worker and many a test begin a Python of their
own.
"""

import ctypes
import gc
import gzip
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import jax
import pandas as pd
import pytest

from diffenergy import measurements
from diffenergy.measurements import MeasurementTable

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
jax.config.update("jax_enable_x64", True)
_CACHE: Final = Path(__file__).parents[1] / ".pytest_cache" / "d"
_COMPILED: Final = _CACHE / "diffenergy" / "jax"
"""Where `XDG_CACHE_HOME` puts the programs of commands: see `compiling.kept`."""
os.environ["XDG_CACHE_HOME"] = str(_CACHE)
jax.config.update("jax_compilation_cache_dir", str(_COMPILED))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_LONG: Final = ("test_notebooks", "test_docs")
_MOST_MEMORY: Final = 1.4e9
"""B of a worker beyond which it lets go of its compiled programs after a file of tests;
a file takes up to 1 GB."""


def pytest_collection_modifyitems(items: list[pytest.Item]):
    """What takes longest first, so that no worker waits for it at the end."""
    items.sort(key=lambda item: item.path.stem not in _LONG)


@pytest.fixture(scope="module", autouse=True)
def bounded_memory() -> Iterator[None]:
    """Compiled programs are forgotten where they take too much memory."""
    yield
    if _memory() > _MOST_MEMORY:
        from diffenergy.compiling import _programs

        _programs._LOADED.clear()
        jax.clear_caches()
        gc.collect()
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):  # glibc keeps what was freed
            libc.malloc_trim(0)


def _memory() -> float:
    """B of this process in memory; 0 where the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0.0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


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


@pytest.fixture(scope="session")
def sample() -> Callable[..., dict[str, Any]]:
    """`sample(op, **fields)`: a listing row of any op, every field filled.

    Sizes that are not given are 640 or those of `_SIZES`, so that a new op has a row
    without being named here.
    """
    from diffenergy import kernels
    from diffenergy.kernels._shared.ops import REQUIRED
    from diffenergy.workload._kernel import normalise_kernel

    anything = {"size": 640, "dtype": "bf16", "text": "gelu"}

    def row(op: str, **given: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {"op": op}
        for field in kernels.ops()[op][0].fields:
            if field.name in _SHARES:
                fields[field.name] = _SHARES[field.name]
            elif field.default is REQUIRED or field.name == "num_kv_heads":
                usual = field.choices[0] if field.choices else anything[field.kind]
                fields[field.name] = (_SIZES | _TEXTS).get(field.name, usual)
        return normalise_kernel(fields | given, op)

    return row


@pytest.fixture(scope="session")
def phases() -> Callable[..., Any]:
    """`phases(rows, ...)`: workload with one phase for every list of rows, no host."""
    from diffenergy.workload._listing import Listing
    from diffenergy.workload._workload import assemble

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

    def write(text: str, name: str) -> Path:
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
        found = {}
        for stem, table in tables.items():
            path = tmp_path / f"{stem}.csv"
            table.to_csv(path, index=False, float_format="%.10g")
            named: dict[str, Any] = {}
            if "workload" in table:
                named = dict.fromkeys(table["workload"], [])
            found[stem] = measurements.read([str(path)], workloads=named, gpu=gpu)
        return found

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
