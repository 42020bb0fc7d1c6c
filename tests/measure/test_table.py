"""The file of measurements: endings that cut it, files of others."""

import csv

import pytest

from diffenergy.measure._table import (
    COLUMNS,
    Table,
    cell,
    finished,
    key,
    series_path,
    state_path,
)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "mine.csv"


@pytest.fixture
def filled(file):
    """The file, with three rows."""
    table = Table(file)
    for number in range(3):
        table.append({"gpu": "l4", "op": "gemm", "m": str(number)}, {"t_s": [number]})
    return file


def test_rows_come_back(filled):
    again = Table(filled)
    assert [row["m"] for row in again.rows] == ["0", "1", "2"]
    assert not again.repaired and tuple(again.rows[0]) == COLUMNS
    with filled.open(newline="") as stream:
        assert len(list(csv.reader(stream))) == 4
    assert series_path(filled).name == "mine.series.jsonl"
    assert state_path(filled).name == "mine.restore.json"


def test_any_cut_loses_one_row_at_most(filled, tmp_path):
    """Only writing repairs the file; the series is trimmed to the rows."""
    whole, lines = filled.read_bytes(), filled.read_bytes().splitlines(keepends=True)
    series = series_path(filled).read_bytes()
    part = tmp_path / "part.csv"
    ends = {sum(map(len, lines[:i])) + d for i in range(5) for d in (-1, 0, 1, 9)}
    for size in sorted(end for end in ends if 0 <= end <= len(whole)):
        part.write_bytes(whole[:size])
        series_path(part).write_bytes(series[: -4 if size == len(whole) else None])
        complete = sum(size >= sum(map(len, lines[: i + 1])) for i in range(1, 4))
        if size >= len(lines[0]):
            assert len(finished(part)) == complete
            assert part.read_bytes() == whole[:size]
        table = Table(part)
        assert len(table.rows) == complete
        count = complete - (size == len(whole))
        assert len(series_path(part).read_bytes().splitlines()) == count
        table.append({"m": "new"}, {"t_s": []})
        assert finished(part)[-1]["m"] == "new" and len(finished(part)) == complete + 1
        last = series_path(part).read_text().splitlines()[-1]
        assert last.startswith(f'{{"row": {complete},')


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "a", "gpu,clas", "\xff\xfe\n", "\n"])
def test_files_of_others_stay_as_they_are(file, content):
    file.write_bytes(content.encode("latin-1"))
    if ",".join(COLUMNS).startswith(content):  # ours, cut off
        assert Table(file).rows == [] and Table(file).rows == []
        return
    with pytest.raises(ValueError, match="give another name"):
        Table(file)
    assert file.read_bytes() == content.encode("latin-1")
    assert not series_path(file).exists()


def test_a_row_that_was_edited_is_an_error(filled):
    filled.write_text(filled.read_text() + "l4,gemm\n")
    with pytest.raises(ValueError, match="line 5 has 2 cells"):
        Table(filled)


def test_cells():
    assert [cell(x) for x in (None, float("nan"), True, 3, 0.1 + 0.2, "a\n b")] == [
        "", "", "true", "3", "0.3", "a b",
    ]  # fmt: skip
    assert key({"op": "gemm", "time_us": "3"}) == key({"op": "gemm", "time_us": "4"})
    assert key({"op": "gemm", "m": "3"}) != key({"op": "gemm", "m": "4"})
