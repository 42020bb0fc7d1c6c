"""Fixtures of the importer tests."""

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from diffenergy.measurements import MeasurementTable, read_measurements


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
