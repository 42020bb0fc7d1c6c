"""The guard of answers notices what changed, and nothing else."""

import pytest
from guard import differences


@pytest.mark.parametrize(
    ("before", "after", "seen"),
    [
        ({"a": [1.0, {"b": "x"}]}, {"a": [1.0 + 1e-12, {"b": "x"}]}, []),
        ({"wall_s": 1.0}, {"wall_s": 2.0}, []),
        ({"a": 1.0}, {"a": 1.0 + 1e-6}, [".a: 1.0 -> 1.000001"]),
        ({"a": 1.0}, {"a": "1.0"}, [".a: 1.0 -> '1.0'"]),
        ({"a": 1}, {}, [".a: 1 -> '(absent)'"]),
        ({}, {"a": None}, [".a: '(absent)' -> None"]),
        ([1, 2], [1], [": 2 -> 1 entries"]),
    ],
)
def test_differences(before: object, after: object, seen: list[str]):
    assert list(differences(before, after)) == seen
