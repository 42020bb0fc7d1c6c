"""A server of made-up costs, whose figures follow by hand."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffenergy.serving import Server, Steady, load_arrays, steady
from diffenergy.serving._deployment import traffic_of
from diffenergy.serving._engine import Engine
from diffenergy.serving._lengths import read_lengths
from diffenergy.serving._steady.server import Memory
from diffenergy.serving._step.table import StepCosts

ENGINE = dict(
    step=1e-3, sequence=1e-5, few=1e-5, start=3e-4, many=2e-5,
    linear=1.1, attention=0.9, linear_energy=1.2, attention_energy=1.3,
    prefill_energy=1.4, few_power=0.4, many_power=0.7, request=5e-3,
    experts=0.5, small=0.3, tiles_few=3e-5, tiles_many=1e-4, tiles_rows=20.0,
    padded=2e-4, tdp=260.0,
)  # fmt: skip
IDLE, STATIC = 80.0, 100.0
"""W of a board that waits, and below the kernels of one that works."""
LINEAR, ATTENTION, HEAD = (6e-3, 2e-6), (0.0, 1e-6), (1e-3, 0.0)
EXPERTS, SMALL = (2e-3, 1e-6), (5e-4, 0.0)
"""s of a decoding step, and for each sequence, at `CONTEXT` cached tokens."""
CONTEXT, GROWTH = 100.0, 1e-8
"""s of attention for each token more of a sequence."""
READ = 2e-5
"""s for a token of a prompt, of which a quarter is of experts, a quarter of small
kernels."""
ADDED = (0.5 * 1.1 + 0.25 * 0.5 + 0.25 * 0.3) * READ
"""s that the engine takes for it."""
DYNAMIC, READING = 200.0, 300.0
"""W of kernels of decoding and of prompts beyond static power."""
CLOCKS = np.array([1e9, 1.5e9, 2e9])


class Case(NamedTuple):
    """A server: `prompt` and `output` tokens, `chunk` of a step, `first`: 1 where
    prompts have steps of their own; `core`: power of the clock by which kernels are
    shorter; `cap`: W; `drafted` tokens a step, of which the share `accept` is right;
    `launches`: s of those of a step with a prompt and more tokens than its `graph`."""

    prompt: float = 400.0
    output: Any = 100
    chunk: float = 8192.0
    first: float = 0.0
    core: float = 0.0
    cap: float = 1e6
    drafted: int = 0
    accept: float = 0.0
    launches: float = 2e-2
    graph: float = 0.0

    @property
    def tokens(self) -> float:
        """Tokens of a sequence that a step makes, the mean."""
        return sum(self.accept**j for j in range(self.drafted + 1))

    @property
    def context(self) -> float:
        """Mean cached tokens of a running request."""
        lengths = read_lengths("output_len", self.output)
        return self.prompt + lengths.spread * lengths.mean / 2


def server(case: Case) -> Server:
    """The server as records."""
    batches, beside = np.array([1.0, 1001.0]), np.array([0.0, 1.0, 1001.0])
    prompts = np.array([1.0, case.chunk, 16 * case.chunk])
    slow = (CLOCKS[-1] / CLOCKS) ** case.core
    draws = (CLOCKS / CLOCKS[-1]) ** (2 * case.core)  # P ~ f^2

    def at(*axes: Any) -> np.ndarray:
        return functools.reduce(np.multiply.outer, axes)

    kinds = LINEAR, ATTENTION, HEAD, (0.0, 0.0), EXPERTS, SMALL  # as in `PARTS`
    parts = np.stack([x + y * batches for x, y in kinds], axis=1)
    growth = at(GROWTH * batches, np.array([0.0, 1.0, 0.0, 0.0, 0.0, 0.0]))
    added = at(slow, np.ones(3), READ * prompts)
    flat = np.full((3, 2), STATIC)
    costs = StepCosts(
        *map(
            jnp.asarray,
            (
                CLOCKS, batches, CONTEXT, at(slow, parts), at(slow, growth),
                DYNAMIC * at(slow * draws, parts), DYNAMIC * at(slow * draws, growth),
                flat, np.ones((3, 2)), beside, prompts,
                np.maximum(prompts / case.chunk, 1.0),
                at(added, np.array([0.4, 0.1, 0.0, 0.0, 0.25, 0.25])),
                READING * added * draws[:, None, None], np.full(3, IDLE),
                1.0 + case.drafted,
            ),
        )
    )  # fmt: skip
    memory = Memory(*map(jnp.asarray, (1e12, 1.0, 0.0, 0.0, [1.0], [np.inf], 0.0)))
    output = read_lengths("output_len", case.output)
    prompt = read_lengths("input_len", case.prompt)
    traffic = traffic_of(prompt, output, 0.0, case.accept)
    constants = ENGINE | {"prompt": case.launches}
    engine = Engine(**{name: jnp.asarray(x) for name, x in constants.items()})
    of: Any = case.chunk, case.graph, case.first, CLOCKS[-1], case.cap
    numbers: Any = map(jnp.asarray, (151_936.0, *of))
    return Server(costs, engine, memory, traffic, *numbers)


@functools.cache
def _program(mode: Any, states: int) -> Any:
    return jax.jit(lambda server, load: steady(server, load, mode, states))


def balance(case: Case, mode: str, **load: Any) -> Steady:
    """The program's figures of a server under a load (`load_arrays`)."""
    states = 64 if mode == "open" else 0
    result = _program(mode, states)(server(case), load_arrays(**load))
    return jax.device_get(result)


class Step(NamedTuple):
    """A step with `decoding` of the slots: s, J, s without a prompt, prompts that
    enter, share of steps with one, s of a prompt's kernels and its steps, s by which
    launches outlast the kernels of steps with prompts."""

    decoding: float
    time: float
    energy: float
    decode: float
    entering: float
    mixed: float
    added: float
    pieces: float
    mixing: float


def by_hand(case: Case, slots: float, share: float = 1.0) -> Step:
    """The mean step at the highest clock, without a limit of power."""
    e, mean = ENGINE, read_lengths("output_len", case.output).mean
    rows, mean = 1 + case.drafted, mean / case.tokens  # steps of a request
    b = min(slots, case.chunk / (rows + case.prompt / mean * (1 - case.first)))
    linear, head = LINEAR[0] + LINEAR[1] * b, HEAD[0]
    attention = ATTENTION[1] * b + GROWTH * b * (case.context - CONTEXT)
    experts, small = EXPERTS[0] + EXPERTS[1] * b, SMALL[0]
    kernels = 1.1 * linear + 0.9 * attention + head + 0.5 * experts + 0.3 * small
    sorted_ = rows * b
    tiles = e["tiles_many"] if sorted_ > 20 else e["tiles_few"]
    kernels += tiles + e["padded"]
    few, many = e["few"] * sorted_, e["start"] + e["many"] * sorted_
    sampling, drawn = (few, 0.4) if sorted_ < 128 else (many, 0.7)
    host = e["step"] + e["sequence"] * b
    decode = kernels + sampling + host
    products = linear + head + experts + small
    energy = DYNAMIC * (1.2 * products + 1.3 * attention) + STATIC * kernels
    energy += 1.2 * DYNAMIC * tiles + (260.0 - STATIC) * e["padded"]
    energy += (IDLE + drawn * (260.0 - IDLE)) * sampling + IDLE * host
    added = ADDED * case.prompt
    pieces = max(case.prompt / case.chunk, 1.0)
    entering = b / mean
    some = 1 - (1 - min(entering * pieces / b, 0.999)) ** b  # one of b ends
    beside = (1 - case.first) * kernels + entering * added / some
    together = (1 - case.first) * rows * b + entering / some * case.prompt
    # captured below 3/4 of the graph, not above 5/4
    bare = min(max(0.5 + (together - case.graph) / (case.graph / 2 + 1), 0.0), 1.0)
    mixing = bare * max(case.launches - beside, 0.0)
    # what is read does not depend on the steps in which it is
    time = decode + share * (entering * added + some * mixing)
    each = READING * READ * case.prompt * 1.4 + STATIC * added
    energy += share * (entering * each + some * mixing * IDLE)
    return Step(b, time, energy, decode, entering, some, added, pieces, mixing)
