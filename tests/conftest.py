"""Settings and fixtures of all tests."""

from pathlib import Path

import jax
import pytest

jax.config.update("jax_enable_x64", True)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of the shared measurement tables, beside the repository."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"the shared measurement tables are not at {folder}")
    return folder
