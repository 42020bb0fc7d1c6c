"""Flags of `diffenergy serve`."""

import dataclasses
import functools
from typing import Any

from ..parsing import read, shared
from ..parsing.field import as_json, group, option, out, plot, switch
from ..parsing.shared import PointFlags

_milliseconds = functools.partial(read.positive, unit="ms")


def _tokens(flag: str, text: str) -> float:
    value = read.number(flag, text)
    if not 0 <= value <= read.MOST or value != int(value):
        raise ValueError(f"`{flag}` is '{text}'; allowed is a whole number from 0 on.")
    return value


def _clients(flag: str, text: str) -> float:
    return float(read.whole(flag, text))


def engine() -> Any:
    """`--engine`."""
    return option("NAME", "vllm, sglang, trtllm or vllm-v0 (2024) [vllm].")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerFlags:
    """The server; None where a flag was not given."""

    num_gpus: int | None = option(
        "N", "GPUs in all, a multiple of --tp [--tp].", read.whole
    )
    tp: int | None = option(
        "T", "GPUs that share the model; N/T replicas share the load [all].", read.whole
    )
    ep: int | None = option(
        "N", "Of these, GPUs that share its experts [1].", read.whole
    )
    dtype: str | None = option(
        "TYPE", "Of linear layers, as in `estimate` [the checkpoint's].", read.dtype
    )
    kv_dtype: str | None = option(
        "TYPE", "Type of the KV cache [the checkpoint's, else 16 bit].", read.dtype
    )
    routing: str | None = option(
        "KIND", "How tokens spread over experts: random, balanced or power_law_X."
    )
    engine: Any = engine()
    sampling: Any = option(
        "KIND",
        "greedy, random, top-p (sorted logits) or penalties (sorted, and counted) "
        "[top-p for vllm, else random].",
    )
    schedule: Any = option(
        "KIND",
        "chunked (prompts beside decoding) or prefill-first [prefill-first for sglang, "
        "else chunked].",
    )
    chunk: int | None = option("TOKENS", "Most tokens of a step [8192].", read.whole)
    memory_fraction: float | None = option(
        "SHARE", "Share of the memory that the engine uses [0.9].", read.positive
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WayFlags:
    """In which way requests come, and what they are promised; None where a flag was not
    given."""

    max_batch: float | None = option(
        "B",
        "Most requests at once [as memory allows]; alone: a server that is saturated.",
        _clients,
    )
    concurrency: float | None = option(
        "C", "Clients that send the next request when the last one ends.", _clients
    )
    rate: float | None = option(
        "R", "Requests a second, at random times.", read.positive
    )
    slo_ttft: float | None = option(
        "MS", "Limit of the time to the first token.", _milliseconds
    )
    slo_tpot: float | None = option(
        "MS", "Limit of the time per output token.", _milliseconds
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadFlags(WayFlags):
    """Requests that come; None where a flag was not given."""

    input_len: str | None = option(
        "DIST",
        "Prompt tokens to compute: 512, lognormal:MEAN:CV, uniform:LOW:HIGH or "
        "exponential:MEAN [512].",
    )
    output_len: str | None = option("DIST", "Tokens made, alike [128].")
    cached_len: float | None = option(
        "N", "Prompt tokens found in the prefix cache [0].", _tokens
    )
    waves: float | None = option(
        "W",
        "Requests that each client of a benchmark sends, all starting at once [steady "
        "state].",
        read.positive,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """What a served token costs under load: latencies, watts and joules.

    One of --max-batch (always as many as may run), --concurrency (a closed loop),
    --rate (an open one) and --trace says how requests come. Exits with 3 where the
    server cannot sustain the rate, and names the one that it can.

    \b
    Examples:
      diffenergy serve qwen3-8b --rate 8 --input-len lognormal:512:1
      diffenergy serve llama-3.1-70b --tp 4 --concurrency 64 --json
      diffenergy serve qwen3-8b --rate 8 --slo-tpot 30ms --optimize energy
    """

    model: str = shared.model(listing=False)
    gpu: str | None = shared.gpu()
    load: LoadFlags = group(LoadFlags)
    trace: str | None = option(
        "FILE",
        "Requests one by one, simulated: a table arrival_s, input_len, output_len, or "
        "a public trace of Azure (.csv) or Mooncake (.jsonl).",
        files=shared.file,
    )
    skip_too_long: bool = switch(
        "Leave out requests of --trace beyond the model's positions, and count them."
    )
    server: ServerFlags = group(ServerFlags)
    optimize: str | None = option(
        "WHAT", "energy or throughput: clock and batch limit that keep the limits best."
    )
    sensitivity: tuple[str, ...] | None = option(
        "FIELD[,...]",
        "Derivatives of the means by rate, concurrency, input_len, output_len, "
        "sm_clock, power_limit or fields of the GPU.",
        read.names,
    )
    point: PointFlags = group(PointFlags)
    plot: str | None = plot()
    as_json: bool = as_json()
    out: str | None = out("Also write .json.", ".json")
