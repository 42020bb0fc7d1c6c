"""A server in balance, of made-up costs: by hand and by a chain."""

import math

import numpy as np
import pytest

from .builders import ADDED, CLOCKS, ENGINE, IDLE, Case, balance, by_hand

SERVERS = {
    "few prompts": (Case(), 40.0),
    "many prompts": (Case(prompt=60.0, output=8), 100.0),
    "sorted at once": (Case(), 200.0),
    "some run as a graph": (Case(graph=512.0), 40.0),
    "all run as a graph": (Case(graph=2048.0), 40.0),
    "chunks end before prompts": (Case(prompt=1024.0, chunk=512.0), 100.0),
    "tokens are drafted": (Case(drafted=3, accept=0.7), 20.0),
    "drafted in chunks": (Case(drafted=1, accept=0.9, chunk=64.0), 200.0),
    "prompts first": (Case(first=1.0, output="lognormal:100:1"), 64.0),
}


def to_first(case: Case, slots: float, wait: float = 0.0, phi: float = 0.0) -> float:
    """Mean time to the first token (s): half a step until the next one, the steps that
    read the prompt, half of the others that enter with it, and a slot's wait for its
    turn to read; of a first wave all prompts are read one after the other."""
    fit = min(slots, case.chunk / case.prompt)
    x = by_hand(case, slots, 1 - phi * (1 + fit / slots) / 2)
    own = (1 - case.first) * x.decode + x.mixing + x.added
    own += (x.pieces - 1) * x.decode
    queued = (slots - x.decoding) * x.time / x.entering
    before = max(x.entering - 1, 0.0) * x.added / 2 + queued
    burst = (slots / 2 + fit / 2) * x.added + x.decode
    later = x.time / 2 + own + before
    return (1 - phi) * later + phi * burst + ENGINE["request"] + wait * (1 - phi / 2)


@pytest.mark.parametrize("name", SERVERS)
def test_a_saturated_server(name: str):
    case, slots = SERVERS[name]
    result, x = balance(case, "saturated", slots=slots), by_hand(case, slots)
    tokens = x.decoding * case.tokens
    flow, rows = tokens / x.time, x.decoding * (1 + case.drafted)
    expected = {
        "step": x.time, "decode": x.decode, "flow": flow, "saturation": flow,
        "power": x.energy / x.time, "energy": x.energy / tokens,
        "running": x.decoding, "entering": x.entering, "mixed": x.mixed,
        "clock": CLOCKS[-1], "sampling": 1e-5 * rows, "load": 1.0,
        "prefill": x.time - x.decode,
    }  # fmt: skip
    if rows >= 128:
        expected["sampling"] = 3e-4 + 2e-5 * rows
    for key, value in expected.items():
        assert getattr(result, key) == pytest.approx(value, rel=1e-9), key
    assert result.parts.sum() + result.sampling + result.host == pytest.approx(x.decode)
    assert result.tpot.mean == pytest.approx(x.time / case.tokens)
    assert result.itl.mean == pytest.approx(x.time / case.tokens, rel=0.01)
    assert (result.itl.quantiles[0] == 0) == (case.tokens > 2)  # tokens at once
    assert result.ttft.mean == pytest.approx(to_first(case, slots), rel=1e-9)
    assert result.feasible and math.isnan(result.waiting)


@pytest.mark.parametrize("clients", [0.25, 1.0, 2.0, 10.0, 24.0])
def test_a_closed_loop(clients: float):
    """16 slots: more clients wait, less than one leave the board idle. HTTP and
    tokeniser have a client for 5 ms of each request."""
    case = Case()

    def away(number: float) -> float:
        return ENGINE["request"] * number / (100 * by_hand(case, max(number, 1.0)).time)

    low, running = 0.0, min(clients, 16.0)
    if running + away(running) > clients:  # between 0 and all, by halving
        for _ in range(60):
            middle = (low + running) / 2
            beyond = middle + away(middle) > clients
            low, running = (low, middle) if beyond else (middle, running)
    assert clients - running >= away(running) * (1 - 1e-9) > 0
    slots, busy = max(running, 1.0), min(running, 1.0)
    result = balance(case, "closed", slots=16.0, clients=clients)
    x = by_hand(case, slots)
    waiting = clients - running - away(running)
    assert result.waiting == pytest.approx(waiting, abs=1e-9)
    assert result.running == pytest.approx(running)
    power = busy * x.energy / x.time + (1 - busy) * IDLE
    assert result.power == pytest.approx(power)
    assert result.flow == pytest.approx(busy * slots / x.time)
    assert result.energy == pytest.approx(power / (busy * slots / x.time))
    wait = waiting * x.time / slots * 100  # Little: waiting over requests a second
    # of a client alone, or while all others are away, only its prompt is read
    idle = (away(running) / clients) ** max(clients - 1, 0.0)
    alone = ENGINE["request"] + max(case.launches, ADDED * case.prompt)
    first = idle * alone + (1 - idle) * to_first(case, slots, 0.0) + wait
    assert result.ttft.mean == pytest.approx(first, rel=1e-9)
    # and nothing between its tokens
    whole = result.ttft.mean + 99 * (x.time - idle * (x.time - x.decode))
    assert result.e2e.mean == pytest.approx(whole, rel=1e-6)


def test_the_first_wave_of_a_benchmark_reads_all_prompts_at_once():
    case = Case()
    for phi in (1.0, 0.25):
        result = balance(case, "closed", slots=16.0, clients=24.0, phi=phi)
        x = by_hand(case, 16.0, 1 - phi)  # all 16 prompts fit a chunk
        assert result.step == pytest.approx(x.time)
        away = ENGINE["request"] * 16 / (x.time * 100)
        first = to_first(case, 16.0, (8 - away) * x.time / 16 * 100, phi)
        assert result.ttft.mean == pytest.approx(first, rel=1e-9)


def chain(case: Case, rate: float, slots: int) -> dict[str, float]:
    """Birth and death of requests, 4,000 states one by one."""
    steps = [by_hand(case, min(n, slots)) for n in range(1, 4001)]
    flow = np.array([x.decoding / x.time for x in steps])
    logs = np.cumsum(np.log(rate * 100 / flow))
    p = np.exp(np.append(0.0, logs) - max(logs.max(), 0.0))
    p /= p.sum()
    numbers = np.arange(1, 4001)
    power = np.array([x.energy / x.time for x in steps])
    running, generated = p[1:] @ np.minimum(numbers, slots), p[1:] @ flow
    return {
        "running": running,
        "waiting": p[1:] @ np.maximum(numbers - slots, 0) / 2,  # of equal outputs
        "flow": generated,
        "power": p[1:] @ power + p[0] * IDLE,
        "energy": (p[1:] @ power + p[0] * IDLE) / generated,
        "load": rate * 100 / flow[slots - 1],
    }


@pytest.mark.parametrize("rate, slots", [(1e-6, 32), (8.0, 32), (20.0, 32), (7.0, 8)])
def test_an_open_loop_is_a_chain(rate: float, slots: int):
    case = Case()
    result = balance(case, "open", slots=float(slots), rate=rate)
    expected = chain(case, rate, slots)
    assert expected["flow"] == pytest.approx(100 * rate)
    for key, value in expected.items():
        assert getattr(result, key) == pytest.approx(value, rel=1e-6, abs=1e-12), key
    assert result.tpot.mean == pytest.approx(expected["running"] / (100 * rate))
    if rate < 0.1:  # a request alone reads and begins
        read = max(ADDED * 400, case.launches) + ENGINE["request"]
        assert result.ttft.mean == pytest.approx(read, rel=1e-4)


def test_a_limit_of_power_lowers_the_clock():
    """Steps without a prompt draw less: below their power both kinds are held."""
    case, plain = Case(core=1.0), by_hand(Case(), 40.0, share=0.0)
    free = balance(case, "saturated", slots=40.0)
    lowest = balance(case._replace(cap=1.0), "saturated", slots=40.0)
    assert not lowest.feasible and lowest.clock == pytest.approx(1e9)
    assert free.lowest == lowest.lowest < free.power
    before = lowest.flow
    for cap in np.linspace(1.01 * lowest.lowest, plain.energy / plain.time, 4):
        result = balance(case._replace(cap=cap), "saturated", slots=40.0)
        assert result.power == pytest.approx(cap, rel=1e-9)
        assert result.flow > before and 1e9 < result.clock < 2e9
        before = result.flow
    assert free.flow > before
