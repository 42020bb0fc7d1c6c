"""Rates of CDNA3 and CDNA4 and what an awake MI355X draws.

    python calibration/studies/served/cdna.py DATA [--write FILE]

Prints errors of aiter's products before (core energy of 7 nm), with the law of
processes alone, and with rates fitted to all rows; left-out (n, k) pairs are those of
`calibration/accuracy.py DATA --only cdna-gemm`. Then fits `idle_scale` of CDNA4 to the
power of SGLang with prompts of 1,024 tokens and prints that of all servers; only those
with longer prompts and of ATOM were left out.
"""

import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, Final

import jax
import numpy as np
import pandas as pd
import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from calibration.splits.base import Data
from calibration.splits.kernels import (
    CDNA_TAGS,
    SPLITS,
    cdna_refit,
    cdna_rows,
    cdna_unfitted,
)
from diffenergy.corrections import (
    CorrectionsFile,
    read_corrections,
    write_corrections,
)
from diffenergy.fitting import predict
from diffenergy.serving import Load, steady_state

(_SCORES,) = (split.scores for split in SPLITS if split.name == "cdna-gemm")
SERVED: Final = "node_power/inferencex_mi355x_dsr1_served_power.csv"
_BEFORE: Final = {f"node:{x}": {"core_energy": 1.0} for x in ("6nm/5nm", "6nm/N3E")}
_IDLE_SD, _POWER_SD = 0.15, 0.1
"""Sd in ln: of `idle_scale` around 1, of a reading of the served power around ours."""


def served(table: Any, file: CorrectionsFile) -> np.ndarray:
    """Our W a GPU of servers of DeepSeek-R1, block-scaled fp8."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "constants.json"
        path.write_text(write_corrections(file))
        powers = []
        for row in table.itertuples():
            load = Load(
                concurrency=int(row.concurrency),
                input_len=int(row.input_len),
                output_len=int(row.output_len),
            )
            tp = int(row.decode_tp)
            server: dict[str, Any] = dict(tp=tp, engine="sglang", corrections=str(path))
            answer = steady_state("deepseek-v3", "mi355x", load, **server)
            powers.append(answer.power / tp)
    return np.array(powers)


def servers(folder: Path) -> Any:
    """Servers without GPUs set apart for prompts; `fitted`: whether the idle power
    rests on them."""
    table: Any = pd.read_csv(folder / SERVED)
    table = table[~table["disagg"]].reset_index(drop=True)
    short = table["input_len"] == table["output_len"]
    return table.assign(fitted=short & (table["framework"] == "sglang"))


def with_level(file: CorrectionsFile, tag: str, **values: float) -> CorrectionsFile:
    """The file with other factors of a tag."""
    new = {**file.levels.get(tag, {}), **values}
    return dataclasses.replace(file, levels={**file.levels, tag: new})


def idle_scale(table: Any, file: CorrectionsFile) -> float:
    """Posterior mode of the factor: our power is linear in it."""
    fitted = table[table["fitted"]]
    ends = [
        served(fitted, with_level(file, CDNA_TAGS[1], idle_scale=x)) for x in (1.0, 1.4)
    ]
    read = fitted["gpu_w"].to_numpy()
    grid = np.linspace(0.5, 2.0, 1501)
    ours = ends[0] + (grid[:, None] - 1) / 0.4 * (ends[1] - ends[0])
    cost = (np.log(ours / read) / _POWER_SD) ** 2
    return float(grid[np.argmin(cost.sum(1) + (np.log(grid) / _IDLE_SD) ** 2)])


def _errors(data: Data, file: CorrectionsFile) -> list[str]:
    """Percent and median predicted/measured, by line of the accuracy table."""
    table = cdna_rows(data)
    predicted = predict(table, file)
    cells = []
    for score in _SCORES:
        ratio = (predicted.time_s / table.time_s)[score.rows(table, predicted, file)]
        cells.append(f"{100 * np.abs(ratio - 1).mean():5.1f} ({np.median(ratio):.2f})")
    return cells


def study(
    folder: Annotated[Path, typer.Argument(help="folder of the measured tables")],
    write: Annotated[Path | None, typer.Option(help="corrections file")] = None,
) -> None:
    """Fit, print, and with --write put the levels into a corrections file."""
    jax.config.update("jax_enable_x64", True)
    data, law = Data(folder), cdna_unfitted()
    before = dataclasses.replace(law, levels={**law.levels, **_BEFORE})
    refit = cdna_refit(cdna_rows(data))
    columns = [_errors(data, file) for file in (before, law, refit.corrections)]
    print("mean absolute error, % (median predicted/measured): 7 nm, law, fitted")
    for score, *cells in zip(_SCORES, *columns, strict=True):
        print(f"{score.title:45}" + "  ".join(cells))
    table = servers(folder)
    scale = idle_scale(table, refit.corrections)
    file = with_level(refit.corrections, CDNA_TAGS[1], idle_scale=scale)
    print({tag: file.levels[tag] for tag in CDNA_TAGS})
    table["before"], table["ours"] = (
        served(table, refit.corrections),
        served(table, file),
    )
    shown = ["framework", "decode_tp", "input_len", "concurrency", "fitted", "gpu_w"]
    print(table[[*shown, "before", "ours"]].round(0).to_string(index=False))
    if write is not None:
        _write(write, file)


def _write(path: Path, refit: CorrectionsFile):
    """Puts the levels of both architectures, and the rows that they rest on, into a
    corrections file."""
    file, new = read_corrections(path), refit.fitted_on
    levels = {tag: refit.levels[tag] for tag in CDNA_TAGS}
    gpus = [gpu for gpu, tag in new["architectures"].items() if tag in CDNA_TAGS]
    on = file.fitted_on
    sources = [*on["sources"], "aiter_gemm.csv", Path(SERVED).name]
    apart = [f"{tag}/{name}" for tag in CDNA_TAGS for name in levels[tag]]
    fitted_on = {
        **on,
        "architectures": on["architectures"]
        | {x: new["architectures"][x] for x in gpus},
        "rows": on["rows"] | {f"{x}:gemm": new["rows"][f"{x}:gemm"] for x in gpus},
        "sources": list(dict.fromkeys(sources)),
        "apart": sorted({*on["apart"], *apart}),
    }
    file = dataclasses.replace(
        file, levels={**file.levels, **levels}, fitted_on=fitted_on
    )
    path.write_text(write_corrections(file), encoding="utf-8")


if __name__ == "__main__":
    typer.run(study)
