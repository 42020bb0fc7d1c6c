"""Law against publication: frontier, strict optima, kind of clock choice, RTX A4000."""

import dataclasses
from typing import Final, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from diffenergy.dvfs import Problem, Rules, frontier, solve
from diffenergy.dvfs._problem import default_total
from diffenergy.dvfs._solve import STRICT
from diffenergy.fitting._clock_law import ClockLaw
from diffenergy.fitting._clock_law import law_table as costs_of
from diffenergy.hardware import read_gpu
from diffenergy.units import GHz, MHz
from diffenergy.workload import loops_of

from .campaigns import SETTINGS, SM_CLOCKS, Study, clocks, core_limit
from .joined import with_gpu

ORDER: Final = np.roll(np.arange(len(SETTINGS)), 1)
"""Settings with the default first, as a `Problem` has them."""
TOLERANCES: Final = np.linspace(0.0, 10.0, 101)
"""Slowdowns at which frontiers are compared, %."""
NOISE: Final = (3e-4, 0.01)
"""Error of ln time and ln energy of one reading of the study."""
DRAWS: Final = 12
_A4000: Final = "rtx-a4000"
_A4000_MEM: Final = (405.0, 810.0, 5001.0, 6501.0, 7001.0, np.nan)
_BUS: Final = 256 / 384
_BOARD: Final = 0.5
"""Constant power of the smaller board without memory / that of the RTX 3080 Ti."""
_AREA: Final = 392.5 / 628.4
_LOW_MEM: Final = 9 * GHz
_LOW_SM: Final = 1.8 * GHz
KIND_WORDS: Final = ("low memory clock", "low core clock", "neither")


class Table(NamedTuple):
    """Costs of the kernels at `settings`, the default first."""

    settings: Float[np.ndarray, "setting 2"]
    time: Float[np.ndarray, "kernel setting"]  # s
    energy: Float[np.ndarray, "kernel setting"]  # J


def law_table(law: ClockLaw, settings: Float[np.ndarray, "setting 2"]) -> Table:
    """Costs that `law` expects; `settings` end with the default."""
    time, energy = costs_of(law, settings, core_limit(settings))
    return Table(settings[ORDER], time[:, ORDER], energy[:, ORDER])


def problem(study: Study, t: Table) -> Problem:
    """Planning problem of an iteration."""
    stages = ("forward", "backward")
    return Problem(
        kernels=tuple(f"{i} {name}" for i, name in enumerate(study.best.name)),
        stages=stages,
        stage=np.where(study.forward, 0, 1),
        count=study.counts,
        settings=t.settings,
        time=t.time,
        energy=t.energy,
        default_time=t.time[:, 0],
        default_energy=t.energy[:, 0],
        loops=tuple(loops_of(study.counts.astype(int).tolist())),
        power_cap=np.full(len(stages), np.inf),
        host_time=np.zeros(len(stages)),
        wait_power=np.zeros(len(stages)),
    )


def global_frontier(p: Problem) -> Float[np.ndarray, " tolerance"]:
    """Least energy (hull bound) within each of `TOLERANCES`, % of the default."""
    schedules = frontier(p, TOLERANCES)
    return 100 * (schedules.bound / float(default_total(p).energy) - 1)


def local_strict(p: Problem) -> float:
    """Least energy where every kernel keeps its time, % of the default."""
    plan = solve(p, STRICT, Rules(aggregation="local"))
    return 100 * (plan.energy / float(default_total(p).energy) - 1)


def kinds_of_clocks(settings: Float[np.ndarray, "row 2"]) -> Int[np.ndarray, " row"]:
    """Index in `KIND_WORDS` of (SM clock, memory clock) pairs, Hz."""
    sm, mem = np.nan_to_num(settings, nan=np.inf).T
    return np.where(mem < _LOW_MEM, 0, np.where(sm < _LOW_SM, 1, 2))


def kinds_at_strict(study: Study, p: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Kind of clock of every kernel in the global strict optimum: ours, published."""
    plan = solve(p, STRICT)
    chosen = np.zeros(len(p.kernels), int)
    chosen[plan.kernel] = plan.setting
    best = study.best
    printed = np.stack([clocks(best.core_mhz), clocks(best.mem_mhz)], 1)
    return kinds_of_clocks(p.settings[chosen]), kinds_of_clocks(printed)


def as_measured(t: Table, seed: int) -> Table:
    """Table as the study would have read it: with the error of one reading a cell."""
    rng = np.random.default_rng(seed)
    time, energy = (
        x * np.exp(sd * rng.standard_normal(x.shape))
        for x, sd in zip((t.time, t.energy), NOISE, strict=True)
    )
    return Table(t.settings, time, energy)


def on_a4000(law: ClockLaw) -> ClockLaw:
    """The same kernels on an RTX A4000, from data-sheet ratios alone: SMs, DRAM rate,
    bus width, die area, power limit. Its board takes half the constant power."""
    small, gpu = read_gpu(_A4000).values, law.gpu
    sms = small["num_sms"] / gpu.num_sms
    rate = small["dram_bandwidth"] / gpu.dram_bandwidth
    slower = small["mem_clock"] / gpu.mem_clock
    memory = gpu.idle_constant * law.corrections.memory_idle
    background = memory * _BUS * slower
    constant = background + _BOARD * (gpu.idle_constant - memory)
    kernels = dataclasses.replace(
        law.kernels,
        path_cycles=law.kernels.path_cycles / sms,
        ctas=jnp.full_like(law.kernels.ctas, small["num_sms"]),
        flow=law.kernels.flow * rate / sms,
    )
    board = dict(
        num_sms=gpu.num_sms * sms,
        dram_bandwidth=gpu.dram_bandwidth * rate,
        mem_clock=gpu.mem_clock * slower,
        idle_constant=constant,
        idle_clock=gpu.idle_clock * sms,
        idle_leakage=gpu.idle_leakage * _AREA,
    )
    shares = dataclasses.replace(law.corrections, memory_idle=background / constant)
    return dataclasses.replace(
        with_gpu(law, **board),
        kernels=kernels,
        corrections=shares,
        power_cap=jnp.asarray(small["tdp"]),
    )


def a4000_settings() -> Float[np.ndarray, "setting 2"]:
    """Settings assumed for the RTX A4000; the study does not print them."""
    return np.array([(sm, mem) for mem in _A4000_MEM for sm in SM_CLOCKS]) * MHz


def bookkeeping(study: Study) -> tuple[float, float]:
    """(time, energy) of Table 1 x Figure 5 x repeats against default clocks, %."""
    totals = []
    for word, unit in (("time", "s"), ("energy", "j")):
        read = study.kernels[f"{word}_auto_{unit}"].to_numpy() * study.counts
        change = study.best[f"{word}_change_pct"].to_numpy()
        totals.append(float(read @ change / read.sum()))
    return totals[0], totals[1]


class Scores(NamedTuple):
    """Scores of a fit, %; `_measured`: mean over tables with the error of readings."""

    frontier: Float[np.ndarray, " tolerance"]
    frontier_measured: Float[np.ndarray, " tolerance"]
    local: float
    local_measured: float
    kinds: Int[np.ndarray, " kernel"]
    printed_kinds: Int[np.ndarray, " kernel"]
    a4000: float
    largest: float


def score(study: Study, law: ClockLaw) -> Scores:
    """Scores against Table 1, Figure 6 and the A4000."""
    t = law_table(law, SETTINGS)
    p = problem(study, t)
    noisy = [problem(study, as_measured(t, seed)) for seed in range(DRAWS)]
    ours, printed = kinds_at_strict(study, p)
    small = problem(study, law_table(on_a4000(law), a4000_settings()))
    least = float(study.counts @ t.energy.min(1))
    return Scores(
        global_frontier(p),
        np.mean([global_frontier(x) for x in noisy], axis=0),
        local_strict(p),
        float(np.mean([local_strict(x) for x in noisy])),
        ours,
        printed,
        float(global_frontier(small)[0]),
        100 * (least / float(study.counts @ t.energy[:, 0]) - 1),
    )


def published_frontier(study: Study) -> Float[np.ndarray, " tolerance"]:
    """Figure 6, global, at `TOLERANCES`, %."""
    rows = study.frontier
    return np.interp(
        TOLERANCES, rows.tolerated_time_increase_pct, rows.energy_change_global_pct
    )
