"""Write the tables of this folder: the model's own answers, with noise.

python docs/examples/make.py        (in the root of the repository)

They stand in for a reader's files, so that every command of the documentation runs.
Nobody measured them.
"""

import contextlib
import csv
import io
import json
import tempfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from diffenergy.cli import main

HERE = Path(__file__).parent
PASSES = (("bert-base", 8, 128), ("gpt2", 4, 512), ("resnet-50", 16, 0))
CLOCKS = (900, 1200, 1410)
LAYER = slice(2, 8)
"""Kernels of GPT-2 from the norm to the first product of the MLP."""
NOISE = np.random.default_rng(0)
CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 16,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 5632,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}


def run(*words: object) -> str:
    """What a command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([str(word) for word in words]) == 0
    return out.getvalue()


def read(value: float, noise: float = 0.03) -> str:
    """A noisy reading of four digits."""
    return f"{value * np.exp(noise * NOISE.standard_normal()):.4g}"


def write(name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows as a CSV file."""
    rows = list(rows)
    with (HERE / name).open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def passes(folder: Path) -> None:
    """`listings.jsonl` and `runs.csv`: passes of an A100 at three clocks."""
    lines, rows = [], []
    for model, batch, tokens in PASSES:
        size = ("--batch", batch, *(("--input-len", tokens) if tokens else ()))
        phase = ("--phase", "prefill") if model == "gpt2" else ()
        flags = ("estimate", model, "--gpu", "a100-sxm-80gb", *size, *phase)
        run(*flags, "--out", folder / "x.jsonl")
        listing = json.loads((folder / "x.jsonl").read_text())
        lines.append(json.dumps(listing | {"name": model}))
        for clock in CLOCKS:
            outcome = json.loads(run(*flags, "--sm-clock", clock, "--json"))
            rows.append(
                {
                    "gpu": "a100-sxm-80gb",
                    "workload": model,
                    "model": model,
                    "sm_clock_mhz_avg": clock,
                    "time_ms_per_iter": read(1e3 * outcome["time_s"]),
                    "avg_power_w": read(outcome["avg_power_w"]),
                }
            )
    (HERE / "listings.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write("runs.csv", rows)


def products(folder: Path) -> None:
    """`gemm.csv`: matrix products of an A10."""
    sizes = [
        (m, n, k) for m in (64, 1024, 4096) for n in (1024, 4096) for k in (1024, 4096)
    ]
    rows = [
        {"m": m, "n": n, "k": k, "dtype": "bf16", "time_us": 1e6, "avg_power_w": 100}
        for m, n, k in sizes
    ]
    write("gemm.csv", rows)
    flags = ("evaluate", f"gemm={HERE / 'gemm.csv'}", "--gpu", "a10")
    run(*flags, "--out", folder / "rows.csv")
    with (folder / "rows.csv").open(newline="") as stream:
        for row, outcome in zip(rows, csv.DictReader(stream), strict=True):
            row["time_us"] = read(1e6 * float(outcome["time_s_pred"]))
            row["avg_power_w"] = read(float(outcome["avg_power_w_pred"]))
    write("gemm.csv", rows)


def clocks() -> None:
    """`measured.csv`: kernels of one GPT-2 layer on an RTX 3080 Ti at seven clocks."""
    flags = ("estimate", "gpt2", "--gpu", "rtx-3080-ti", "--phase", "prefill")
    flags = (*flags, "--batch", 8, "--detail", "--json")
    rows = []
    for clock in (None, 900, 1080, 1260, 1440, 1620, 1800):
        at = () if clock is None else ("--sm-clock", clock)
        kernels = json.loads(run(*flags, *at))["kernels"]
        for number, kernel in enumerate(kernels[LAYER]):
            rows.append(
                {
                    "stage": "forward",
                    "instruction": f"{number} {kernel['op']}",
                    "frequency": clock or "auto",
                    "count": kernel["count"],
                    "time": read(kernel["time_s"], 0.005),
                    "energy": read(kernel["energy_j"], 0.01),
                }
            )
    order = sorted(rows, key=lambda row: int(row["instruction"].split()[0]))
    write("measured.csv", order)


def log() -> None:
    """`log.csv`: what `nvidia-smi` prints every 100 ms beside 4 s of work."""
    lines = [
        "timestamp, name, index, power.draw [W], clocks.current.sm [MHz], "
        "clocks.current.memory [MHz], temperature.gpu, utilization.gpu [%], "
        "power.limit [W]"
    ]
    for step in range(80):
        busy = 20 <= step < 60
        second, tenth = divmod(step, 10)
        power, share = (310.0, 100) if busy else (62.0, 0)
        watts = float(read(power, 0.01))
        lines.append(
            f"2025/01/15 10:00:{second:02d}.{tenth}00, NVIDIA A100-SXM4-80GB, 0, "
            f"{watts:.2f} W, 1410 MHz, 1593 MHz, 48, {share} %, 400.00 W"
        )
    (HERE / "log.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


SERVED = ((0, 120, 0.0), (120, 720, 4.0), (720, 1320, 12.0), (1320, 1500, 0.0))
"""Begin and end (s) and requests a second of a server that starts at 0."""
BEGIN = 1_767_600_000


def service() -> None:
    """`power.csv`, `metrics.json` and `bench.json`: 25 minutes of a server that loads
    for a minute before them, idles, and serves at two rates."""
    size = ("--input-len", 512, "--output-len", 128, "--json")
    rates = [rate for *_, rate in SERVED if rate]
    servers = {
        x: json.loads(run("serve", "qwen3-8b", "--rate", x, *size)) for x in rates
    }
    counters = dict.fromkeys(
        ("prompt_tokens_total", "generation_tokens_total", "request_success_total",
         "time_to_first_token_seconds_sum", "time_to_first_token_seconds_count",
         "inter_token_latency_seconds_sum", "inter_token_latency_seconds_count"), 0.0,
    )  # fmt: skip
    series: dict[str, list[list[Any]]] = {x: [] for x in counters}
    series["num_requests_running"] = []
    step = 15
    for second in range(0, 1501, step):
        rate = next((r for a, b, r in SERVED if a < second <= b), 0.0)
        running = 0.0
        if rate:
            answer = servers[rate]
            running = answer["running_requests"]
            ttft, tpot = (float(read(answer[x]["mean"])) for x in ("ttft_s", "tpot_s"))
            n = rate * step
            gains = (512 * n, 128 * n, n, ttft * n, n, tpot * 127 * n, 127 * n)
            for name, gain in zip(counters, gains, strict=True):
                counters[name] += gain
        for name, value in {**counters, "num_requests_running": running}.items():
            series[name].append([BEGIN + second, f"{value:.8g}"])
    result = [
        {"metric": {"__name__": f"vllm:{name}", "model_name": "m"}, "values": values}
        for name, values in series.items()
    ]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    (HERE / "metrics.json").write_text(json.dumps(answer) + "\n", encoding="utf-8")
    lines = ["timestamp, name, uuid, power.draw [W], memory.used [MiB]"]
    for second in range(-60, 1501, 5):
        rate = next((r for a, b, r in SERVED if a < second <= b), 0.0)
        watts = float(read(servers[rate]["avg_power_w"] if rate else 115.0, 0.02))
        stamp = datetime.fromtimestamp(BEGIN + second, UTC)
        lines.append(
            f"{stamp:%Y/%m/%d %H:%M:%S}.000, NVIDIA H100 80GB HBM3, GPU-1, "
            f"{watts:.2f} W, {min(72_000, 4 + 1500 * (second + 60))} MiB"
        )
    (HERE / "power.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    answer, n = servers[4.0], 2400
    end = datetime.fromtimestamp(BEGIN + 720, UTC)
    bench = {
        "date": f"{end:%Y%m%d-%H%M%S}", "backend": "vllm", "model_id": "m",
        "num_prompts": n, "request_rate": 4.0, "max_concurrency": None,
        "duration": 600.0, "completed": n, "total_input_tokens": 512 * n,
        "total_output_tokens": 128 * n, "request_throughput": 4.0,
        "mean_ttft_ms": float(read(1e3 * answer["ttft_s"]["mean"])),
        "mean_tpot_ms": float(read(1e3 * answer["tpot_s"]["mean"])),
    }  # fmt: skip
    (HERE / "bench.json").write_text(json.dumps(bench, indent=1) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        passes(Path(name))
        products(Path(name))
    clocks()
    log()
    service()
    (HERE / "my-model" / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    run("estimate", "gpt2", "--gpu", "a10", "--out", HERE / "before.json")
