"""Fit the corrections to measured tables.

    python calibration/optimize.py DATA.csv OP=DATA.csv ... --workloads F.jsonl \
        --out corrections.json
"""

from pathlib import Path
from typing import Annotated

import typer


def optimize(
    data: Annotated[list[str], typer.Argument(help="FILE.csv or OP=FILE.csv")],
    out: Annotated[Path, typer.Option(help="corrections file to write")],
    workloads: Annotated[
        list[Path] | None, typer.Option(help="kernel listings")
    ] = None,
    start: Annotated[
        Path | None, typer.Option(help="corrections to start from")
    ] = None,
    holdout: Annotated[
        list[str] | None, typer.Option(help="COLUMN=VALUE: rows that are not fitted")
    ] = None,
    seed: int = 0,
    max_steps: int = 40,
) -> None:
    """Fit the corrections to measured rows and write them to OUT."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from diffenergy.corrections import (
        prior_file,
        read_corrections,
        write_corrections,
    )
    from diffenergy.files import write_text_atomic
    from diffenergy.fitting.calibrate import calibrate
    from diffenergy.fitting.predict import predict
    from diffenergy.measurements import read_measurements, summary_json
    from diffenergy.workload.listing import read_listings

    try:
        listings = {x.name: [x] for f in workloads or [] for x in read_listings(f)}
        before = read_corrections(start) if start else prior_file()
        tables = [read_measurements([spec], workloads=listings) for spec in data]
        kept = [_without(table, holdout or []) for table in tables]
        result = calibrate(
            kept,
            listings,
            before,
            seed=seed,
            max_steps=max_steps,
            sources=[Path(spec.rpartition("=")[2]).name for spec in data],
            progress=lambda n, cost: typer.echo(f"{n} {cost:.2f}", err=True),
        )
        write_text_atomic(out, write_corrections(result.corrections), inputs=data)
    except ValueError as error:
        typer.echo(f"optimize: {error}", err=True)
        raise typer.Exit(2) from None
    for label, table in zip(data, tables, strict=True):
        errors = summary_json(table, predict(table, listings, result.corrections))
        shown = {
            name: value if value is None else round(value, 2)
            for name, value in errors.items()
            if name != "groups"
        }
        typer.echo(f"{Path(label).name}: {shown}")


def _without(table, holdout: list[str]):  # noqa: ANN001, ANN202
    """The table with the readings of held-out rows blanked."""
    import numpy as np

    from diffenergy.fitting.calibrate import blanked

    held = np.zeros(table.num_rows, dtype=bool)
    for rule in holdout:
        column, equals, value = rule.partition("=")
        if not equals or column not in table.frame:
            raise ValueError(
                f"`--holdout` is '{rule}'; give COLUMN=VALUE with a known column."
            )
        held |= (table.frame[column] == value).to_numpy()
    return blanked(table, held)


if __name__ == "__main__":
    typer.run(optimize)
