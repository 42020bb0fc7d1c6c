"""Constants of serving engines, fitted to measured servers, and what they leave.

    python calibration/studies/served/engines.py DATA
    python calibration/studies/served/engines.py DATA --write

DATA holds `serving/mlenergy_v3_serving.csv` and
`aiconfigurator/e2e_serving_agg.csv.gz`.
Fitted are first the rows of one GPU (ML.ENERGY: dense Qwen3, gemma-3 and Qwen3-30B-A3B
under vLLM 0.11; H100 chat, code and reasoning, B200 chat and code, at most 600 running,
but for rows whose boards wait for their host: `ml_energy`)
and Qwen3-32B on H100 by TP degree (AIConfigurator's table, closed loops). Left out in
turn: a model, a GPU, a TP degree, an engine. Rows of several GPUs of ML.ENERGY are
never fitted, but for two constants, on each GPU alone: `untuned`, the time of a load
of expert tiles that vLLM has no sizes for, is fitted to Qwen3-235B-A22B in bf16, and
`padded`, the time of rows that its experts in block-scaled fp8 pad to, to the same
model in fp8; left out: the GPU.
Linear layers, host and sampling all grow with the batch, and a fit that moves all three
shares time among them that no row tells apart. For vLLM linear layers stay as they are
predicted, sequences cost the host nothing (its scheduler runs beside the GPU) and sorts
take what medians of gaps leave beside the kernels (Qwen3-8B on H100; row by row, bound
by launches, they are fitted on B200): `frozen_on`. Factors on predicted energy
(`ENERGY_FACTORS`) stay 1, too: models left out are predicted better without them.
TensorRT-LLM's sequences cost its host nothing, either: with sampling at random both are
one constant, and servers that sample greedily (InferenceX, MLPerf) pay for neither.
Then, with all these as they are, `experts` and `small` of mixtures with experts below
16 bits (DeepSeek-R1, gpt-oss-120b, MiniMax-M2.5 on H100, H200 and B200, the same
table), by engine and generation of GPUs; left out in turn: a model, an engine (by the
mean constants of the others). vLLM on Hopper has neither: without them its rows are off
by 7.3 %, by factors of the other models 9.5 %.
`--write` puts what all rows give into `diffenergy/data/corrections/engines.toml`.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
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
from diffenergy.serving._engine import constants, spread_of  # noqa: E402
from diffenergy.serving._fitting.fit import (
    ENERGY_FACTORS,
    QUANTITIES,
    Served,
    as_arrays,
    fitted,
    read_serving,  # noqa: E402
    served,
)

MOST: Final = {"h100-sxm": 1000, "b200-sxm": 600}
"""Running requests of fitted rows; beyond, B200 hosts run out of requests."""
FROZEN: Final = (
    *ENERGY_FACTORS, "untuned", "padded", "linear", "sequence", "sort_start",
    "sort_many",
)  # fmt: skip
"""Constants of vLLM that stay at their priors: the docstring says why."""
_ROW_BY_ROW: Final = {"h100-sxm": ("penalties_few",)}
"""Constants of a host that medians of its gaps give: the docstring says how."""
_UNREAD: Final = (*ENERGY_FACTORS, "few_power", "many_power", "untuned", "padded")
"""Constants of SGLang and TensorRT-LLM that stay: no row has a power."""
_BESIDE: Final = ("sequence",)
"""Constants of TensorRT-LLM that stay, too: the docstring says why."""
_OWN: Final = ("experts", "small")
"""Constants that follow the libraries of a GPU."""
_HOSTS: Final = {"Hopper": "h100-sxm", "Blackwell": "b200-sxm"}
"""Host whose constants GPUs of a generation have."""
_PRIOR: Final = {"Hopper": 0.8, "Blackwell": 0.6}
"""Prior centre of `_OWN` by generation of GPUs (the deployment study)."""
_UNFITTED: Final = "vllm:h100-sxm"
"""Host without `_OWN`: the docstring says why."""
_TILES: Final = {"untuned": "bf16", "padded": "fp8_block"}
"""Constants of expert tiles, and the type of Qwen3-235B-A22B that each is read off."""
_NORMAL: Final = 1.645
"""95th percentile of a normal distribution."""
_HEAD: Final = (
    "| left out | rows | TPOT | W | J per token | TTFT | inside |",
    "|---|---:|---:|---:|---:|---:|---:|",
)
_FILE: Final = Path(diffenergy.__file__).parent / "data/corrections/engines.toml"


def load(frame: pd.DataFrame, name: str) -> Served:
    """Rows of a table with predicted steps."""
    from tempfile import mkdtemp

    path = Path(mkdtemp()) / "serving.csv"
    frame.to_csv(path, index=False)

    def tell(done: int, total: int):
        print(f"\r{name}: {done} of {total} tables", end="", file=sys.stderr)

    measured = served(read_serving(path), tell)
    print(file=sys.stderr)
    return measured


def prior() -> dict[str, float]:
    """Prior centres of the constants."""
    return {name: x.centre for name, x in constants().items()}


def none() -> dict[str, float]:
    """Constants of no engine: kernels alone."""
    ones = {name for name, x in constants().items() if x.unit == "-"}
    powers = ("few_power", "many_power")
    return {n: float(n in ones) * (0.5 if n in powers else 1.0) for n in constants()}


def errors(measured: Served, predicted: np.ndarray, rows: np.ndarray) -> str:
    """Median (90th percentile) of absolute errors, %, by quantity, and the shares of
    TPOT and of J per token inside the intervals of answers, %, as cells."""
    miss = predicted - measured.read
    size = 100 * np.abs(np.expm1(miss))[rows]
    cells, inside = [], []
    for name in ("tpot", "power", "energy", "ttft"):
        x = size[:, QUANTITIES.index(name)]
        x = x[np.isfinite(x)]
        cells.append(
            f"{np.median(x):.1f} ({np.quantile(x, 0.9):.0f})" if len(x) else "-"
        )
    for name in ("tpot", "energy"):
        x = np.abs(miss[:, QUANTITIES.index(name)]) / _half_widths(measured, name)
        x = x[rows & np.isfinite(x)]
        inside.append(f"{100 * np.mean(x <= 1):.0f}" if len(x) else "-")
    return f"{rows.sum()} | {' | '.join(cells)} | {' / '.join(inside)}"


def _half_widths(measured: Served, name: str) -> np.ndarray:
    """Half width of the 5 to 95 % interval of ln of a quantity, for every row."""
    mixture = np.asarray(measured.columns["mixture"]) > 0
    several = np.asarray(measured.columns["gpus"]) > 1
    narrow = np.array([row.server.get("dtype") != "bf16" for row in measured.rows])
    spreads = [
        spread_of(row.engine, read_gpu(row.gpu), hard=bool(x))[1]
        for row, x in zip(measured.rows, mixture & (several | narrow), strict=True)
    ]
    return np.array([_NORMAL * x[name] for x in spreads])


def folds(
    measured: Served,
    mine: np.ndarray,
    groups: np.ndarray,
    centres: Mapping[str, float],
    fixed: Sequence[str] = (),
    fit: np.ndarray | bool = True,
) -> np.ndarray:
    """Predictions of the rows `mine`, each group by constants of those of the others
    that a `fit` may see."""
    out = np.full_like(measured.read, np.nan)
    for group in np.unique(groups[mine]):
        left = mine & (groups == group)
        values = dict(centres) | fitted(measured, mine & ~left & fit, centres, fixed)
        out[left] = measured.predict(as_arrays(values))[left]
    return out


class Mixture(NamedTuple):
    """Servers of mixtures at a `host`, one engine on one generation of GPUs: which of
    the rows of `served` are `mine`, the `model` of each, all constants but `_OWN`
    (`base`)."""

    host: str
    served: Served
    mine: np.ndarray
    model: np.ndarray
    base: dict[str, float]

    @property
    def centres(self) -> dict[str, float]:
        """Constants before the fit."""
        kind = _generation(self.host.partition(":")[2])
        return self.base | dict.fromkeys(_OWN, _PRIOR[kind])

    def fitted(self) -> dict[str, float]:
        """`experts` and `small` of all rows."""
        if self.host == _UNFITTED:
            return dict.fromkeys(_OWN, 1.0)
        values = self.centres | fitted(self.served, self.mine, self.centres, self.fixed)
        return {x: values[x] for x in _OWN}

    @property
    def fixed(self) -> tuple[str, ...]:
        """Constants that stay as they are."""
        return tuple(x for x in constants() if x not in _OWN)

    def left_out(self) -> np.ndarray:
        """Predictions of each model by constants of the others."""
        return folds(self.served, self.mine, self.model, self.centres, self.fixed)

    def by_others(self, servers: Mapping[str, "Mixture"]) -> np.ndarray:
        """Predictions by the mean constants of other engines on the same GPUs."""
        end = self.host.partition(":")[2]
        others = [
            x.base | x.fitted()
            for host, x in servers.items()
            if host != self.host and host.endswith(end)
        ]
        mean = {x: float(np.mean([values[x] for values in others])) for x in self.base}
        return self.served.predict(as_arrays(mean))


def mixture_servers(
    mixed: Served, frame: pd.DataFrame, levels: Mapping[str, Any]
) -> dict[str, Mixture]:
    """Mixtures by host, with constants of the dense `levels`."""
    engines = np.array([host.partition(":")[0] for host in mixed.hosts])
    kinds = np.array([_generation(host.partition(":")[2]) for host in mixed.hosts])
    models = np.array(_names(mixed, frame))
    out = {}
    for engine, kind in sorted(set(zip(engines.tolist(), kinds.tolist(), strict=True))):
        host = f"{engine}:{_HOSTS[kind]}"
        own = levels["engine"][engine] | levels["host"].get(host, {})
        mine = (engines == engine) & (kinds == kind)
        out[host] = Mixture(host, mixed, mine, models, prior() | own)
    return out


def study(
    energy: Served,
    frame: pd.DataFrame,
    closed: Served,
    table: pd.DataFrame,
    servers: Mapping[str, Mixture],
) -> Iterator[str]:
    """Lines of the table of errors."""
    gpu = np.array([host.partition(":")[2] for host in energy.hosts])
    names = np.array([_family(row) for row in _names(energy, frame)])
    alone = _columns(energy, frame, "num_gpus") == 1
    running = _columns(energy, frame, "running_requests")
    use = alone & (running <= np.array([MOST[x] for x in gpu]))
    steady = ~_columns(energy, frame, "waits")
    start = prior()
    by_gpu = {}
    for name in MOST:
        mine = use & (gpu == name)
        kernels = energy.predict(as_arrays(none()))
        yield f"| {name}, no engine | {errors(energy, kernels, mine)} |"
        predicted = folds(energy, mine, names, start, frozen_on(name), steady)
        yield f"| {name}, a model | {errors(energy, predicted, mine)} |"
        by_gpu[name] = start | fitted(energy, mine & steady, start, frozen_on(name))
    for name, other in (("h100-sxm", "b200-sxm"), ("b200-sxm", "h100-sxm")):
        mine = use & (gpu == name)
        predicted = energy.predict(as_arrays(by_gpu[other]))
        yield f"| {name}, the GPU | {errors(energy, predicted, mine)} |"
    on = {name: tiles(energy, frame, name, by_gpu[name]) for name in MOST}
    for name, other in (("h100-sxm", "b200-sxm"), ("b200-sxm", "h100-sxm")):
        for kind in ("dense", "mixture"):
            mixture = np.array(["A3B" in x or "A22B" in x for x in names])
            mine = ~alone & (gpu == name) & (mixture == (kind == "mixture"))
            values = by_gpu[name] | on[other]
            predicted = energy.predict(as_arrays(values))
            yield f"| {name}, {kind} on several | {errors(energy, predicted, mine)} |"
    engines = np.array([host.partition(":")[0] for host in closed.hosts])
    degrees = _columns(closed, table, "tp")
    for engine in ("vllm", "sglang", "trtllm"):
        mine = engines == engine
        kernels = closed.predict(as_arrays(none()))
        yield f"| {engine}, no engine | {errors(closed, kernels, mine)} |"
        predicted = folds(closed, mine, degrees, start, _fixed(engine))
        yield f"| {engine}, a TP degree | {errors(closed, predicted, mine)} |"
        others = start | fitted(closed, ~mine, start, _UNREAD)
        predicted = closed.predict(as_arrays(others))
        yield f"| {engine}, the engine | {errors(closed, predicted, mine)} |"
    for host, x in servers.items():
        own, kernels = x.fitted(), x.base | dict.fromkeys(_OWN, 1.0)
        for what, predicted in (
            ("as predicted", x.served.predict(as_arrays(kernels))),
            (f"fitted {own}", x.served.predict(as_arrays(x.base | own))),
            ("a model", x.left_out()),
            ("the engine", x.by_others(servers)),
        ):
            cells = errors(x.served, predicted, x.mine)
            yield f"| mixtures, {host}, {what} | {cells} |"
    for name, other in (("h100-sxm", "b200-sxm"), ("b200-sxm", "h100-sxm")):
        for what, dtype in _TILES.items():
            mine = _of_235b(energy, frame, name, dtype)
            for by, value in (
                ("none", 0.0), (f"{on[name][what]:.3g}", on[name][what]),
                ("of the other GPU", on[other][what]),
            ):  # fmt: skip
                predicted = energy.predict(as_arrays(by_gpu[name] | {what: value}))
                cells = errors(energy, predicted, mine)
                yield f"| {name}, 235B {dtype}, {what} {by} | {cells} |"


def tiles(
    energy: Served, frame: pd.DataFrame, gpu: str, values: Mapping[str, float]
) -> dict[str, float]:
    """Constants of expert tiles, all others as in `values`."""
    centres = prior() | dict(values)
    out = {}
    for name, dtype in _TILES.items():
        fixed = tuple(x for x in constants() if x != name)
        rows = _of_235b(energy, frame, gpu, dtype)
        out[name] = fitted(energy, rows, centres, fixed).get(name, centres[name])
    return out


def _of_235b(energy: Served, frame: pd.DataFrame, gpu: str, dtype: str) -> np.ndarray:
    """Rows of Qwen3-235B-A22B on a GPU."""
    names = np.array(_names(energy, frame))
    big = np.array(["235B" in name for name in names])
    hosts = np.array([host.partition(":")[2] for host in energy.hosts])
    return big & (hosts == gpu) & (_columns(energy, frame, "dtype") == dtype)


def shipped(energy: Served, frame: pd.DataFrame, closed: Served) -> dict[str, Any]:
    """Levels of all rows: an engine's from all of its rows, a host's from its own."""
    start = prior()
    gpu = np.array([host.partition(":")[2] for host in energy.hosts])
    running = _columns(energy, frame, "running_requests")
    use = (_columns(energy, frame, "num_gpus") == 1) & (
        running <= np.array([MOST[x] for x in gpu])
    )
    use &= ~_columns(energy, frame, "waits")
    engines = np.array([host.partition(":")[0] for host in closed.hosts])
    own = fitted(closed, engines == "vllm", start, FROZEN)
    centres = start | {k: own[k] for k in ("sort_few", "request") if k in own}
    levels = {"engine": {"vllm": dict(own)}, "host": {}}
    vllm = fitted(energy, use, centres, FROZEN)
    levels["engine"]["vllm"] = _some(own, ("sort_few", "request")) | vllm
    for name in MOST:
        own = fitted(energy, use & (gpu == name), centres, frozen_on(name))
        level = {x: own.get(x, centres[x]) for x in constants() if x in own | vllm}
        level |= tiles(energy, frame, name, centres | own)
        levels["host"][f"vllm:{name}"] = level
    for engine in ("sglang", "trtllm"):
        levels["engine"][engine] = fitted(
            closed, engines == engine, start, _fixed(engine)
        )
        levels["host"][f"{engine}:h100-sxm"] = {}
    return levels


def frozen_on(gpu: str) -> tuple[str, ...]:
    """Constants of vLLM that stay at their priors on the host of a GPU."""
    return FROZEN + _ROW_BY_ROW.get(gpu, ())


def _fixed(engine: str) -> tuple[str, ...]:
    return FROZEN if engine == "vllm" else _UNREAD + _BESIDE * (engine == "trtllm")


def _generation(gpu: str) -> str:
    return read_gpu(gpu).architecture


def _some(values: Mapping[str, float], names: tuple[str, ...]) -> dict[str, float]:
    return {name: values[name] for name in names if name in values}


def _family(name: str) -> str:
    return re.sub(r"Qwen/Qwen3-(Coder-)?30B-A3B.*", "Qwen3-30B-A3B", name)


def _names(measured: Served, frame: pd.DataFrame) -> list[str]:
    return [str(frame["name"][row.number]) for row in measured.rows]


def _columns(measured: Served, frame: pd.DataFrame, name: str) -> np.ndarray:
    return np.array([frame[name][row.number] for row in measured.rows])


def written(levels: Mapping[str, Any]) -> str:
    """The file with the levels in place of those that it has."""
    text = _FILE.read_text()
    unfitted = ("vllm-v0",)
    for kind, tables in levels.items():
        for name, values in tables.items():
            head = f"[{kind}.{name}]" if kind == "engine" else f'[{kind}."{name}"]'
            body = "".join(f"{k} = {v}\n" for k, v in values.items())
            pattern = re.compile(rf"^{re.escape(head)}\n(?:[^\[\n].*\n)*", re.M)
            if pattern.search(text) and name not in unfitted:
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
    path = arguments.data / "aiconfigurator/e2e_serving_agg.csv.gz"
    frame = ml_energy(arguments.data / "serving/mlenergy_v3_serving.csv")
    table, mixes = aiconfigurator(path), mixtures(path)
    energy, closed = load(frame, "ML.ENERGY"), load(table, "AIConfigurator")
    levels = shipped(energy, frame, closed)
    servers = mixture_servers(load(mixes, "mixtures"), mixes, levels)
    if arguments.write:
        for host, server in servers.items():
            levels["host"][host] = levels["host"].get(host, {}) | server.fitted()
        _FILE.write_text(written(levels))
        print(f"wrote {_FILE.name}", file=sys.stderr)
    print(*_HEAD, sep="\n")
    for line in study(energy, frame, closed, table, servers):
        print(line)


if __name__ == "__main__":
    main()
