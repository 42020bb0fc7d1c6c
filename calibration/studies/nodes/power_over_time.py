"""Power over time that the model says, beside meters of whole servers.

    python calibration/studies/nodes/power_over_time.py node_power

Training: deviations from the mean in windows as long as the meter's, of steps at their
plateau; pauses between them are events and left out on both sides (readings within 3 %
of the plateau, standard deviation by the median). A served model: mean and standard
deviations in windows; the lengths of its requests are a data set's means, with a
coefficient of variation that we assume. No constant was fitted to any of it.
"""

from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer

TRAINING: Final = {
    "llama2-70b-lora": (
        "h100x8 mlperf-train v4.0 llama2-70b-lora node (2 s)", 2.0,
        dict(model="llama-3.1-70b", gpu="h100-sxm", phase="train", input_len=8192,
             plan="tp=4,dp=2", lora=16, lora_layers="attention",
             dtype="fp8", global_batch=8, node="hgx-h100-immersion"),
    ),
    "bert": (
        "b200x8 mlperf-train v5.0 bert node", 1.0,
        dict(model="bert-large", gpu="b200", phase="train", batch=96, input_len=512,
             dtype="fp8", node="hgx-b200-water"),
    ),
}  # fmt: skip
SERVED: Final = "b200x8-sr780a mlperf v5.1 llama3.1-405b server"
RATE: Final = 1.9
"""Requests a second that the submission schedules."""
LENGTHS: Final = (9428.0, 684.0)
"""Mean tokens in and out of the data set of the benchmark."""
VARIATION: Final = 0.5
"""Of the lengths (assumed)."""
REQUESTS: Final = 2600
WINDOWS: Final = (1, 2, 5)
_EDGE: Final = 60.0
"""s at both ends of a run that are left out."""
_PLATEAU: Final = 0.03


def deviation(watts: np.ndarray) -> float:
    """Relative standard deviation of readings at the plateau, by their median."""
    plateau = np.median(watts[watts > np.median(watts)])
    near = watts[np.abs(watts / plateau - 1) < _PLATEAU]
    middle = np.median(near)
    return float(1.4826 * np.median(np.abs(near - middle)) / middle)


def lengths(random: Any, mean: float) -> np.ndarray:
    """Lognormal lengths of requests (tokens)."""
    sigma = np.sqrt(np.log1p(VARIATION**2))
    drawn = random.lognormal(np.log(mean) - sigma**2 / 2, sigma, REQUESTS)
    return np.maximum(np.round(drawn), 1.0)


def served(curve: Any) -> tuple[float, list[float], np.ndarray]:
    """Mean (W) of the curve without its ends, standard deviations in windows of
    `WINDOWS` s, and 5, 50 and 95 % of seconds."""
    watts = curve.bins(1.0)[round(_EDGE) : -round(_EDGE)]
    return spread(watts)


def spread(watts: np.ndarray) -> tuple[float, list[float], np.ndarray]:
    """The same of readings of every second."""
    sds = []
    for window in WINDOWS:
        number = len(watts) // window
        sds.append(float(watts[: number * window].reshape(number, -1).mean(1).std()))
    return float(watts.mean()), sds, np.quantile(watts, (0.05, 0.5, 0.95))


def power_over_time(
    folder: Annotated[Path, typer.Argument(help="node_power")],
    seed: Annotated[int, typer.Option(help="Of the requests that are drawn.")] = 1,
) -> None:
    """Print two Markdown tables."""
    import pandas as pd

    import diffenergy as de
    from diffenergy.estimator import start_jax
    from diffenergy.serving import simulate

    start_jax()
    rows: Any = pd.read_csv(folder / "mlperf_node_power_traces.csv.gz")

    def trace(name: str) -> tuple[np.ndarray, np.ndarray]:
        own = rows[rows["trace"] == name]
        return own["seconds_from_start"].to_numpy(float), own["wall_w"].to_numpy(float)

    typer.echo(
        "| training | window | predicted rms | read | ratio |\n|---|---|---|---|---|"
    )
    for name, (read, window, request) in TRAINING.items():
        result = de.estimate(**request, power_step=0.01)  # pyright: ignore
        curve = result.curves["wall"]
        starts = np.linspace(0.0, curve.time, 2000, endpoint=False)
        said = float(curve.means(starts, window).std() / curve.mean)
        seconds, watts = trace(read)
        there = deviation(watts[seconds > 0])
        typer.echo(
            f"| {name} | {window:g} s | {100 * said:.2f} % | {100 * there:.2f} % | "
            f"{said / there:.2f} |"
        )

    random = np.random.default_rng(seed)
    arrival = np.cumsum(random.exponential(1 / RATE, REQUESTS))
    reads, makes = (lengths(random, x) for x in LENGTHS)
    table = {"arrival_s": arrival, "input_len": reads, "output_len": makes}
    result = simulate(
        table, "llama-3.1-405b", "b200", num_gpus=8, tp=4, dtype="nvfp4",
        kv_dtype="fp8", engine="trtllm", node="hgx-b200-water", power_step=1.0,
    )  # pyright: ignore  # fmt: skip
    said = served(result.curves["wall"])
    seconds, watts = trace(SERVED)
    inside = (seconds >= _EDGE) & (seconds < seconds[-1] - _EDGE)
    there = spread(watts[inside])
    typer.echo("\n| served | mean | sd in 1, 2, 5 s | 5, 50, 95 % |\n|---|---|---|---|")
    for who, (mean, sds, marks) in (("predicted", said), ("read", there)):
        typer.echo(
            f"| {who} | {mean:,.0f} W | {', '.join(f'{x:.0f}' for x in sds)} W | "
            f"{', '.join(f'{x:,.0f}' for x in marks)} W |"
        )
    ratios = ", ".join(f"{a / b:.2f}" for a, b in zip(said[1], there[1], strict=True))
    typer.echo(f"| ratio | {said[0] / there[0]:.3f} | {ratios} | |")


if __name__ == "__main__":
    typer.run(power_over_time)
