"""Constants of serving engines, fitted to measured servers, and what they leave.

    python calibration/studies/served/engines.py DATA
    python calibration/studies/served/engines.py DATA --write

DATA holds `serving/mlenergy_v3_serving.csv` and
`aiconfigurator/e2e_serving_agg.csv.gz`.
Fitted are, by engine and generation of GPUs together: servers of one GPU (ML.ENERGY:
dense Qwen3, gemma-3 and Qwen3-30B-A3B under vLLM 0.11; H100 chat, code and reasoning,
B200 chat and code, at most 600 running), Qwen3-32B on H100 by TP degree and mixtures on
H100, H200 and B200 (AIConfigurator's table, closed loops). Left out in turn: a model, a
GPU, a TP degree. Rows of several GPUs of ML.ENERGY are never fitted.
Linear layers, host and sampling all grow with the batch, and a fit that moves all three
shares time among them that no row tells apart. For vLLM linear layers stay as they are
predicted, sequences cost the host nothing (its scheduler runs beside the GPU) and sorts
take what medians of gaps leave beside the kernels (Qwen3-8B on H100): `_FROZEN`.
SGLang and TensorRT-LLM have only mixtures on B200, which move `experts` and `small`
alone. Factors on predicted energy (`ENERGY_FACTORS`) stay 1, too: models left out are
predicted better without them.
`untuned` is off; the table shows it on servers of ML.ENERGY whose experts vLLM 0.11 has
no tuned tiles for (Qwen3-235B-A22B), fitted to the other numbers of GPUs.
`--write` puts what all rows give into `diffenergy/data/corrections/engines.toml`.
"""

import argparse
import dataclasses
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
import diffenergy  # noqa: E402
from calibration.studies.served.tables import (  # noqa: E402
    aiconfigurator,
    mixtures,
    ml_energy,
)
from diffenergy.hardware import read_gpu  # noqa: E402
from diffenergy.serving._engine import constants  # noqa: E402
from diffenergy.serving._fitting.fit import (
    ENERGY_FACTORS,
    QUANTITIES,
    Served,
    as_arrays,
    fitted,
    read_serving,  # noqa: E402
    served,
)

_MOST: Final = {"h100-sxm": 1000, "b200-sxm": 600}
"""Running requests of fitted rows; beyond, B200 hosts run out of requests."""
_FROZEN: Final = (
    *ENERGY_FACTORS, "linear", "sequence", "penalties_few", "sort_start", "sort_many",
)  # fmt: skip
"""Constants of vLLM that stay at their priors: the docstring says why."""
_UNREAD: Final = (*ENERGY_FACTORS, "few_power", "many_power")
"""Constants of SGLang and TensorRT-LLM that stay: no row has a power."""
_OWN: Final = ("experts", "small")
"""Constants that follow the libraries of a GPU."""
_UNTUNED: Final = 6.3e-6
"""s a layer: experts of Qwen3-235B-A22B under vLLM 0.11 (the deployment study)."""
_HEAD: Final = (
    "| left out | rows | TPOT | W | J per token | TTFT |",
    "|---|---:|---:|---:|---:|---:|",
)
_FILE: Final = Path(diffenergy.__file__).parent / "data/corrections/engines.toml"


def tables(data: Path) -> pd.DataFrame:
    """All measured servers."""
    closed = data / "aiconfigurator/e2e_serving_agg.csv.gz"
    energy = ml_energy(data / "serving/mlenergy_v3_serving.csv")
    return pd.concat(
        [energy, aiconfigurator(closed), mixtures(closed)], ignore_index=True
    )


def load(frame: pd.DataFrame) -> Served:
    """Rows of a table with predicted steps."""
    from tempfile import mkdtemp

    path = Path(mkdtemp()) / "serving.csv"
    frame.to_csv(path, index=False)

    def tell(done: int, total: int):
        print(f"\r{done} of {total} tables", end="", file=sys.stderr)

    found = served(read_serving(path), tell)
    print(file=sys.stderr)
    return found


def prior(generation: str) -> dict[str, float]:
    """Prior centres of the constants on GPUs of a generation."""
    centre = {"Hopper": 0.8, "Blackwell": 0.6}[generation]
    return {n: centre if n in _OWN else x.centre for n, x in constants().items()}


def none() -> dict[str, float]:
    """Constants of no engine: kernels alone."""
    ones = {name for name, x in constants().items() if x.unit == "-"}
    powers = ("few_power", "many_power")
    return {n: float(n in ones) * (0.5 if n in powers else 1.0) for n in constants()}


def errors(found: Served, predicted: np.ndarray, rows: np.ndarray) -> str:
    """Median (90th percentile) of absolute errors, %, by quantity, as cells."""
    miss = 100 * np.abs(np.expm1(predicted - found.read))[rows]
    cells = []
    for name in ("tpot", "power", "energy", "ttft"):
        x = miss[:, QUANTITIES.index(name)]
        x = x[np.isfinite(x)]
        cells.append(
            f"{np.median(x):.1f} ({np.quantile(x, 0.9):.0f})" if len(x) else "-"
        )
    return f"{rows.sum()} | {' | '.join(cells)}"


class Region(NamedTuple):
    """Rows of one engine on GPUs of one generation: `found`, their columns `frame`,
    which of them are fitted (`use`), from `centres`, with constants `held`."""

    found: Served
    frame: pd.DataFrame
    use: np.ndarray
    centres: dict[str, float]
    held: tuple[str, ...]

    @property
    def group(self) -> np.ndarray:
        """Model of each row."""
        return np.array([_family(x) for x in self.frame["name"]])

    def values(self, left: np.ndarray | None = None) -> dict[str, float]:
        """Constants of the fitted rows without those `left` out."""
        rows = self.use if left is None else self.use & ~left
        if not rows.any():
            return self.centres
        return self.centres | fitted(self.found, rows, self.centres, self.held)

    def predict(self, values: Mapping[str, float]) -> np.ndarray:
        """ln of all figures with constants `values`."""
        return self.found.predict(as_arrays(values))

    def folds(self, groups: np.ndarray, mine: np.ndarray) -> np.ndarray:
        """Predictions, each group among the rows `mine` by constants of all others."""
        out = np.full_like(self.found.read, np.nan)
        for group in np.unique(groups[mine]):
            left = groups == group
            out[left] = self.predict(self.values(left))[left]
        return out

    def of(self, campaign: str) -> np.ndarray:
        """Rows of a campaign that are fitted."""
        return self.use & (self.frame["campaign"] == campaign).to_numpy()


def regions(found: Served, frame: pd.DataFrame) -> dict[tuple[str, str], Region]:
    """Rows by engine and generation of GPUs."""
    frame = frame.loc[[row.number for row in found.given]].reset_index(drop=True)
    most = pd.Series([_MOST.get(x, np.inf) for x in frame["gpu"]])
    own = frame["campaign"] != "ml-energy"
    alone = (frame["num_gpus"] == 1) & (frame["running_requests"] <= most)
    use = (own | alone).to_numpy()
    generation = np.array([read_gpu(x).architecture for x in frame["gpu"]])
    places = np.array(frame["engine"] + " " + generation)
    out = {}
    for place in np.unique(places):
        engine, _, kind = place.partition(" ")
        rows = np.flatnonzero(places == place)
        held = ("untuned", *(_FROZEN if engine == "vllm" else _UNREAD))
        if kind == "Blackwell" and engine != "vllm":
            held = tuple(x for x in constants() if x not in ("experts", "small"))
        cut = dataclasses.replace(
            found,
            columns=jax.tree.map(lambda x, rows=rows: x[rows], found.columns),
            read=found.read[rows],
            hosts=[found.hosts[i] for i in rows],
            given=[found.given[i] for i in rows],
        )
        place = frame.iloc[rows].reset_index(drop=True)
        out[engine, kind] = Region(cut, place, use[rows], prior(kind), held)
    for engine in ("sglang", "trtllm"):
        # other constants of B200's hosts are those of the engine
        known = {
            k: v for k, v in out[engine, "Hopper"].values().items() if k not in _OWN
        }
        mine = out[engine, "Blackwell"]
        out[engine, "Blackwell"] = mine._replace(centres=mine.centres | known)
    return out


def study(places: Mapping[tuple[str, str], Region]) -> Iterator[str]:
    """Lines of the table of errors."""
    for name, kind, other in (
        ("h100-sxm", "Hopper", "Blackwell"), ("b200-sxm", "Blackwell", "Hopper")
    ):  # fmt: skip
        place = places["vllm", kind]
        mine, values = place.of("ml-energy"), place.values()

        def line(
            what: str, predicted: np.ndarray, rows: np.ndarray, place: Region = place,
            name: str = name,
        ) -> str:  # fmt: skip
            return f"| {name}, {what} | {errors(place.found, predicted, rows)} |"

        yield line("no engine", place.predict(none()), mine)
        yield line("a model", place.folds(place.group, mine), mine)
        theirs = places["vllm", other].values()
        yield line("the GPU", place.predict(theirs), mine)
        several = (place.frame["campaign"] == "ml-energy").to_numpy() & ~place.use
        several &= (place.frame["num_gpus"] > 1).to_numpy()
        mixture = np.array(["A3B" in x or "A22B" in x for x in place.group])
        shipped = place.predict(values)
        yield line("dense on several", shipped, several & ~mixture)
        yield line("mixture on several", shipped, several & mixture)
        big = several & np.array(["235B" in x for x in place.group])
        fp8 = (place.frame["dtype"] == "fp8_block").to_numpy()
        for what, rows in (("bf16", big & ~fp8), ("fp8", big & fp8)):
            tiles = values | {"untuned": _UNTUNED}
            tiles |= {"experts": 1.5} if what == "fp8" else {}
            yield line(f"235B {what}", shipped, rows)
            yield line(f"235B {what}, untuned", place.predict(tiles), rows)
    for engine in ("vllm", "sglang", "trtllm"):
        place = places[engine, "Hopper"]
        mine = place.of("aiconfigurator")
        kernels = place.predict(none())
        yield f"| {engine}, no engine | {errors(place.found, kernels, mine)} |"
        degrees = np.where(mine, place.frame["tp"], 0)
        found = place.folds(degrees, mine)
        yield f"| {engine}, a TP degree | {errors(place.found, found, mine)} |"
    for (engine, kind), place in places.items():
        mine = place.of("inferencex")
        if not mine.any():
            continue
        for what, predicted in (
            ("no engine", place.predict(none())),
            ("fitted", place.predict(place.values())),
            ("a model", place.folds(place.group, mine)),
        ):
            cells = errors(place.found, predicted, mine)
            yield f"| {engine}, mixtures on {kind}, {what} | {cells} |"


def shipped(places: Mapping[tuple[str, str], Region]) -> dict[str, Any]:
    """Levels of all rows by engine and host. An engine elsewhere has the mean of its
    hosts (vLLM) or the constants of Hopper, without the factors of experts and small
    kernels, which the libraries of a GPU set."""
    found: dict[str, Any] = {"engine": {}, "host": {}}
    values = {place: region.values() for place, region in places.items()}
    for engine in dict.fromkeys(engine for engine, _ in places):
        both = [values[engine, kind] for kind in ("Hopper", "Blackwell")]
        start = prior("Hopper") | dict.fromkeys(_OWN)
        free = [x for x in start if any(y[x] != start[x] for y in both)]
        for kind, own in zip(("h100-sxm", "b200-sxm"), both, strict=True):
            names = free if engine == "vllm" else _OWN
            found["host"][f"{engine}:{kind}"] = {x: own[x] for x in names}
        own = [both[0]] if engine != "vllm" else both
        found["engine"][engine] = {
            x: float(f"{np.mean([y[x] for y in own]):.3g}")
            for x in free
            if x not in _OWN
        }
    return found


def _family(name: str) -> str:
    return re.sub(r"Qwen/Qwen3-(Coder-)?30B-A3B.*", "Qwen3-30B-A3B", name)


def written(levels: Mapping[str, Any]) -> str:
    """The file with the levels in place of those that it has."""
    text = _FILE.read_text()
    kept = ("vllm-v0",)
    for kind, tables in levels.items():
        for name, values in tables.items():
            head = f"[{kind}.{name}]" if kind == "engine" else f'[{kind}."{name}"]'
            body = "".join(f"{k} = {v}\n" for k, v in values.items())
            pattern = re.compile(rf"^{re.escape(head)}\n(?:[^\[\n].*\n)*", re.M)
            if pattern.search(text) and name not in kept:
                text = pattern.sub(f"{head}\n{body}", text, count=1)
            else:
                place = text.index("\n# Standard deviation")
                text = f"{text[:place]}\n{head}\n{body}{text[place:]}"
    return text


def main():
    """Prints a Markdown table; with `--write` changes the shipped constants."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, help="folder of the measured tables")
    parser.add_argument("--write", action="store_true", help="ship the constants")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    frame = tables(arguments.data)
    places = regions(load(frame), frame)
    if arguments.write:
        levels = shipped(places)
        _FILE.write_text(written(levels))
        print(f"wrote {_FILE.name}", file=sys.stderr)
    print(*_HEAD, sep="\n")
    for line in study(places):
        print(line)


if __name__ == "__main__":
    main()
