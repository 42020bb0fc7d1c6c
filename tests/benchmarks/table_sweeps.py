"""How many estimates a second a sweep makes once its program is compiled.

    python tests/benchmarks/table_sweeps.py

llama-3.1-8b decoding on an H100; each sweep is run once to compile, then three times,
the best of which counts, with the writing of its Parquet file.
"""

import tempfile
import time
from pathlib import Path

import diffenergy as de
from diffenergy.estimator import start_jax

SWEEPS = {
    "37 clocks x 256 batches": ("420:1860:40", "1:256:1", None),
    "110 clocks x 180 batches": ("345:1980:15", "1:180:1", None),
    "110 clocks x 10 limits x 27 batches": ("345:1980:15", "1:27:1", "250:700:50"),
    "10 limits x 100 batches": (None, "1:100:1", "250:700:50"),
}
"""Clocks (MHz), batches and power limits (W)."""


def spec(clocks: str | None, batches: str, limits: str | None) -> str:
    values = {"batch": batches, "sm_clock": clocks, "power_limit": limits}
    axes = [f'{name} = "{words}"' for name, words in values.items() if words]
    fixed = ['model = "llama-3.1-8b"', 'gpu = "h100-sxm"', 'phase = "decode"']
    return "\n".join(["[axes]", *axes, "[fixed]", *fixed, "input_len = 1024\n"])


def main() -> None:
    start_jax(keep_compilations=True)
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "spec.toml", str(Path(folder) / "out.parquet")
        for name, axes in SWEEPS.items():
            path.write_text(spec(*axes))
            de.sweeps.run(str(path), out)
            wall, computed = [], []
            for _ in range(3):
                begun, before = time.perf_counter(), time.process_time()
                result = de.sweeps.run(str(path), out)
                wall.append(result["rows"] / (time.perf_counter() - begun))
                computed.append(result["rows"] / (time.process_time() - before))
            print(
                f"{name}: {max(wall):,.0f} rows a second, {max(computed):,.0f} for "
                "each second of CPU",
                flush=True,
            )


if __name__ == "__main__":
    main()
