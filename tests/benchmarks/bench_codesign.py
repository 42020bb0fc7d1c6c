"""Search by gradient against random search, Optuna's TPE and CMA-ES.

    pytest tests/benchmarks/bench_codesign.py -o python_files='bench_*.py' -o addopts=''

needs the extra `bench`.

An H100 that is to run one prefill of Llama 3.1 8B (2048 tokens) and ten decode steps
(batch 32 at a KV length of 2048) with the least energy x delay, on no more silicon
than the H100 has and at no more than 500 W on average: 13 numbers of the hardware with
given tiles, then with the five tile fields of ten matrix products, too. Ten seeds;
compilation is not timed. A gradient counts as three evaluations. All methods are
compared at as many evaluations as the search by gradient took, and after the same
time; TPE, whose own arithmetic takes most of its time, stops after `LONGEST` seconds
and is compared at the number of evaluations that it reached.

DOSA (MICRO 2023) reports 2.80 times better EDP than random search and 12.59 times than
Bayesian optimisation at equal samples, in a space of its own.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

import jax
import numpy as np
import pytest
from baselines import METHODS, Arena, Course, Watched

from diffenergy import load_model
from diffenergy.codesign import Effort, Range
from diffenergy.codesign._problem import exact
from diffenergy.codesign._problem.mixing import Listed, build
from diffenergy.codesign._problem.problem import Problem
from diffenergy.codesign._search import engine
from diffenergy.codesign._search.searching import search
from diffenergy.codesign._tiles.tiles import (
    gemm_rows,
    shapes_of,
    usual_tiles,
    with_tiles,
)
from diffenergy.hardware import read_gpu

SEEDS: Final = 10
STARTS, ROUNDS = 4, 6
LONGEST: Final = 15.0  # s
MARKS: Final = (300, 1000, 3000, 10000)
VARIED: Final = (
    "num_sms", "tensor_flop_per_cycle_bf16", "fma_flop_per_cycle_fp32",
    "registers_per_sm", "smem_per_sm", "smem_bytes_per_cycle", "sfu_ops_per_cycle",
    "issue_slots_per_cycle", "l2_capacity", "l2_bytes_per_cycle", "dram_bandwidth",
    "sm_clock", "power_cap",
)  # fmt: skip


@pytest.fixture(autouse=True)
def double_width() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def problem(tiles: bool) -> Problem:
    """The mix on what grows out of an H100; `tiles`: they are varied, too."""
    card, model = read_gpu("h100-sxm"), load_model("llama-3.1-8b")
    parts = []
    for phase, batch, weight in (("prefill", 1, 1.0), ("decode", 32, 10.0)):
        listings = [*model.listings(batch=batch, input_len=2048, phase=phase)]
        if not tiles:
            usual = usual_tiles(card.spec, shapes_of(gemm_rows(listings)))
            listings = with_tiles(listings, usual)
        parts.append(Listed(listings, weight, model.weight_bytes("bf16"), 0.0, phase))
    limits = {"area": 814.0, "power": 500.0}
    ranges = [Range(name) for name in VARIED]
    return build(parts, card, ranges, goals=("edp",), limits=limits, tiles=tiles)


def courses(space: Problem, seed: int) -> dict[str, Course]:
    """Every method once."""
    ours = Watched(space)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "run", ours)
        patch.setattr(engine, "run", ours)
        actual = search(space, Effort(STARTS, ROUNDS, seed))
    assert not actual.best.violation
    result: dict[str, Course] = {"gradient": ours}
    for name, method in METHODS.items():
        longest = LONGEST if name == "TPE" else math.inf
        arena = Arena(space, actual.evaluations, actual.wall, longest)
        method(arena, seed)
        result[name] = arena
    return result


@pytest.mark.parametrize("tiles", [False, True], ids=["hardware", "hardware and tiles"])
def test_gradients_pay(tiles: bool, capsys: pytest.CaptureFixture[str]):
    space = problem(tiles)
    search(space, Effort(STARTS, 1))  # compiles
    runs = [courses(space, seed) for seed in range(SEEDS)]
    ours = [run["gradient"] for run in runs]
    lines = [f"\n{len(space.axes)} axes, least energy x delay (J s), {SEEDS} seeds"]
    lines += _curves(runs)
    lost: list[str] = []
    for name in METHODS:
        others = [run[name] for run in runs]
        for what, spent, a, b in _equal(ours, others):
            lines.append(f"{name} at {np.median(spent):.4g} {what}: {_against(a, b)}")
            lost += [lines[-1]] * bool(np.median(a) >= np.median(b))
    with capsys.disabled():
        print("\n".join(lines))
    assert not lost


def _equal(
    ours: Sequence[Course], others: Sequence[Course]
) -> Iterator[tuple[str, list[float], np.ndarray, np.ndarray]]:
    """(Unit, how much of it, best objectives) at equal evaluations and equal time."""
    pairs = list(zip(ours, others, strict=True))
    counts = [
        float(min(a.marks[-1].evaluations, b.marks[-1].evaluations)) for a, b in pairs
    ]
    best = [(a.at(n), b.at(n)) for (a, b), n in zip(pairs, counts, strict=True)]
    yield "evaluations", counts, *np.array(best).T
    times = [a.marks[-1].seconds for a in ours]
    best = [(a.at(), b.at(seconds=a.marks[-1].seconds)) for a, b in pairs]
    yield "s", times, *np.array(best).T


def _curves(runs: Sequence[dict[str, Course]]) -> list[str]:
    """Median and spread of the best so far, by evaluations and at the end."""
    lines = [f"{'':>9}" + "".join(f"{n:>24}" for n in (*MARKS, "end"))]
    for name in runs[0]:
        cells = []
        for n in (*MARKS, math.inf):
            reached = [run[name].marks[-1].evaluations for run in runs]
            best = [run[name].at(n) for run in runs]
            far = math.isinf(n) or min(reached) >= n
            cells.append(f"{_spread(best) if far else '-':>24}")
        lines.append(f"{name:>9}" + "".join(cells))
    return lines


def _spread(best: Sequence[float]) -> str:
    return f"{np.median(best):.4g} ({min(best):.4g}..{max(best):.4g})"


def _against(ours: np.ndarray, other: np.ndarray) -> str:
    share = np.mean(ours < other)
    return (
        f"gradient {_spread(list(ours))}, other {_spread(list(other))}, ratio "
        f"{np.median(other) / np.median(ours):.4g}, gradient better in {share:.0%}"
    )
