"""Parity plots of left-out rows, one picture a GPU, in a folder by architecture.

python calibration/accuracy.py DATA --rows rows.npz
python calibration/parity/plots.py rows.npz calibration/parity
"""

import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

COLUMNS = {"time": "s", "power": "W", "energy": "J"}


def plots(
    rows: Annotated[Path, typer.Argument(help=".npz that accuracy.py wrote")],
    out: Annotated[Path, typer.Argument(help="folder of the pictures")],
) -> None:
    """Draw predicted against measured time, power and energy of every GPU."""
    import matplotlib

    from diffenergy.hardware import read_gpu

    matplotlib.use("Agg")
    data = np.load(rows)
    for gpu in sorted(set(data["gpu"])):
        path = out / read_gpu(str(gpu)).architecture.lower() / f"{gpu}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        draw({name: data[name][data["gpu"] == gpu] for name in data.files}, gpu, path)
        typer.echo(f"{path}")


def draw(data: dict[str, np.ndarray], gpu: str, path: Path) -> None:
    """One picture: a panel for each quantity that was measured."""
    import matplotlib.pyplot as plt
    from matplotlib import ticker

    shown = [word for word in COLUMNS if np.isfinite(data[word]).any()]
    splits = sorted(set(data["split"]))
    palette = plt.get_cmap("tab10" if len(splits) <= 10 else "tab20")
    colours = palette(np.arange(len(splits)))
    figure, axes = plt.subplots(
        1, len(shown), figsize=(4.4 * len(shown), 4.2), squeeze=False
    )
    for axis, word in zip(axes[0], shown, strict=True):
        ends = []
        for colour, split in zip(colours, splits, strict=True):
            mine = data["split"] == split
            measured, predicted = data[word][mine], data[f"{word}_pred"][mine]
            finite = np.isfinite(measured) & np.isfinite(predicted)
            if not finite.any():
                continue
            ends += [measured[finite].min(), measured[finite].max()]
            error = 100 * np.mean(np.abs(predicted[finite] / measured[finite] - 1))
            label = f"{split}: {error:.1f} % of {finite.sum()}"
            axis.plot(
                measured[finite],
                predicted[finite],
                ".",
                ms=2.5,
                alpha=0.5,
                c=colour,
                label=label,
            )
        line = np.array([min(ends) / 1.3, max(ends) * 1.3])
        axis.plot(line, line, "k-", lw=0.8)
        for side in (0.8, 1.25):
            axis.plot(line, side * line, "k:", lw=0.6)
        axis.set(
            xscale="log",
            yscale="log",
            xlim=line,
            ylim=line,
            xlabel=f"measured {word}, {COLUMNS[word]}",
            ylabel=f"predicted {word}, {COLUMNS[word]}",
        )
        for side in (axis.xaxis, axis.yaxis):
            side.set_minor_formatter(ticker.LogFormatter(minor_thresholds=(1, 0.4)))
        axis.legend(fontsize=7, markerscale=3, loc="upper left")
    figure.suptitle(
        f"{gpu}, left-out rows\n(lines: equal, -20 %, +25 %)", y=0.99, fontsize=10
    )
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    typer.run(plots)
