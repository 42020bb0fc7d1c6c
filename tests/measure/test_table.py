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


def filled(file, count=3):
    table = Table(file)
    for number in range(count):
        table.append({"gpu": "l4", "op": "gemm", "m": str(number)}, {"t_s": [number]})
    return table


def test_rows_come_back(file):
    filled(file)
    again = Table(file)
    assert [row["m"] for row in again.rows] == ["0", "1", "2"]
    assert not again.repaired and tuple(again.rows[0]) == COLUMNS
    with file.open(newline="") as stream:
        assert len(list(csv.reader(stream))) == 4


def test_any_cut_loses_one_row_at_most(file, tmp_path):
    filled(file)
    whole, lines = file.read_bytes(), file.read_bytes().splitlines(keepends=True)
    series = series_path(file).read_bytes()
    part = tmp_path / "part.csv"
    ends = {sum(map(len, lines[:i])) + d for i in range(5) for d in (-1, 0, 1, 9)}
    for size in sorted(end for end in ends if 0 <= end <= len(whole)):
        part.write_bytes(whole[:size])
        series_path(part).write_bytes(series)
        complete = sum(size >= sum(map(len, lines[: i + 1])) for i in range(1, 4))
        table = Table(part)
        assert len(table.rows) == complete
        assert len(series_path(part).read_bytes().splitlines()) == complete
        table.append({"m": "new"}, {"t_s": []})
        assert finished(part)[-1]["m"] == "new" and len(finished(part)) == complete + 1


def test_reading_repairs_nothing(file):
    filled(file)
    cut = file.read_bytes()[:-3]
    file.write_bytes(cut)
    assert len(finished(file)) == 2 and file.read_bytes() == cut
    assert Table(file).repaired


def test_a_series_that_was_cut_is_trimmed(file):
    filled(file)
    series = series_path(file)
    series.write_bytes(series.read_bytes()[:-4])
    Table(file).append({"m": "4"}, {"t_s": [4]})
    assert [line[:9] for line in series.read_text().splitlines()] == [
        '{"row": 0', '{"row": 1', '{"row": 3',
    ]  # fmt: skip


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "a", "gpu,clas", "\xff\xfe\n", "\n"])
def test_files_of_others_stay_as_they_are(file, content):
    file.write_bytes(content.encode("latin-1"))
    known = ",".join(COLUMNS).startswith(content)
    if known:
        assert Table(file).rows == [] and Table(file).rows == []
        return
    with pytest.raises(ValueError, match="give another name"):
        Table(file)
    assert file.read_bytes() == content.encode("latin-1")
    assert not series_path(file).exists()


def test_a_row_that_was_edited_is_an_error(file):
    filled(file)
    file.write_text(file.read_text() + "l4,gemm\n")
    with pytest.raises(ValueError, match="row 3 has 2 cells"):
        Table(file)


def test_names_beside_the_file(file):
    assert series_path(file).name == "mine.series.jsonl"
    assert state_path(file).name == "mine.restore.json"


def test_cells():
    assert [cell(x) for x in (None, float("nan"), True, 3, 0.1 + 0.2, "a\n b")] == [
        "", "", "true", "3", "0.3", "a b",
    ]  # fmt: skip
    assert key({"op": "gemm", "time_us": "3"}) == key({"op": "gemm", "time_us": "4"})
    assert key({"op": "gemm", "m": "3"}) != key({"op": "gemm", "m": "4"})
