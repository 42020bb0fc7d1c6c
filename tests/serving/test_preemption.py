"""Memory that ends: the simulator beside a plain loop of a scheduler like vLLM's."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffenergy.serving import Load, deploy
from diffenergy.serving._step import cost
from diffenergy.serving._trace.simulation import Requests, Sizes
from diffenergy.serving._trace.simulation import run_through as run

from . import builders
from .builders import Case

MODEL = "qwen3-0.6b"
BLOCK = 16
SLOTS, TURNS = 8, 2048


@pytest.fixture(scope="module")
def server():
    """A replica with at most 8 slots, prompts beside decoding."""
    result = deploy(MODEL, "h100-sxm", Load(max_batch=SLOTS, output_len=64), chunk=512)
    return result.server(result.costs())


def with_memory(server: Any, tokens: float) -> Any:
    """The same with room for so many tokens."""
    memory = server.memory
    of_token = float(memory.of_request(jnp.asarray(1.0)))
    aside = memory.fraction * memory.capacity - memory.weights - tokens * of_token
    return eqx.tree_at(lambda x: x.memory.aside, server, aside)


@dataclasses.dataclass
class One:
    """A request in the plain loop."""

    arrival: float
    prompt: int
    output: int
    generated: int = 0
    context: int = 0
    unread: int = 0
    first: float = math.nan
    last: float = math.nan


def plain(server: Any, requests: list[One], tokens: int, limit: int) -> dict[str, Any]:
    """One request after the other, as a scheduler like vLLM's does."""
    costs, engine = server.costs, server.engine

    @jax.jit
    def decode(b, c):
        x = cost.decode(costs, engine, b, c, server.vocab)
        return x.time[-1], jnp.sum(x.parts[-1])

    @jax.jit
    def reads(b, p):
        weights = cost.prompt_weights(costs, p)
        return cost.prompts(costs, engine, b, weights, server.first).time[-1]

    blocks = tokens // BLOCK
    waiting, running, now, dropped = list(requests), [], 0.0, 0

    def bytes_of(x: One, more: int) -> int:
        return -(-(x.context + x.unread + more) // BLOCK)

    def used() -> int:
        return sum(bytes_of(x, x.unread == 0) for x in running)

    while waiting or running:
        if not running and waiting[0].arrival > now:
            now = waiting[0].arrival
        preempted = False
        while len(running) > 1 and used() > blocks:
            lost = running.pop()
            lost.context = lost.unread = 0
            waiting.insert(0, lost)
            dropped, preempted = dropped + 1, True
        while not preempted and waiting and len(running) < limit:
            new = waiting[0]
            need = -(-(new.prompt + new.generated) // BLOCK)
            if new.arrival > now or (running and used() + need > blocks):
                break
            new.unread = new.prompt + new.generated
            running.append(waiting.pop(0))
        decoding = [x for x in running if not x.unread]
        reading = [x for x in running if x.unread]
        b, time, kernels = len(decoding), 0.0, 0.0
        if b:
            mean = sum(x.context for x in decoding) / b
            of = jnp.asarray(float(b)), jnp.asarray(mean)
            time, kernels = map(float, decode(*of))
        budget, ready = float(server.chunk) - b, list(decoding)
        for x in reading:
            share = int(min(x.unread, budget))
            budget -= share
            whole = float(x.context + x.unread)
            one = float(reads(jnp.asarray(float(b)), jnp.asarray(whole)))
            time += share / whole * one
            kernels += share / whole * one
            x.unread -= share
            x.context += share
            if not x.unread:
                ready.append(x)
        for x in decoding:
            x.context += 1
        if reading:  # launches of a step with a prompt beyond a graph
            graph, together = float(server.graph), float(server.chunk) - budget
            bare = min(max(0.5 + (together - graph) / (graph / 2 + 1), 0.0), 1.0)
            time += bare * max(float(server.engine.prompt) - kernels, 0.0)
        now += time
        for x in ready:
            x.generated += 1
            x.first = now if math.isnan(x.first) else x.first
            if x.generated == x.output:
                x.last = now
                running.remove(x)
    return {
        "first": np.array([x.first for x in requests]),
        "last": np.array([x.last for x in requests]),
        "dropped": dropped,
        "end": now,
    }


def simulated(server: Any, arrival: Any, prompt: Any, output: Any) -> Any:
    columns = (np.asarray(x, float) for x in (arrival, prompt, output))
    none = np.zeros(len(arrival))
    requests = Requests(*map(jnp.asarray, (*columns, len(arrival), none)))
    slots, sizes = jnp.asarray(SLOTS), Sizes(SLOTS, TURNS)
    return jax.device_get(jax.jit(run)(server, requests, slots, sizes))


def compared(server: Any, tokens: int, seed: int) -> None:
    """Turns of alike steps against single steps: the same drops, times to rounding."""
    random = np.random.default_rng(seed)
    number = 24
    arrival = np.sort(random.choice([0.0, 0.02, 0.1, 0.3], number))
    prompt = random.integers(20, 400, number)
    output = random.integers(1, 500, number)
    small = with_memory(server, tokens)
    result = simulated(small, arrival, prompt, output)
    columns = (x.tolist() for x in (arrival, prompt, output))
    requests = [One(*x) for x in zip(*columns, strict=True)]
    hand = plain(small, requests, tokens, SLOTS)
    dropped = int(result.turns.dropped[: result.taken].sum())
    assert dropped == hand["dropped"] and (dropped > 0) == (tokens < 100_000)
    assert result.first == pytest.approx(hand["first"], rel=1e-6)
    assert result.last == pytest.approx(hand["last"], rel=1e-6)
    assert float(result.end) == pytest.approx(hand["end"], rel=1e-6)
    # every token is made in a decoding step, the first after a prompt, or after a drop
    generated = result.turns.running * result.turns.steps
    entered = (~np.isnan(result.first)).sum() + result.turns.resumed.sum()
    assert generated.sum() + entered == pytest.approx(output.sum())


def test_made_up_costs_are_the_plain_loop():
    compared(builders.server(Case(chunk=512.0)), tokens=960, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [100_000, 1600, 960])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_plain_loop(server, tokens: int, seed: int):
    compared(server, tokens, seed)
