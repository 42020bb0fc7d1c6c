"""Measures whole forward passes of Hugging Face models on the GPU of this machine.

Needs an NVIDIA GPU, `torch`, `transformers` and `nvidia-ml-py`:

    python calibration/measurements/passes.py FOLDER [SECONDS]

writes FOLDER/passes.csv, one row a pass, as `diffenergy evaluate` reads it, and a trace
of PyTorch's profiler for some. Weights and tokens are drawn, and each pass ends with a
synchronisation; clocks are left to the board, which nobody else should use meanwhile.
"""

import csv
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch  # pyright: ignore[reportMissingImports]
import transformers as hf  # pyright: ignore[reportMissingImports]

from diffenergy.measure._bench import identify
from diffenergy.measure._reading import Clock, Sampler, means
from diffenergy.measure._record import campaign
from diffenergy.measure._sensor import Sensor
from diffenergy.units import MHz

WARM_UP: Final = 1.5
READING: Final = 2.5
PERIOD: Final = 0.02
"""s before the reading, of it, and between two samples of the board."""
LEAST: Final = 6.0
"""s that a pass takes with its model; with less left the run ends."""


class Pass(NamedTuple):
    """One pass; `attention`: PyTorch's fused one (flash) or single kernels (eager)."""

    model: str
    batch: int
    seq_len: int
    attention: str = "eager"
    traced: bool = False


PASSES: Final = (
    Pass("bert-large", 8, 512, traced=True),
    Pass("opt-1.3b", 1, 2048, traced=True),
    Pass("qwen2-1.5b", 1, 2048, traced=True),
    Pass("bert-large", 1, 128),
    Pass("opt-1.3b", 4, 2048),
    Pass("qwen2-1.5b", 4, 1024),
    Pass("gpt2", 8, 1024, traced=True),
    Pass("bert-large", 32, 128),
    Pass("opt-1.3b", 8, 512),
    Pass("qwen2-1.5b", 8, 256),
    Pass("llama-3.1-8b", 1, 2048, "flash"),
    Pass("opt-1.3b", 1, 512),
    Pass("qwen2-1.5b", 1, 512),
    Pass("bert-large", 32, 512),
    Pass("gpt2", 32, 128),
    Pass("llama-3.1-8b", 8, 256, "flash"),
    Pass("bert-large", 8, 512, "flash"),
    Pass("opt-1.3b", 4, 2048, "flash"),
    Pass("gpt2", 1, 128),
    Pass("opt-1.3b", 2, 1024),
)
"""The most telling first: a short time may cut the list anywhere."""


def configured(name: str) -> Any:
    """Sizes of a model, as published."""
    match name:
        case "bert-large":
            return hf.BertConfig(
                hidden_size=1024,
                num_hidden_layers=24,
                num_attention_heads=16,
                intermediate_size=4096,
            )
        case "gpt2":
            return hf.GPT2Config()
        case "opt-1.3b":
            return hf.OPTConfig(
                hidden_size=2048,
                num_hidden_layers=24,
                ffn_dim=8192,
                num_attention_heads=32,
                word_embed_proj_dim=2048,
            )
        case "qwen2-1.5b":
            return hf.Qwen2Config(
                hidden_size=1536,
                num_hidden_layers=28,
                intermediate_size=8960,
                vocab_size=151936,
                num_attention_heads=12,
                num_key_value_heads=2,
            )
    return hf.LlamaConfig(
        hidden_size=4096,
        num_hidden_layers=32,
        intermediate_size=14336,
        vocab_size=128256,
        num_attention_heads=32,
        num_key_value_heads=8,
    )


def loaded(name: str, attention: str) -> Any:
    """A model without its head, in bf16 on the GPU."""
    kernels = {"flash": "sdpa", "eager": "eager"}[attention]
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = hf.AutoModel.from_config(configured(name), attn_implementation=kernels)
    torch.set_default_dtype(torch.float32)
    return model.to(torch.bfloat16).eval()


def stepped(model: Any, one: Pass) -> Callable[[], None]:
    """What runs one pass and waits for it."""
    torch.manual_seed(0)
    tokens = torch.randint(0, 30000, (one.batch, one.seq_len), device="cuda")

    def step():
        with torch.inference_mode():
            model(input_ids=tokens)
        torch.cuda.synchronize()

    return step


def read(step: Callable[[], None], sensor: Sensor) -> dict[str, Any]:
    """Cells of a reading: passes back to back, after a warm-up."""
    clock = Clock()
    sampler = Sampler(sensor, clock)
    with clock.every(PERIOD, sampler.step):
        warm = clock.now() + WARM_UP
        while clock.now() < warm:
            step()
        count, begin = 0, clock.now()
        while clock.now() < begin + READING:
            step()
            count += 1
        end = clock.now()
    sampler.check()
    readings, each = means(sampler.samples, begin, end), (end - begin) / count
    return {
        "time_us": 1e6 * each,
        "avg_power_w": readings.power,
        "energy_j": readings.power * each,
        "sm_clock_mhz_avg": readings.sm_clock / MHz,
        "temperature_c": readings.temperature,
        "iterations": count,
        "throttle": "+".join(readings.reasons),
        "power_source": readings.source,
        "campaign": campaign(clock).replace("measure", "passes"),
    }


def trace(step: Callable[[], None], file: Path):
    """Writes the profiler's trace of one pass, with the shapes of operands."""
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(
        activities=[kinds.CPU, kinds.CUDA], record_shapes=True
    ) as seen:
        step()
    seen.export_chrome_trace(str(file))


def main(folder: Path, seconds: float):
    deadline = time.monotonic() + seconds
    sensor = Sensor(0)
    gpu = identify(sensor.about, None).name
    model, current = None, ("", "")
    with (folder / "passes.csv").open("w", newline="") as file:
        writer = None
        for one in PASSES:
            if time.monotonic() + LEAST > deadline:
                break
            if current != (one.model, one.attention):
                model = None  # its memory is free before the next one comes
                model = loaded(one.model, one.attention)
                current = one.model, one.attention
            step = stepped(model, one)
            named = {"gpu": gpu, **one._asdict(), "mode": "prefill"}
            row = {**named, "precision": "bf16", **read(step, sensor)}
            if row.pop("traced"):
                name = f"{one.model}-{one.batch}x{one.seq_len}.trace.json.gz"
                trace(step, folder / name)
            writer = writer or csv.DictWriter(file, row)
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
            file.flush()
            print(*(f"{x:.6g}" if isinstance(x, float) else x for x in row.values()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 180.0)
