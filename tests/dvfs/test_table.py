"""Measured tables: what is read, what is refused, what is remarked on."""

import gzip

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diffenergy.dvfs import read_table
from diffenergy.workload import Loop

PLAIN = """stage,instruction,frequency,time,energy
forward,gemm,auto,0.010,3.0
forward,gemm,1410,0.011,2.5
forward,norm,auto,0.002,0.5
forward,norm,1410,0.002,0.4
backward,gemm,auto,0.020,6.0
backward,gemm,1410,0.021,5.0
"""
PAIRS = """stage,instruction,frequency,memory_frequency,count,time,energy
f,embed,auto,auto,1,0.010,3.0
f,embed,1500,9501,1,0.011,2.5
f,gemm,auto,auto,24,0.002,0.5
f,norm,auto,auto,24,0.001,0.2
f,gemm,1500,9501,24,0.003,0.4
f,norm,AUTO,5001,24,0.002,0.1
b,gemm,auto,auto,24,0.004,1.0
b,head,auto,auto,1,0.005,1.0
"""
PERSEUS = """stage,instruction,frequency,time,energy
0,forward,1410,0.10,20.0
0,forward,1395,0.11,18.0
0,backward,1410,0.20,41.0
0,backward,1395,0.22,38.0
1,forward,1410,0.10,21.0
1,forward,1395,0.11,19.0
"""


@pytest.fixture
def file(tmp_path):
    """`file(text)`: path of a packed .csv file of that text."""

    def write(text: str) -> str:
        path = tmp_path / "table.csv.gz"
        path.write_bytes(gzip.compress(text.encode(errors="surrogatepass")))
        return str(path)

    return write


def swapped(text: str, row: int, column: str, value: str) -> str:
    """`text` with one cell of data row `row` changed."""
    lines = text.splitlines()
    cells = lines[row + 1].split(",")
    cells[lines[0].split(",").index(column)] = value
    lines[row + 1] = ",".join(cells)
    return "\n".join(lines)


def test_a_plain_table(file):
    table = read_table(file(PLAIN))
    problem, nan = table.problem, np.nan
    assert table.notes == () and np.isnan(table.default_clock).all()
    assert problem.kernels == ("gemm", "norm", "gemm")
    assert problem.stages == ("forward", "backward")
    assert (problem.stage.tolist(), problem.count.tolist()) == ([0, 0, 1], [1, 1, 1])
    np.testing.assert_array_equal(problem.settings, [[nan, nan], [1.41e9, nan]])
    time = [[0.010, 0.011], [0.002, 0.002], [0.020, 0.021]]
    np.testing.assert_array_equal(problem.time, time)
    np.testing.assert_array_equal(problem.default_energy, [3.0, 0.5, 6.0])
    assert problem.loops == (Loop((0, 1), 1), Loop((2,), 1))
    assert np.isinf(problem.power_cap).all() and not problem.host_time.any()


def test_pairs_of_clocks_and_loops(file):
    table = read_table(file(PAIRS))
    problem = table.problem
    assert problem.settings.shape == (3, 2)
    auto_5001, locked = problem.settings[1:]
    assert np.isnan(auto_5001[0]) and auto_5001[1] == 5.001e9
    assert locked.tolist() == [1.5e9, 9.501e9]
    embed, gemm, norm, back, head = range(5)
    inner, outer = Loop((gemm, norm), 24), Loop((back,), 24)
    assert problem.loops == (Loop((embed,), 1), inner, outer, Loop((head,), 1))
    assert problem.sequence().tolist() == [0, *[1, 2] * 24, *[3] * 24, 4]
    assert problem.time[gemm].tolist() == [0.002, np.inf, 0.003]
    assert problem.energy[norm].tolist() == [0.2, 0.1, np.inf]
    assert problem.usable.sum() == 8
    (note,) = table.notes
    assert "5 of 5 kernels lack rows" in note and note.count("\n") == 0


def test_default_clocks(file):
    """Perseus names one; beside `auto` a kernel's row at it counts, else `auto`."""
    table = read_table(file(PERSEUS), default_clock="1410")
    problem = table.problem
    assert table.default_clock[0] == 1.41e9 and np.isnan(table.default_clock[1])
    np.testing.assert_array_equal(
        problem.settings, [[np.nan, np.nan], [1.395e9, np.nan]]
    )
    assert problem.default_time.tolist() == [0.10, 0.20, 0.10]
    assert problem.kernels == ("forward", "backward", "forward")
    assert problem.stages == ("0", "1")
    table = read_table(file(PAIRS), default_clock="1500,9501")
    problem = table.problem
    assert problem.default_time.tolist() == [0.011, 0.003, 0.001, 0.004, 0.005]
    assert problem.settings.shape == (2, 2)  # left alone; (auto, 5001)
    assert any("stands for `auto`" in note for note in table.notes)


def test_remarks(file):
    """A time that grows with the clock, per memory clock; columns not read."""
    lines = ["stage,instruction,frequency,memory_frequency,time,energy,host"]
    for name, low, high, slow, fast in (
        ("steady", 5001, 5001, 2.0, 1.0), ("grows", 5001, 5001, 1.0, 1.05),
        ("a little", 5001, 5001, 1.0, 1.03), ("elsewhere", 9501, 5001, 1.0, 1.5),
        ("at auto", "auto", "auto", 1.0, 1.5),
    ):  # fmt: skip
        rows = f"auto,auto,{1.0}", f"1000,{low},{slow}", f"1500,{high},{fast}"
        lines += [f"s,{name},{x},1,x" for x in rows]
    notes = read_table(file("\n".join(lines))).notes
    assert "`host` is not read" in notes[0]
    assert "5 of 5 kernels lack rows" in notes[1]
    assert "2 of 5 kernels grows" in notes[2]
    assert "(s grows, s at auto)" in notes[2]


@pytest.mark.parametrize(("time", "remarks"), [(1.0399, 0), (1.0401, 1)])
def test_growth_is_remarked_on_from_4_percent(file, time: float, remarks: int):
    """Against the least time at any lower clock; the default clock is one of them."""
    rows = [f"s,a,{clock},{t},1" for clock, t in
            (("auto", 1.0), (1000, 1.02), (1200, 1.0), (1400, time))]  # fmt: skip
    text = "\n".join(["stage,instruction,frequency,time,energy", *rows])
    notes = read_table(file(text)).notes
    assert len(notes) == remarks
    many = [f"s,k{i},{clock},{t},1" for i in range(7) for clock, t in
            (("auto", 1.0), (1000, 1.0), (1400, 1.05))]  # fmt: skip
    (note,) = read_table(file("\n".join([text.splitlines()[0], *many]))).notes
    assert "7 of 7 kernels" in note and "s k4 and 2 more" in note
    assert "4 %" in note


CELLS = st.sampled_from(
    ["auto", "Auto ", "1410", "1395", "9501", "a", "b", "0.1", "1", "24", "1e400"]
    + ["0", "-1", "nan", "inf", "", '"', "1.41e9", "٣", "\x00", "1,5", "x" * 200]
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    rows=st.lists(st.lists(CELLS, min_size=7, max_size=7), max_size=6), data=st.data()
)
def test_whatever_is_in_a_table(file, rows, data):
    """A problem or `ValueError`; good rows first, so that some of it is read."""
    header, *good = PAIRS.splitlines()
    remaining = data.draw(st.integers(0, len(good)))
    text = "\n".join([header, *good[:remaining], *(",".join(row) for row in rows)])
    try:
        problem = read_table(file(text)).problem
    except ValueError:
        pass
    else:
        assert not any("\n" in name for name in problem.kernels)
        assert np.isfinite(problem.default_time).all()
        assert len(problem.sequence()) == problem.count.sum()
