"""Time to the first token under Poisson traffic: closed form beside the step simulator.

    python calibration/studies/served/open_loop.py

Six servers, each at shares of its saturation; 20,000 requests a run after seed 7, so
that 200 of them are beyond the 99th percentile. `--seed` says how much is noise.
"""

import argparse
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from diffenergy import serving

FIGURES: Final = ("mean", "p50", "p95", "p99")
_LONGEST: Final = 38_000
"""Tokens of the longest prompt that is drawn: it fits the positions of every model."""


class Server(NamedTuple):
    """A model on GPUs, and lengths of its requests."""

    model: str
    gpu: str
    input_len: str
    output_len: str
    max_batch: int | None = None
    options: dict[str, Any] = {}


SERVERS: Final = {
    "70B fp8, 2 H100": Server(
        "llama-3.1-70b", "h100-sxm", "1000", "250", None, {"tp": 2, "dtype": "fp8"}
    ),
    "8B, H100": Server(
        "qwen3-8b", "h100-sxm", "lognormal:512:1", "lognormal:256:0.8", 128
    ),
    "30B-A3B, H200": Server(
        "qwen3-30b-a3b", "h200-sxm", "exponential:1500", "exponential:200", 256
    ),
    "8B, A100, SGLang": Server(
        "llama-3.1-8b", "a100-sxm-80gb", "uniform:200:2000", "lognormal:200:0.5", 64,
        {"engine": "sglang"},
    ),
    "gpt-oss-120b, 4 H100, prompts first": Server(
        "gpt-oss-120b", "h100-sxm", "2000", "300", 128,
        {"tp": 4, "schedule": "prefill-first"},
    ),
    "8B, H100, 1,024 tokens a step": Server(
        "llama-3.1-8b", "h100-sxm", "lognormal:700:0.7", "100", 128, {"chunk": 1024}
    ),
}  # fmt: skip


def compare(
    server: Server, share: float, requests: int = 20_000, seed: int = 7
) -> tuple[dict[str, Any], dict[str, Any]]:
    """JSON of the closed form and of the simulator at a share of the saturation."""
    lengths = {"input_len": server.input_len, "output_len": server.output_len}
    limit = {} if server.max_batch is None else {"max_batch": server.max_batch}
    where, how = (server.model, server.gpu), server.options

    def closed(rate: float) -> dict[str, Any]:
        load = {"rate": rate, **lengths, **limit}
        return serving.steady_state(*where, load, **how).summary

    rate = share * closed(1e-3)["saturation_request_rate_per_s"]
    random = np.random.default_rng(seed)
    trace = {
        "arrival_s": np.cumsum(random.exponential(1 / rate, requests)),
        **{name: draw(text, random, requests) for name, text in lengths.items()},
    }
    return closed(rate), serving.simulate(trace, *where, limit, **how).summary


def draw(text: str, random: np.random.Generator, number: int) -> np.ndarray:
    """Whole lengths of a distribution as `Load` writes it."""
    kind, *words = text.split(":")
    values = [float(x) for x in words]
    if kind == "lognormal":
        mean, cv = values
        sigma = np.sqrt(np.log1p(cv**2))
        drawn = random.lognormal(np.log(mean) - sigma**2 / 2, sigma, number)
    elif kind == "uniform":
        low, high = values
        drawn = random.uniform(low, high, number)
    elif kind == "exponential":
        drawn = random.exponential(values[0], number)
    else:
        drawn = np.full(number, float(text))
    return np.clip(np.round(drawn), 1, _LONGEST)


def main() -> None:
    """Prints a Markdown table in ms: closed form / simulator."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shares", type=float, nargs="*", default=[0.3, 0.6, 0.75])
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--latency", default="ttft_s", help="a latency of the JSON")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"| server | load % | {' | '.join(FIGURES)} |\n|---|---:|" + "---:|" * 4)
    for name, server in SERVERS.items():
        for share in arguments.shares:
            both = compare(server, share, arguments.requests, arguments.seed)
            ours, theirs = (x[arguments.latency] for x in both)
            cells = (f"{1e3 * ours[x]:.1f} / {1e3 * theirs[x]:.1f}" for x in FIGURES)
            print(f"| {name} | {100 * share:.0f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
