"""The best plan: against estimates of single plans, against all plans priced one by
one, and under limits."""

import dataclasses
import random
from functools import partial
from typing import Any

import equinox as eqx
import numpy as np
import pytest

from diffenergy import estimate, parallel
from diffenergy.corrections import read_corrections
from diffenergy.estimator import prepare, settings
from diffenergy.hardware import read_gpu
from diffenergy.parallel._pieces import Maker, key_of, price
from diffenergy.parallel._pricing import Pricing, price_plans
from diffenergy.parallel._ranking import Ranked, ranked
from diffenergy.parallel._search import _undominated, point_at
from diffenergy.parallel._space import Space
from diffenergy.plans import Plan, host_of
from diffenergy.results import Infeasible
from diffenergy.workload import load_model

SMALL = [
    ("gpt2", "h100-sxm", 2, 2, 256),
    ("gpt2", "h100-sxm", 5, 10, 256),  # a pipeline as odd as its host is even
    ("qwen3-0.6b", "b200-sxm", 3, 3, 2048),
    ("llama-3.1-8b", "h100-sxm", 4, 2, 2048),
    ("llama-3.1-8b", "gb200", 6, 3, 1024),
    ("mixtral-8x7b", "gb200", 8, 1, 1024),
    ("gpt2", "a100-sxm-40gb", 2, 4, 512),
    ("gpt2-medium", "h100-sxm", 2, 2, 1024),
    ("gpt2-xl", "a100-sxm-80gb", 2, 4, 512),
    ("gpt2-xl", "h200-sxm", 4, 2, 256),
    ("qwen3-0.6b", "a40", 4, 2, 512),
]
"""(model, GPU, GPUs, sequences of a step, tokens of each)."""


def test_the_frontier_is_that_of_all_pairs():
    numbers = np.random.default_rng(0)
    for columns in (1, 2, 3):
        table = numbers.integers(1, 9, (columns, 300)).astype(float)
        size = numbers.integers(5, 9, 300).astype(float)
        no_worse = (table[:, None] <= table[:, :, None]).all(axis=0)
        better = (table[:, None] < table[:, :, None]).any(axis=0)
        beaten = no_worse & (better | (size < size[:, None]))
        assert (_undominated(size, *table) == ~beaten.any(axis=1)).all()


def space_of(
    model: str, gpu: str, number: int, batch: int, length: int, **fixed: Any
) -> Space:
    card = read_gpu(gpu)
    loaded: Any = load_model(model)
    return Space(loaded, card, host_of(card), (number,), batch, length, fixed, {})


def figures(space: Space, plans: list[Plan]) -> tuple[Ranked, Pricing]:
    """What the ranking says of plans, and each plan's own figures, at the highest
    clock."""
    setting = settings(space.card)[0][0]
    gpu = space.card.served(read_corrections(None))
    point = point_at(setting, setting.sm_clock)
    maker = Maker(space)
    built = {key: maker.pieces(key) for key in dict.fromkeys(map(key_of, plans))}
    (pieces,), like = price(maker, built, gpu, [point])
    about = ranked(maker, pieces, plans, gpu.corrections)
    clocks = np.full((len(plans), 1), setting.sm_clock)
    return about, price_plans(space, plans, clocks, gpu, point, like, about.shape)


def legal(space: Space) -> list[Plan]:
    """Plans that the model can be divided into, with GPipe beside what is searched."""
    pipes = dataclasses.replace(space, fixed={**space.fixed, "schedule": "gpipe"})
    result, maker, known = [], Maker(space), {}
    for plan in [*space.plans(), *pipes.plans()]:
        key = key_of(plan)
        if key not in known:
            try:
                known[key] = bool(maker.pieces(key))
            except ValueError:
                known[key] = False
        if known[key]:
            result.append(plan)
    return result


@pytest.mark.slow
def test_figures_are_those_of_estimates():
    """Of any plan: exact ones to rounding, ranked ones within 8 %, memory exactly."""
    case = ("gpt2-xl", "h100-sxm", 16, 32, 512)
    space = space_of(*case)
    plans = random.Random(3).sample(legal(space), 3)
    about, each = figures(space, plans)
    for i, plan in enumerate(plans):
        single = estimate(
            "gpt2-xl", "h100-sxm", phase="train", plan=plan, global_batch=32,
            input_len=512,
        ).summary  # fmt: skip
        for name, key in (("time", "time_s"), ("energy", "energy_j")):
            exactly, nearly = getattr(each, name)[i, 0], getattr(about, name)[i]
            assert exactly == pytest.approx(single[key], rel=1e-5), plan.text
            assert nearly == pytest.approx(single[key], rel=0.08), plan.text
        memory = single["memory_per_gpu_bytes"]
        assert about.memory[i] == pytest.approx(memory, rel=1e-9), plan.text


def compared(case: tuple[str, str, int, int, int], objective: Any):
    """The plan found, and the least of all plans priced one by one."""
    model, gpu, number, batch, length = case
    sizes: dict[str, Any] = dict(global_batch=batch, input_len=length)
    result = parallel.plan(model, gpu, num_gpus=number, objective=objective, **sizes)
    space = space_of(*case)
    capacity = space.card.values["dram_capacity"]
    plans = legal(space)
    about, each = figures(space, plans)
    for i in range(0, len(plans), max(1, len(plans) // 4)):  # exactly that of a plan
        single = prepare(model, gpu, phase="train", plan=plans[i], **sizes).memory
        assert about.memory[i] == pytest.approx(single["total"], rel=1e-9), plans[i]
    fits = about.memory <= capacity
    time, energy = each.time[fits, 0], each.energy[fits, 0]
    memory = about.memory[fits]
    least = {"time": time, "energy": energy}[objective].min()
    assert getattr(result.outcome.best, objective) == pytest.approx(least, rel=1e-6)
    best = result.summary["best"]  # the estimate of the plan
    assert best["time_s"] == pytest.approx(result.outcome.best.time, rel=1e-9)
    assert best["energy_j"] == pytest.approx(result.outcome.best.energy, rel=1e-9)
    searched = np.array([plan.schedule != "gpipe" for plan in plans])
    assert result.summary["considered"] == searched.sum()
    assert result.summary["fitting"] == (searched & fits).sum()
    for name in ("time", "energy"):  # the ranking, of any plan
        wrong = np.abs(getattr(about, name) / getattr(each, name)[:, 0] - 1)
        assert wrong.max() < 0.1 and np.median(wrong) < 0.045
    second = result.outcome.second
    values = np.sort(getattr(each, objective)[searched & fits, 0])
    following = values[values > (1 + 1e-9) * least][0]
    assert getattr(second, objective) == pytest.approx(following, rel=1e-6)
    first = plans.index(result.outcome.best.plan)
    for x in result.outcome.frontier:  # nothing beats it by more than ranks are wrong
        for name in ("time", "energy"):  # a rank is scaled by its error on the best
            exactly, rank = getattr(each, name)[:, 0], getattr(about, name)
            of_plan = exactly if x.exact else rank * exactly[first] / rank[first]
            value = of_plan[plans.index(x.plan)]
            assert getattr(x, name) == pytest.approx(value, rel=2e-3)
        better = (time < 0.92 * x.time) & (energy < 0.92 * x.energy)
        assert not (better & (memory < 0.92 * x.memory)).any(), x.plan.text


@pytest.mark.parametrize(
    "case",
    [
        *SMALL[:2],
        *(pytest.param(x, marks=pytest.mark.slow) for x in SMALL[2:5]),
        *(
            pytest.param(x, marks=[pytest.mark.slow, pytest.mark.long])
            for x in SMALL[5:]
        ),
    ],
    ids=lambda x: f"{x[0]}@{x[2]}x{x[1]}",
)
def test_nothing_is_better(case: tuple[str, str, int, int, int]):
    compared(case, "energy" if case[2] == 2 else "time")


def test_ranks_of_two_hosts_are_close():
    """Small tensors, whose time between hosts is latency: 3 % of a step."""
    plans = [
        Plan(tp=2, pp=4, dp=2, microbatch=4, schedule=x) for x in ("1f1b", "zb-h1")
    ]
    about, each = figures(space_of("gpt2", "h100-sxm", 16, 16, 256), plans)
    for name in ("time", "energy"):
        ranked_figures, exactly = getattr(about, name), getattr(each, name)[:, 0]
        assert ranked_figures == pytest.approx(exactly, rel=0.02), name


SIZES: dict[str, Any] = dict(global_batch=16, input_len=256)
REQUEST: dict[str, Any] = dict(num_gpus=8) | SIZES
medium = partial(parallel.plan, "gpt2-medium", "h100-sxm")


def step(plan: str, **more: Any) -> dict[str, Any]:
    """The estimate of one plan of `medium`."""
    options: dict[str, Any] = dict(phase="train", plan=plan) | SIZES | more
    return estimate("gpt2-medium", "h100-sxm", **options).summary


@pytest.fixture(scope="module")
def result():
    return medium(**REQUEST)


@pytest.mark.slow
def test_the_order_is_as_wrong_as_the_answer_says(result):
    """Of plans that it did not price, by their own estimates: none is better than the
    best by more than the error of the ranking leaves."""
    s = result.summary
    assert s["priced"] == 12 < s["fitting"]
    others = [x for x in s["frontier"] if not x["exact"]][:2]
    assert others
    for x in others:
        own = step(x["plan"])
        assert own["time_s"] > s["best"]["time_s"]
        assert x["step_time_s"] >= (1 + s["next_behind"]) * s["best"]["time_s"]
        for key, name in (("time_s", "step_time_s"), ("energy_j", "energy_j")):
            assert x[name] == pytest.approx(own[key], rel=0.08)


@pytest.mark.slow
def test_what_is_held_stays(result):
    fixed = "tp=2,zero=3,sequence=off"
    fixed_plan = medium(plan=fixed, **REQUEST)
    own = fixed_plan.summary["best"]["plan"]
    assert (own["tp"], own["zero"], own["sequence"]) == (2, 3, "off")
    # pieces are priced with whole streams, too
    assert fixed_plan.summary["ranking_error"] < 0.03
    assert fixed_plan.outcome.best.time >= result.outcome.best.time
    assert fixed_plan.summary["considered"] < result.summary["considered"]


@pytest.mark.slow
def test_a_limit_of_power_lowers_the_clock(result):
    """Kept, as near as a step of the clock allows, by the figures of `estimate`."""
    limit = 0.8 * result.summary["best"]["power_total_w"]
    own = result.summary["plan"]
    s = medium(plan=own, max_power=limit, **REQUEST).summary
    assert s["sm_clock_mhz"] < s["highest_sm_clock_mhz"]
    assert 0.9 * limit < s["best"]["power_total_w"] <= limit
    assert s["best"]["time_s"] > result.summary["best"]["time_s"]
    again = step(s["plan"], sm_clock=s["sm_clock_mhz"] * 1e6)
    assert again["power_total_w"] == pytest.approx(s["best"]["power_total_w"])


@pytest.mark.slow
def test_the_frontier_keeps_a_limit_of_power():
    """Plans behind the priced ones, too: half of this frontier is of them."""
    request: dict[str, Any] = dict(num_gpus=8, global_batch=8, max_power=700.0)
    outcome = parallel.plan("gpt2", "h100-sxm", **request).outcome
    assert not all(x.exact for x in outcome.frontier)
    assert max(x.power for x in outcome.frontier) <= 700 * (1 + 1e-9)


@pytest.mark.slow
def test_the_least_that_keeps_a_limit_is_said():
    """Of memory and of power; a little more than it suffices."""
    for name, size in {"max_memory": 1e8, "max_power": 10.0}.items():
        request: dict[str, Any] = REQUEST | {name: size}
        with pytest.raises(Infeasible, match=rf"`{name}`.*least is") as refused:
            medium(**request)
        least = refused.value.least[name]
        request[name] = least * (1 + 1e-3)
        best = medium(**request).outcome.best
        own = {"max_memory": best.memory, "max_power": best.power}[name]
        assert own <= least * (1 + 1e-3)


@pytest.mark.slow
def test_slopes_are_those_of_differences():
    """By the network card, links, DRAM and clock, of time and energy, to 1e-4."""
    fields = ("network", "link_bandwidth", "dram_bandwidth", "sm_clock")
    sizes: dict[str, Any] = dict(num_gpus=16, global_batch=32, input_len=512)
    result = medium(sm_clock=1.2e9, plan="tp=2,pp=2", sensitivity=fields, **sizes)
    table = result.summary["sensitivities"]
    card = read_gpu("h100-sxm")
    gpu = dataclasses.replace(
        card.served(read_corrections(None)), link_bandwidth=host_of(card).rate
    )
    point = point_at(settings(card, [1.2e9])[0][0], 1.2e9)

    def at(name: str, factor: float) -> np.ndarray:
        work, board, where = result.step, gpu, point
        if name == "network":
            moved = work.steps.network * factor
            work = eqx.tree_at(lambda s: s.steps.network, work, moved)
        elif name == "sm_clock":
            where = point_at(settings(card, [1.2e9])[0][0], 1.2e9 * factor)
        else:
            value = getattr(gpu, name) * factor
            board = dataclasses.replace(gpu, **{name: value})
        own = estimate(work, board, where)
        return np.array([float(own.time), float(own.energy)])

    h = 1e-4
    for name in fields:
        slope = (at(name, 1 + h) - at(name, 1 - h)) / (2 * h) / at(name, 1.0)
        computed = [table[x][name]["per_percent"] for x in ("step_time_s", "energy_j")]
        assert np.allclose(computed, slope, atol=1e-4), (name, computed, slope)
