"""Seeds of random cases."""

from typing import Any

import pytest


def seeds(count: int, quick: int) -> list[Any]:
    """`count` of them as parameters, those from `quick` on slow."""
    slow = pytest.mark.slow
    return [pytest.param(n, marks=[slow] if n >= quick else []) for n in range(count)]
