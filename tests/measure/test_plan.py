"""Plans: what comes first, what it takes, and that a seed settles it."""

import math

import pytest

from diffenergy.hardware import read_gpu
from diffenergy.measure._plan import (
    PlanOptions,
    auto_clocks,
    board_of,
    make_plan,
    unknown_board,
    within,
)
from diffenergy.measure._record import point_cells
from diffenergy.measure._shapes import (
    CLASSES,
    copies,
    footprint,
    gemm,
    operands,
    stream,
)
from diffenergy.measure._table import KERNEL_COLUMNS, key
from diffenergy.workload import normalise_kernel

KINDS = ("titan-xp", "v100-sxm-32gb", "t4", "a10", "l4", "h200-sxm", "b200-sxm")
H100 = board_of(read_gpu("h100-sxm"))
SWEPT = PlanOptions(clocks=auto_clocks(H100.clocks))


@pytest.mark.parametrize("options", [PlanOptions(), SWEPT])
def test_200_points_fit_into_20_minutes_and_begin_with_every_class(options):
    plan = make_plan(H100, options)
    assert {point.kind for point in plan[:14]} == set(CLASSES)
    assert len(plan) == 200 and len(within(plan, 1200.0)) == 200
    assert all(point.seconds >= 1.5 + 2 for point in plan)
    assert len(within(make_plan(H100, PlanOptions()), 60.0)) < 14


def test_the_references_are_swept_first():
    plan = make_plan(H100, SWEPT)
    swept = [point for point in plan if point.clock is not None]
    assert len(swept) == 8 * 3 * 2 and plan.index(swept[-1]) == 6 + 8 + 48 - 1
    assert {point.kind for point in swept} == {"tensor", "dram", "l2"}
    for cold, warm in zip(swept[::2], swept[1::2], strict=True):
        assert (cold.start, warm.start) == ("cold", "warm")
        assert cold.kernel == warm.kernel and cold.clock == warm.clock
    assert all(point.clock is None for point in plan[:6])
    top, bottom = swept[0].clock, swept[6].clock
    assert top == max(H100.clocks) and bottom == min(SWEPT.clocks)
    by_kind = {point.kind: point for point in swept}
    assert footprint(by_kind["dram"].kernel) > 2e9
    assert footprint(by_kind["l2"].kernel) < H100.l2 / 3
    assert (by_kind["l2"].resident, by_kind["dram"].resident) == (True, False)


def test_without_clocks_references_are_repeated_and_limits_swept():
    plan = make_plan(H100, PlanOptions())
    repeated = [p for p in plan if p.repeat == 2 or p.start == "cold"]
    assert {p.kind for p in repeated} == {"tensor", "dram", "l2"}
    limited = make_plan(H100, PlanOptions(limits=(300.0, 500.0)))
    assert len([p for p in limited if p.limit]) == 2 * 3 * 2


def test_a_seed_settles_the_plan():
    three = make_plan(H100, PlanOptions(seed=3))
    assert three == make_plan(H100, PlanOptions(seed=3))
    assert three != make_plan(H100, PlanOptions(seed=4))
    assert make_plan(H100, PlanOptions(seed=3, points=300))[:200] == three


def test_classes_are_chosen():
    plan = make_plan(H100, PlanOptions(only=("decode", "gemm"), points=10))
    assert [point.kind for point in plan[:4]] == ["gemm", "decode"] * 2
    assert len(make_plan(H100, PlanOptions(only=("launch",)))) == 4


@pytest.mark.parametrize("name", KINDS)
def test_points_are_distinct_listing_rows_that_fit(name):
    board = board_of(read_gpu(name))
    plan = make_plan(board, PlanOptions(points=200))
    assert len({key(point_cells(point, name)) for point in plan}) == len(plan) == 200
    for point in plan:
        normalise_kernel(point.kernel, name)
        assert set(point.kernel) <= set(KERNEL_COLUMNS)
        assert footprint(point.kernel) <= board.memory
        sets = point.copies * footprint(point.kernel)
        assert point.copies == 1 if point.resident else sets >= 2 * board.l2
        tensor = point.kernel["op"] == "gemm" and point.kernel["dtype"] != "fp32"
        if point.kind == "tensor" and tensor:
            assert point.kernel["dtype"] in board.dtypes


def test_boards_without_tensor_cores_and_unknown_ones_have_a_plan():
    board = board_of(read_gpu("titan-xp"))
    assert board.dtypes == ()
    plan = make_plan(board, PlanOptions(clocks=(1e9,)))
    assert {point.kind for point in plan[:6]} == {"fma", "dram", "l2"}
    assert "tensor" not in {point.kind for point in plan}
    assert len(make_plan(unknown_board("new", 16e9, 50e6), PlanOptions())) == 200


@pytest.mark.parametrize(
    "kernel, size, sets",
    [
        (gemm(1024, 1024, 1024, "bf16"), 6 * 2**20, 17),
        (gemm(64, 64, 64, "fp8", 1), 4 * 64 * 64, 512),
        (stream("add", 2**20, "fp32"), 12 * 2**20, 9),
        (stream("copy", 2**30, "bf16"), 2**32, 1),
    ],
)
def test_sets_fill_the_l2_twice(kernel, size, sets):
    assert footprint(kernel) == size
    assert H100.l2 == 50 * 2**20
    assert copies(kernel, H100, False) == sets and copies(kernel, H100, True) == 1


def test_chains_keep_their_values_in_registers():
    sfu = [p.kernel for p in make_plan(H100, PlanOptions(only=("sfu",)))]
    for kernel in sfu:
        (read,), written = operands(kernel)
        assert math.prod(written[0]) == kernel["elements"] * kernel["writes"]
        assert read == written and kernel["fn"] == "exp"
    assert max(k["elements"] for k in sfu) == 256 * 2**24
