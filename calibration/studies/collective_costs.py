"""Fit the constants of collectives to public tables, and say how well they predict.

    python calibration/studies/collective_costs.py ../shared/data [--write]

Prints Markdown tables: errors on held-out message sizes (every third power of two, in
three folds), errors on a GPU type that was left out, and on another campaign. With
`--write` the constants fitted to everything go to the file that the package ships.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from calibration.studies.cost_fit import Points, fit, link_costs, predicted, stack
from diffenergy import files
from diffenergy.hardware import load_gpu, read_gpu
from diffenergy.hardware._link_costs import FIELDS, link_kind
from diffenergy.physics._links import LINK_KINDS

_FOLDS: Final = 3
_MEGABYTE: Final = 1e6
_FIGURES: Final = 4
_LONG: Final = 260
"""Points of a job that count as many."""
_HEADER: Final = """\
# Constants of collectives among the GPUs of one machine; equations: physics/links.py.
# Fitted by calibration/studies/collective_costs.py to the NCCL tables (2.23-2.29), the
# all-reduce kernels of serving frameworks (CUDA graphs) of AIConfigurator (github
# ai-dynamo/aiconfigurator 095f58a51, Apache-2.0), and for send_recv to Vidur's profiles
# (github microsoft/vidur 7d4751336, MIT). `nvlink` and `pcie`: one set of constants for
# all measured GPUs with that kind of link, equal weight per architecture; `send_recv`
# of pcie is its all_to_all (no measurement).
# Candidates (NCCL: LL, LL128, Simple, reducing switch; custom: one shot, two shot,
# NCCL's ring, reducing switch): floor s, step s, fill s^0.5, relative rate, bias and
# bias_ranks in ln t; share: of the link's rate at 2, 4, 8 GPUs; narrow: extra time of a
# byte of 8-bit reductions.
"""

# reading ------------------------------------------------------------------------


def _nccl(folder: Path) -> pd.DataFrame:
    table = pd.read_csv(folder / "aiconfigurator" / "nccl.csv.gz")
    return table.assign(kind=table["collective"].replace("alltoall", "all_to_all"))


def _custom(folder: Path) -> pd.DataFrame:
    """All-reduce kernels as CUDA graphs replay them: eager ones show their host."""
    table = pd.read_csv(folder / "aiconfigurator" / "custom_allreduce.csv.gz")
    eager = table["backend"].astype(str).str.contains("eager")
    return pd.DataFrame(table[~eager]).assign(kind="custom_all_reduce")


def _vidur(folder: Path) -> pd.DataFrame:
    """Collectives inside one machine; fp16."""
    table = pd.read_csv(folder / "vidur" / "collectives.csv.gz").rename(
        columns={"bytes_as_recorded": "message_bytes", "num_workers": "num_gpus"}
    )
    gpus = {"a100_dgx": "a100_sxm", "h100_dgx": "h100_sxm"}
    inside = table["gpus_per_node"] == table["num_gpus"]
    table = pd.DataFrame(table[inside & table["system"].isin(list(gpus))])
    return table.assign(
        gpu=table["system"].replace(gpus),
        dtype="half",
        framework="vidur",
        kind=table["collective"],
    )


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of GPUs that have a file, under our names, with size class and fold."""

    def name(word: str) -> str:
        try:
            return read_gpu(word).name
        except ValueError:
            return ""

    names = {word: name(word) for word in table["gpu"].unique()}
    table = table.assign(gpu=table["gpu"].replace(names))
    octave = np.log2(table["message_bytes"]).round().astype(int)
    table["fold"] = octave % _FOLDS
    table["large"] = table["message_bytes"] > _MEGABYTE
    columns = [
        *("kind", "gpu", "dtype", "num_gpus", "message_bytes", "framework", "time_us"),
        *("fold", "large"),
    ]
    return pd.DataFrame(table.loc[table["gpu"] != "", columns])


def _merged(table: pd.DataFrame) -> pd.DataFrame:
    """One row a shape: geometric mean over versions and repeats."""
    keys = ["kind", "gpu", "dtype", "num_gpus", "message_bytes", "fold", "large"]
    logs = table.assign(time_us=np.log(table["time_us"]))
    means: Any = logs.groupby(keys, as_index=False)["time_us"].mean()
    return pd.DataFrame(means.assign(time_us=np.exp(means["time_us"])))


def _parts(
    table: pd.DataFrame, *columns: str
) -> Iterator[tuple[tuple[Any, ...], pd.DataFrame]]:
    """(values of `columns`, their rows), in order."""
    for key, part in table.groupby(list(columns)):
        values: Any = key
        yield tuple(values), pd.DataFrame(part)


def _points(table: pd.DataFrame, weight: Any = 1.0) -> Any:
    gpus = table["gpu"]
    specs = {name: load_gpu(name) for name in gpus.unique()}
    rates = {name: float(spec.link_bandwidth) for name, spec in specs.items()}
    reduces = {name: float(spec.links.switch[0]) for name, spec in specs.items()}
    return Points(
        [list(LINK_KINDS).index(kind) for kind in table["kind"]],
        table["message_bytes"].to_numpy(float),
        table["num_gpus"].to_numpy(float),
        (table["dtype"] == "int8").to_numpy(float),
        np.array([rates[name] for name in gpus]),
        np.array([reduces[name] for name in gpus]),
        table["time_us"].to_numpy(float) * 1e-6,
        np.broadcast_to(np.asarray(weight, float), len(table)),
    )


# fits ---------------------------------------------------------------------------


def _fits(jobs: dict[Any, tuple[pd.DataFrame, Any]]) -> dict[Any, Any]:
    """Constants of every job (rows, their weights); jobs of one or two GPUs in one
    program, larger ones in another, so that less is padded."""
    fits = {}
    for long in (False, True):
        some = {k: job for k, job in jobs.items() if (len(job[0]) > _LONG) == long}
        if some:
            constants = fit(stack([_points(*job) for job in some.values()]))
            for i, key in enumerate(some):
                fits[key] = {name: x[i] for name, x in constants.items()}
    return fits


def _architecture(gpu: str) -> str:
    return read_gpu(gpu).architecture


def _link_kind(gpu: str) -> str:
    return link_kind(read_gpu(gpu).values["link_bandwidth"])


def _even(table: pd.DataFrame) -> np.ndarray:
    """Weights by which every architecture counts like one GPU."""
    kinds = table["gpu"].map(_architecture)
    gpus = table.groupby(kinds)["gpu"].transform("nunique")
    return 1.0 / gpus.to_numpy(float)


def _errors(constants: Any, table: pd.DataFrame) -> np.ndarray:
    """Predicted / measured - 1 of every row."""
    measured = table["time_us"].to_numpy() * 1e-6
    return np.asarray(predicted(constants, _points(table))) / measured - 1


def _cell(errors: np.ndarray) -> str:
    if not errors.size:
        return "-"
    sizes = 100 * np.abs(errors)
    return f"{sizes.mean():.1f} / {np.median(sizes):.1f}"


def _held_out(rows: pd.DataFrame, merged: pd.DataFrame) -> None:
    """Print errors on message sizes that the fit did not see."""
    jobs = {
        (gpu, kind, fold): (part, (part["fold"] != fold).to_numpy(float))
        for (gpu, kind), part in _parts(merged, "gpu", "kind")
        for fold in range(_FOLDS)
    }
    fits = _fits(jobs)
    typer.echo("\n| GPU | collective | rows | below 1 MB | from 1 MB |")
    typer.echo("|---|---|---|---|---|")
    for (gpu, kind), part in _parts(rows, "gpu", "kind"):
        error = np.zeros(len(part))
        for fold in range(_FOLDS):
            left_out = (part["fold"] == fold).to_numpy()
            error[left_out] = _errors(fits[gpu, kind, fold], part)[left_out]
        large = part["large"].to_numpy()
        typer.echo(
            f"| {gpu} | {kind} | {len(part)} | {_cell(error[~large])} "
            f"| {_cell(error[large])} |"
        )


def _left_out(rows: pd.DataFrame, merged: pd.DataFrame) -> None:
    """Print errors on a GPU type that the fit did not see: from those of its own
    architecture if there are any, else from all with its kind of link; and from other
    architectures alone."""
    jobs, tests = {}, []
    for (gpu, kind), part in _parts(rows, "gpu", "kind"):
        same = (merged["kind"] == kind) & (merged["gpu"] != gpu)
        same &= merged["gpu"].map(_link_kind) == _link_kind(str(gpu))
        near = merged["gpu"].map(_architecture) == _architecture(str(gpu))
        wide = pd.DataFrame(merged[same & ~near])
        narrow = pd.DataFrame(merged[same & near])
        if not len(wide):
            continue
        if len(narrow):
            jobs[gpu, kind, "best"] = (narrow, 1.0)
        jobs[gpu, kind, "strict"] = (wide, _even(wide))
        tests.append((gpu, kind, part))
    fits = _fits(jobs)
    typer.echo(
        "\n| GPU left out | collective | all | below 1 MB | from 1 MB "
        "| its architecture left out |\n|---|---|---|---|---|---|"
    )
    for gpu, kind, part in tests:
        strict = _errors(fits[gpu, kind, "strict"], part)
        near = fits.get((gpu, kind, "best"))
        error = strict if near is None else _errors(near, part)
        large = part["large"].to_numpy()
        cells = (error, error[~large], error[large], strict)
        typer.echo(f"| {gpu} | {kind} | " + " | ".join(map(_cell, cells)) + " |")


# the shipped file ---------------------------------------------------------------


def _shipped(merged: pd.DataFrame) -> dict[Any, Any]:
    """Constants by (GPU or kind of link, collective), fitted to everything."""
    linked = merged.assign(link=merged["gpu"].map(_link_kind))
    own = {key: (part, 1.0) for key, part in _parts(merged, "gpu", "kind")}
    shared = {key: (part, _even(part)) for key, part in _parts(linked, "link", "kind")}
    return _fits(own) | _fits(shared)


def _text(fits: dict[Any, Any]) -> str:
    """TOML text of the constants."""
    lines = [_HEADER]
    if ("pcie", "send_recv") not in fits:
        fits = fits | {("pcie", "send_recv"): fits["pcie", "all_to_all"]}
    for (owner, block), constants in sorted(fits.items()):
        costs = link_costs(constants, jnp.ones(()))
        lines.append(f"\n[{owner}.{block}]")
        for field in FIELDS:
            values = np.atleast_1d(np.asarray(getattr(costs, field)))
            shown = ", ".join(_number(v) for v in values)
            lines.append(
                f"{field} = {shown}" if len(values) == 1 else f"{field} = [{shown}]"
            )
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    text = f"{float(value):.{_FIGURES}g}"
    return text if any(c in text for c in ".e") else f"{text}.0"


def _other_campaign(vidur: pd.DataFrame, fits: dict[Any, Any]) -> None:
    """Print errors of the NCCL constants on Vidur's all-reduce, which no fit saw."""
    typer.echo("\n| GPU | GPUs | all-reduce of Vidur, below 1 MB | from 1 MB |")
    typer.echo("|---|---|---|---|")
    rows = pd.DataFrame(vidur[vidur["kind"] == "all_reduce"])
    for (gpu, ranks), part in _parts(rows, "gpu", "num_gpus"):
        error = _errors(fits[gpu, "all_reduce"], part)
        large = part["large"].to_numpy()
        cells = f"{_cell(error[~large])} | {_cell(error[large])}"
        typer.echo(f"| {gpu} | {ranks} | {cells} |")


def main(
    folder: Annotated[Path, typer.Argument(help="folder of the measured tables")],
    write: Annotated[bool, typer.Option(help="replace the shipped constants")] = False,
) -> None:
    """Print accuracy as Markdown, cells: mean / median absolute error, %."""
    jax.config.update("jax_enable_x64", True)
    vidur = _named(_vidur(folder))
    sends = pd.DataFrame(vidur[vidur["kind"] == "send_recv"])
    tables = [_named(_nccl(folder)), _named(_custom(folder))]
    rows = pd.DataFrame(pd.concat([*tables, sends], ignore_index=True))
    fewer = _merged(sends)[::8]  # 993 sizes each
    merged = pd.DataFrame(pd.concat([*map(_merged, tables), fewer], ignore_index=True))
    fits = _shipped(merged)
    if write:
        file = Path(files.__file__).parent / "data/facts/collective_costs.toml"
        files.write_text_atomic(file, _text(fits))
        typer.echo(f"wrote {file.name}")
    _other_campaign(vidur, fits)
    _held_out(rows, merged)
    _left_out(rows, merged)


if __name__ == "__main__":
    typer.run(main)
