"""Tiles that libraries choose, beside the best legal ones by the model.

    python calibration/studies/tile_choice.py [../shared/data] [--goal time]

First against nvMatmulHeuristics (if it is installed): bf16 products of bundled models
in prefill and decode, how often its tile is the model's best, and what its tile and the
model's own mixture of library tiles are predicted to take above the best. Then, where a
folder of measured tables is given, against the tiles that cuBLAS ran in NeuSight's fp32
products.
"""

import dataclasses
import functools
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import typer
from jaxtyping import Float

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from calibration.importers import neusight
from calibration.splits.base import as_table
from calibration.studies.tile_heuristics import heuristic_tile
from diffenergy.codesign._tiles.grid import legal_tiles
from diffenergy.codesign._tiles.tiles import (
    FIELDS,
    VALUES,
    Shapes,
    Tiles,
    gemm_rows,
    with_tiles,
)
from diffenergy.codesign._tiles.tuning import Tuning, limited_clocks, products_of, tune
from diffenergy.compiling import call_compiled, compiler_options
from diffenergy.corrections import Corrections, read_corrections
from diffenergy.dtypes import code
from diffenergy.dvfs import Costs, row_costs
from diffenergy.estimator._estimate import estimate_once
from diffenergy.hardware import GpuCard, default_point, read_gpu
from diffenergy.hardware._spec import GpuSpec
from diffenergy.kernels.gemm import SimtGemm
from diffenergy.kernels.gemm.simt import demand
from diffenergy.measurements import MeasurementTable
from diffenergy.physics._timeline import timing
from diffenergy.workload import Listing, assemble, load_model
from diffenergy.workload._listing import normalise_kernel

_GPUS: Final = ("a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200-sxm")
_MODELS: Final = ("gpt2-xl", "llama-3.1-8b", "llama-3.1-70b", "qwen2-7b", "opt-6.7b")
_PREFILL: Final = ((1, 256), (1, 1024), (8, 1000))
"""Batch, tokens."""
_DECODE: Final = (1, 16, 64, 256)
"""Batch."""
_LIBRARY: Final = {
    "A100": "a100-pcie-40gb",
    "P100": "p100-pcie-16gb",
    "T4": "t4",
    "H100": "h100-sxm",
    "V100": "v100-pcie-32gb",
}
_SIZE: Final = ("batch", "m", "n", "k")
_ROWS: Final = 1000
"""Sampled rows a GPU, seed 0."""
_SHARE: Final = 0.01
"""Tiles below this share of the rows are not counted to the library's menu."""


def tile_choice(
    folder: Annotated[
        Path | None, typer.Argument(help="folder of the measured tables")
    ] = None,
    goal: Annotated[str, typer.Option(help="time or energy")] = "time",
) -> None:
    """Print two Markdown tables."""
    jax.config.update("jax_enable_x64", True)
    listings = shapes()
    typer.echo(
        f"| GPU | products | same tile | up to a swap | heuristics / best, {goal}: "
        "median | P90 | mixture / best: median | P90 |"
    )
    typer.echo("|---|---|---|---|---|---|---|---|")
    for gpu in _GPUS:
        typer.echo(f"| {gpu} | {_cells(heuristics(gpu, listings, goal))} |")
    if folder is None:
        return
    typer.echo(
        "\n| GPU | rows | cuBLAS / best of its menu: median | P90 | "
        "cuBLAS / best legal: median | P90 |"
    )
    typer.echo("|---|---|---|---|---|---|")
    for label, gpu in _LIBRARY.items():
        for words, seconds in (("", 0.0), (" above 300 us", 300e-6)):
            cells = _cells(library(folder, gpu, seconds))
            typer.echo(f"| {label}{words} | {cells} |")


def shapes() -> list[Listing]:
    """Distinct bf16 products of `_MODELS`, each with its weights in DRAM."""
    distinct: dict[tuple[int, ...], dict[str, Any]] = {}
    for name in _MODELS:
        model = load_model(name)
        runs = [
            *(
                model.listings(phase="prefill", batch=b, input_len=n)
                for b, n in _PREFILL
            ),
            *(model.listings(phase="decode", batch=b, input_len=512) for b in _DECODE),
        ]
        for product in itertools.chain.from_iterable(map(gemm_rows, runs)):
            size = tuple(int(product.kernel[key]) for key in _SIZE)
            distinct[size] = dict(zip(_SIZE, size, strict=True))
    kernels = tuple(
        normalise_kernel({"op": "gemm", "dtype": "bf16", **size}, "here")
        for size in distinct.values()
    )
    return [Listing("shapes", kernels=kernels, dispatch="graph")]


def heuristics(gpu: str, listings: Sequence[Listing], goal: str) -> list[Any]:
    """Products, shares of equal tiles, and ratios of `goal`: of the tiles of
    nvMatmulHeuristics and of the model's mixture / of the best."""
    card = read_gpu(gpu)
    served = read_corrections(None).serve(card)
    tuning = tune(listings, card, served, goal="energy" if goal == "energy" else "time")
    theirs = _heuristic_tiles(gpu, tuning)
    costs = costs_with(listings, theirs, card, served)[goal == "energy"]
    best = np.array([getattr(tuned, goal) for tuned in tuning.products])
    default = np.array([getattr(tuned, f"default_{goal}") for tuned in tuning.products])
    pairs = [(x.tile["tile_m"], x.tile["tile_n"]) for x in tuning.products]
    chosen = list(
        zip(*(x.tolist() for x in (theirs.tile_m, theirs.tile_n)), strict=True)
    )
    same = [a == b for a, b in zip(pairs, chosen, strict=True)]
    turned = [a in (b, b[::-1]) for a, b in zip(pairs, chosen, strict=True)]
    shares = (f"{100 * np.mean(x):.0f} %" for x in (same, turned))
    return [len(best), *shares, *_ratios(costs / best), *_ratios(default / best)]


def costs_with(
    listings: Sequence[Listing],
    tiles: Tiles,
    card: GpuCard,
    corrections: Corrections,
) -> tuple[Float[np.ndarray, " gemm"], Float[np.ndarray, " gemm"]]:
    """(time in s, energy in J) of one launch of each of `gemm_rows` with `tiles`, legal
    or not, counted like those of `tune` at the highest clocks."""
    gpu, products = card.spec, gemm_rows(listings)
    point = default_point(gpu)
    whole = (assemble(listings), gpu, point, corrections)
    clocks, static = limited_clocks(
        call_compiled(estimate_once, whole), point, products
    )
    workload = products_of(assemble(with_tiles(listings, tiles)), products)
    costs = Costs(*call_compiled(row_costs, (workload, gpu, clocks, corrections)))
    time = np.asarray(costs.time)
    return time, np.asarray(costs.work) + static * time


def _heuristic_tiles(gpu: str, tuning: Tuning) -> Tiles:
    tiles = []
    for tuned in tuning.products:
        batch, m, n, k = (float(tuned.product.kernel[x]) for x in _SIZE)
        tiles.append(heuristic_tile(gpu, m, n, k, batch=batch))
    return jax.tree.map(lambda *x: jnp.stack(x), *tiles)


def library(folder: Path, gpu: str, seconds: float) -> list[Any]:
    """Sampled rows that ran longer than `seconds`, and ratios of the predicted time
    with cuBLAS's tile / with the best one of its menu, and of the legal ones."""
    card = read_gpu(gpu)
    served = read_corrections(None).serve(card)
    ran, menu = _products(folder, gpu, seconds)
    options = compiler_options(once=True)
    timed = jax.jit(_simt_time, compiler_options=options)
    batched = np.asarray(ran.linear) == 0

    def least(tiles: Sequence[dict[str, float]]) -> Float[np.ndarray, " row"]:
        best = own
        for tile in tiles:
            times = np.asarray(timed(_with(ran, tile), card.spec, served))
            split = batched & (tile["split_k"] > 1)  # cuBLAS splits linear layers only
            best = np.minimum(best, np.where(split, np.inf, times))
        return best

    own = np.asarray(timed(ran, card.spec, served))
    ratios = (_ratios(own / least(tiles)) for tiles in (menu, _legal(card.spec)))
    return [len(own), *itertools.chain(*ratios)]


def _with(shape: SimtGemm, tile: dict[str, float]) -> SimtGemm:
    whole = {name: np.full(shape.m.shape, x) for name, x in tile.items()}
    return dataclasses.replace(shape, **whole)


def _legal(gpu: GpuSpec) -> list[dict[str, float]]:
    """Legal tiles on CUDA cores, splits up to 8."""
    long = np.array([4096.0])
    shape = Shapes(long, long, long, np.array([code("fp32")]), np.zeros(1))
    tiles, _ = legal_tiles(gpu, shape)
    columns = [np.asarray(getattr(tiles, name))[:, 0] for name in FIELDS]
    rows = [
        dict(zip(FIELDS, map(float, x), strict=True))
        for x in zip(*columns, strict=True)
    ]
    return [{**row, "slices": 1.0, "threads": 256.0} for row in rows]


def _products(
    folder: Path, gpu: str, seconds: float
) -> tuple[SimtGemm, list[dict[str, float]]]:
    """Sampled products with the tile that cuBLAS ran, and its menu on that GPU: the
    tiles that it ran, each with every split."""
    table = _table(folder)
    values, at = table.fields["gemm"].values, table.fields["gemm"].rows
    mine = np.flatnonzero((table.gpu[at] == gpu) & (table.time_s[at] > seconds))
    names: list[str] = ["tile_m", "tile_n", "threads", "slices"]
    tiles = np.stack([np.asarray(values[name], float)[mine] for name in names], 1)
    known, counts = np.unique(tiles, axis=0, return_counts=True)
    often = known[counts >= _SHARE * counts.sum()]
    menu = [
        dict(zip((*names, "split_k"), (*map(float, tile), split), strict=True))
        for tile, split in itertools.product(often, VALUES["split_k"])
    ]
    rows = np.sort(np.random.default_rng(0).permutation(mine)[:_ROWS])
    fields = {
        name: np.asarray(values[name], float)[rows]
        for name in SimtGemm.__dataclass_fields__
        if name in values and "dtype" not in name
    }
    fp32 = np.full(len(rows), code("fp32"))
    linear = (np.asarray(values["layout"]) == "tn")[rows].astype(float)
    return SimtGemm(**fields, dtype=fp32, out_dtype=fp32, linear=linear), menu


@functools.cache
def _table(folder: Path) -> MeasurementTable:
    return as_table(neusight.translated(folder / "neusight" / "gemm_fp32.csv.gz"))


def _simt_time(shape: Any, gpu: Any, corrections: Any) -> Any:
    """Time of a launch of each product at the highest clocks, s."""
    work = demand(shape, gpu, corrections)
    ones = jnp.ones_like(work.ctas)
    clock = gpu.sm_clock_max * gpu.sm_clock_applied_share * ones
    return timing(work, gpu, corrections, clock, gpu.mem_clock * ones).time[:, 0]


def _ratios(x: Float[np.ndarray, " row"]) -> list[str]:
    """Median and 90th percentile."""
    return [f"{np.median(x):.3f}", f"{np.quantile(x, 0.9):.2f}"]


def _cells(cells: list[Any]) -> str:
    return " | ".join(map(str, cells))


if __name__ == "__main__":
    typer.run(tile_choice)
