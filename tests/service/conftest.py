"""Logs in files."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def log(tmp_path: Path) -> Callable[[str, str], str]:
    """`log("bench.json", text)`: the path of a file."""

    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write
