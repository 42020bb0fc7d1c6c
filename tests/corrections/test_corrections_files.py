"""Corrections files that are wrong are refused in one sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from diffenergy.corrections import prior_file, read_corrections, write_corrections


@pytest.mark.parametrize(
    "change, said",
    [
        ({"schema": 2}, "`schema` of .* is 2; this version reads 1"),
        ({"levels": [3]}, r"`levels` is \[3\]; give a table"),
        ({"spread": {"x": 3}}, "`spread.x` is 3; give a table"),
        ({"levels": {"gpu:t4": {}}}, "`levels.global` is missing"),
        ({"levels": {"global": {"zzz": 1}}}, "`global.zzz` .* is no constant"),
        (
            {"levels": {"global": {"energy_dram": "x"}}},
            "`levels.global.energy_dram` is",
        ),
        ({"levels": {"global": {"energy_dram": -1}}}, "is -1; give a number above 0"),
        ({"levels": {"global": {"activity_dram": 1}}}, "is 1.0; allowed .* 0 and 1"),
        ({"continues": {"levels": {"global": {"zzz": 1}}}}, "continues' is no const"),
    ],
)
def test_wrong_files(tmp_path: Path, change: dict[str, Any], said: str):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(json.loads(write_corrections(prior_file())) | change))
    with pytest.raises(ValueError, match=said) as wrong:
        read_corrections(path)
    assert "mine.json" in str(wrong.value) and "\n" not in str(wrong.value)


def test_a_constant_that_a_file_lacks_has_its_prior(tmp_path: Path):
    path = tmp_path / "mine.json"
    path.write_text('{"schema": 1, "levels": {"global": {}}}')
    assert read_corrections(path).levels["global"] == prior_file().levels["global"]
