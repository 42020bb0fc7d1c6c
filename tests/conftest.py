"""Settings and fixtures of all tests."""

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import pandas as pd
import pytest

from diffenergy.measurements import MeasurementTable, read_measurements

jax.config.update("jax_enable_x64", True)


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
    from diffenergy.workload._listing import normalise_kernel

    anything = {"size": 640, "dtype": "bf16", "text": "gelu"}

    def row(op: str, **given: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {"op": op}
        for field in kernels.ops()[op][0].fields:
            if field.name in _SHARES:
                fields[field.name] = _SHARES[field.name]
            elif field.default is REQUIRED or field.name == "num_kv_heads":
                fields[field.name] = (_SIZES | _TEXTS).get(
                    field.name, anything[field.kind]
                )
        return normalise_kernel(fields | given, op)

    return row


@pytest.fixture(scope="session")
def phases() -> Callable[..., Any]:
    """`phases(rows, ...)`: workload with one phase for every list of rows, no host."""
    from diffenergy.workload._assemble import assemble
    from diffenergy.workload._listing import Listing

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
    """`read_back(tables, gpu=None)`: what `read_measurements` makes of the tables."""

    def read_back(
        tables: Mapping[str, pd.DataFrame], gpu: str | None = None
    ) -> dict[str, MeasurementTable]:
        found = {}
        for stem, table in tables.items():
            path = tmp_path / f"{stem}.csv"
            table.to_csv(path, index=False, float_format="%.10g")
            named: dict[str, Any] = {}
            if "workload" in table:
                named = dict.fromkeys(table["workload"])
            found[stem] = read_measurements([str(path)], workloads=named, gpu=gpu)
        return found

    return read_back
