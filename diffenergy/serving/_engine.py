"""`Engine`: constants of a serving engine on a host, with what follows from them."""

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ..hardware import GpuCard, gpu_names, read_gpu
from ._request import EngineName, Sampling
from ._tiles import TUNED, Tiles

ENGINES: Final[tuple[str, ...]] = get_args(EngineName)
SAMPLING: Final[tuple[str, ...]] = get_args(Sampling)
"""Kinds of sampling: the largest logit; at random; from a sorted share of the logits;
the same after penalties on repeated tokens."""
SORTED_AT_ONCE: Final = 128
"""Rows from which PyTorch sorts all rows in one segmented sort."""
_WORDS: Final = 151_936
"""Vocabulary (Qwen3) that `sort_many` is stated for."""

Number = Float[Array, "*batch"]


class Engine(eqx.Module):
    """Constants of one engine on one host (`data/corrections/engines.toml`).

    Times in s: `step` and `sequence` of the host, `prompt` of the launches of a step
    with a prompt (all layers), `few` of sampling a sequence in fewer than 128, `start`
    and `many` of sampling more, `request` of HTTP and tokeniser, `tiles_few` and
    `tiles_many` of expert tiles (all layers) in steps of up to `tiles_rows` rows and of
    more, `padded` of rows that their products pad to. Factors on predicted time:
    `linear`, `experts`, `small` (norms, quantisation, softmax, rotary, adds),
    `attention`; on predicted energy beyond idle: `linear_energy`, `attention_energy`,
    `prefill_energy`. Power while sampling, of what lies between idle and `tdp` (W):
    `few_power`, `many_power`.
    """

    step: Number
    sequence: Number
    prompt: Number
    few: Number
    start: Number
    many: Number
    linear: Number
    experts: Number
    small: Number
    attention: Number
    linear_energy: Number
    attention_energy: Number
    prefill_energy: Number
    few_power: Number
    many_power: Number
    request: Number
    tiles_few: Number
    tiles_many: Number
    tiles_rows: Number
    padded: Number
    tdp: Number

    def sampled(self, batch: Array, vocab: Array) -> Array:
        """Time to sample a token for `batch` sequences, s.

        PyTorch sorts row by row below 128 rows, bound by launches whatever the
        vocabulary; from there all rows at once, bound by the words.
        """
        many = self.start + self.many * batch * (vocab / _WORDS)
        return jnp.where(batch < SORTED_AT_ONCE, self.few * batch, many)

    def sampling_power(self, batch: Array) -> Array:
        """Power of a board that samples beyond idle / that of its TDP."""
        return jnp.where(batch < SORTED_AT_ONCE, self.few_power, self.many_power)

    def host_time(self, batch: Array) -> Array:
        """Time of a step that nothing on the GPU hides, s."""
        return self.step + self.sequence * batch


# --- Constants of engines from the shipped table, or from a corrections file.

_FILE: Final = Path(__file__).parents[1] / "data" / "corrections" / "engines.toml"
_SAME: Final = (
    "step", "sequence", "linear", "experts", "small", "attention", "linear_energy",
    "attention_energy", "prefill_energy", "few_power", "many_power", "request",
)  # fmt: skip
"""Fields of `Engine` that are constants as they stand."""
_FITTED_BANDWIDTH: Final = 3.35e12
"""DRAM rate (B/s) for which the prior of sorts is stated (H100 SXM)."""


class Constant(NamedTuple):
    """Prior of a constant: centre and sd in `unit`."""

    centre: float
    sd: float
    unit: str
    what: str


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


@functools.cache
def constants() -> dict[str, Constant]:
    """Priors of all constants of engines."""
    return {name: Constant(**row) for name, row in _table()["prior"].items()}


def levels(
    engine: str, gpu: GpuCard, fitted: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Every constant of an engine on a GPU's host; `fitted`: levels of a corrections
    file (`engine`, `host`; `set`: by the user), which go before the shipped ones. A
    host without rows of its own has the constants of one with a GPU of the same
    architecture."""
    # Later levels replace earlier ones: prior, that of the architecture, engine, hosts
    # of the same architecture, this host. So GB200 serves with the constants of a
    # B200's host.
    values = {name: prior.centre for name, prior in constants().items()}
    for table in (_table(), fitted or {}):
        values |= table.get("architecture", {}).get(gpu.architecture, {})
        values |= table.get("engine", {}).get(engine, {})
        hosts = table.get("host", {})
        near = [host for host in hosts if _alike(host, engine, gpu)]
        for host in (*near, f"{engine}:{gpu.served_as}"):
            values |= hosts.get(host, {})
    return values | (fitted or {}).get("set", {})


def _alike(host: str, engine: str, gpu: GpuCard) -> bool:
    """Whether a host runs the engine on a GPU of the same architecture and MMA kind."""
    of, _, name = host.partition(":")
    if of != engine or name not in gpu_names():
        return False
    other = read_gpu(name)
    return (other.architecture, other.mma) == (gpu.architecture, gpu.mma)


_GRAPHS: Final = {"vllm": 512.0}
"""Most tokens of a step with prompts that engines capture as a graph: vLLM's default
(`max_graph_size` of its configuration) is the lesser of this and `A_REQUEST` x the
most requests that may run. Others capture steps without prompts alone."""
A_REQUEST: Final = 2.0
"""Tokens of a graph for each request that may run."""


def captured(engine: str, max_batch: Any = None) -> Any:
    """Tokens of a step with prompts up to which it runs as a graph, at `max_batch`
    requests (None: no limit)."""
    most = _GRAPHS.get(engine, 0.0)
    return most if max_batch is None else jnp.minimum(A_REQUEST * max_batch, most)


def usual_sampling(engine: str) -> str:
    """What an engine does unless it is told otherwise: vLLM takes the model's own
    generation config, which sets top-k and top-p."""
    return "top-p" if engine == "vllm" else "random"


def engine_of(
    engine: str,
    sampling: str,
    gpu: GpuCard,
    layers: int,
    fitted: Mapping[str, Any] | None = None,
    tiles: Tiles = TUNED,
) -> Engine:
    """Constants of an engine on a GPU's host for a model of so many `layers` to launch
    (`Deployment.launched`), whose experts run in `tiles`."""
    kinds = np.array([float(sampling == x) for x in SAMPLING])
    values: Mapping[str, Any] = levels(engine, gpu, fitted)
    board = (gpu.values["tdp"], gpu.values["dram_bandwidth"])
    return engine_from(values, kinds, float(layers), *board, tiles)


def engine_from(
    values: Mapping[str, Any],
    kinds: Any,
    layers: Any,
    tdp: Any,
    bandwidth: Any,
    tiles: Any,
) -> Engine:
    """An engine from `values` by name; `kinds`: 1 for the kind of sampling, else 0;
    `layers` to launch; `tdp` in W, DRAM `bandwidth` in B/s, which sorts of many rows
    follow; `tiles`: as [`Tiles`]."""
    # zero of the same type as the others, which may be traced
    zero, slower = 0.0 * values["plain"], _FITTED_BANDWIDTH / bandwidth
    many = values["sort_many"] * slower
    few = (zero, values["plain"], values["sort_few"], values["penalties_few"])
    start = (zero, zero, values["sort_start"], values["sort_start"])
    each = (zero, values["plain"], many, many)
    few_loads, many_loads, tiles_rows, padded = tiles
    numbers = {name: values[name] for name in _SAME} | {
        "prompt": layers * values["prompt_layer"],
        "tiles_few": few_loads * values["untuned"],
        "tiles_many": many_loads * values["untuned"],
        "tiles_rows": tiles_rows,
        "padded": padded * values["padded"],
        "tdp": tdp,
        "few": _picked(kinds, few),
        "start": _picked(kinds, start),
        "many": _picked(kinds, each),
    }
    return Engine(**{name: jnp.asarray(x, float) for name, x in numbers.items()})


def _picked(kinds: Any, values: tuple[Any, ...]) -> Any:
    return sum(kinds[i] * value for i, value in enumerate(values))


def spread_of(
    engine: str,
    gpu: GpuCard,
    fitted: Mapping[str, Any] | None = None,
    hard: bool = False,
) -> tuple[str, dict[str, float]]:
    """Grade of the constants of an engine on a GPU's host, and the standard deviation
    of the logarithm of left-out rows (`tpot`, `energy`, `ttft`); `hard`: of mixtures of
    experts on several GPUs or below 16 bits."""
    tables = [_table(), fitted or {}]
    hosts = {name for table in tables for name in table.get("host", {})}
    spread = _table()["spread"]
    served = gpu.served_as
    if hard:
        near = [host for host in sorted(hosts) if _alike(host, engine, gpu)]
        known = [spread["mixtures"].get(host) for host in near]
        known = [x for x in known if x] or [spread["forecast"]]
        return "forecast", known[0]
    if f"{engine}:{served}" in hosts.difference(spread["mixtures_alone"]):
        return "calibrated", spread.get(served, spread["calibrated"])
    if any(name.partition(":")[0] == engine for name in hosts):
        return "transferred", spread["transferred"]
    return "forecast", spread["forecast"]
