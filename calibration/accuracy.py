"""Accuracy with one model family left out of the fit, beside the fitted figures.

    python calibration/accuracy.py DATA.csv OP=DATA.csv ... --workloads F.jsonl

DATA.csv holds passes with the columns `source` and `model`; kernel tables take part in
every fit as they do in `optimize.py`.
"""

from pathlib import Path
from typing import Annotated

import typer


def accuracy(
    data: Annotated[list[str], typer.Argument(help="FILE.csv or OP=FILE.csv")],
    workloads: Annotated[
        list[Path] | None, typer.Option(help="kernel listings")
    ] = None,
    seed: int = 0,
    max_steps: int = 25,
) -> None:
    """Fit once with all rows and once without each model family; print the errors."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import numpy as np

    from diffenergy.corrections import prior_file
    from diffenergy.fitting.calibrate import blanked, calibrate
    from diffenergy.fitting.predict import predict
    from diffenergy.measurements import Predictions, grouped, read_measurements
    from diffenergy.workload.listing import read_listings

    listings = {x.name: [x] for f in workloads or [] for x in read_listings(f)}
    passes, *kernels = [read_measurements([s], workloads=listings) for s in data]
    family = passes.frame["model"].to_numpy()

    def predictions(held: np.ndarray) -> Predictions:
        tables = [blanked(passes, held), *kernels]
        result = calibrate(
            tables, listings, prior_file(), seed=seed, max_steps=max_steps
        )
        return predict(passes, listings, result.corrections)

    def show(label: str, predicted: Predictions) -> None:
        for group in grouped(passes, predicted, ["source"]):
            errors = " / ".join(
                f"{group[f'{name}_mape_pct']:.1f}"
                for name in ("time", "power", "energy")
            )
            typer.echo(
                f"{label:12s} {group['source']:10s} {group['rows']:4d} rows {errors}"
            )

    show("fitted", predictions(np.zeros(passes.num_rows, dtype=bool)))
    out = {
        n: np.full(passes.num_rows, np.nan)
        for n in ("time_s", "energy_j", "avg_power_w")
    }
    grade = skipped = np.full(passes.num_rows, "", dtype=object)
    for name in sorted(set(family)):
        held = family == name
        fold = predictions(held)
        for column, values in out.items():
            values[held] = getattr(fold, column)[held]
        grade, skipped = fold.grade, fold.skipped
        typer.echo(f"without {name}: done", err=True)
    show("left out", Predictions(grade=grade, skipped=skipped, **out))


if __name__ == "__main__":
    typer.run(accuracy)
