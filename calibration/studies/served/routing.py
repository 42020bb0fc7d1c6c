"""How unequal the experts of served mixtures are: errors by X of `lognormal_X`.

    python calibration/studies/served/routing.py DATA

DATA holds `serving/mlenergy_v3_serving.csv` and
`aiconfigurator/e2e_serving_agg.csv.gz`. Rows of vLLM, whose kernels of experts have no
factor there: Qwen3-30B-A3B in bf16 on H100 and B200, gpt-oss-120b and MiniMax-M2.5 on
H100 and H200, with the shipped constants. Models differ: the default of `estimate` and
`serve` lies between them.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from calibration.studies.served.engines import errors, load  # noqa: E402
from calibration.studies.served.tables import mixtures, ml_energy  # noqa: E402
from diffenergy.hardware import read_gpu  # noqa: E402
from diffenergy.serving._engine import levels  # noqa: E402
from diffenergy.serving._fitting.fit import Served, as_arrays  # noqa: E402

_SPREADS: Final = (0.0, 0.4, 0.8, 1.2, 1.6)
_HEAD: Final = (
    "| model | GPUs | X | rows | TPOT | W | J per token | TTFT | inside | bias |",
    "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
)


def rows_of(data: Path) -> pd.DataFrame:
    """Rows of vLLM's mixtures whose kernels no factor scales."""
    energy: Any = ml_energy(data / "serving/mlenergy_v3_serving.csv")
    energy = energy[energy["name"].str.contains("A3B") & ~energy["waits"]]
    closed: Any = mixtures(data / "aiconfigurator/e2e_serving_agg.csv.gz")
    hopper = closed["gpu"].isin(["h100-sxm", "h200-sxm"])
    closed = closed[(closed["engine"] == "vllm") & hopper]
    return pd.concat([energy, closed], ignore_index=True)


def predicted(served: Served) -> np.ndarray:
    """Predictions by the shipped constants of each host."""
    out = np.full_like(served.read, np.nan)
    hosts = np.array(served.hosts)
    for host in set(served.hosts):
        values = levels("vllm", read_gpu(host.partition(":")[2]))
        out[hosts == host] = served.predict(as_arrays(values))[hosts == host]
    return out


def main():
    """Prints a Markdown table: median errors (90th percentile), %."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, help="folder of the measured tables")
    jax.config.update("jax_enable_x64", True)
    frame = rows_of(parser.parse_args().data)
    names = frame["name"].str.replace(r".*30B-A3B.*", "Qwen3-30B-A3B", regex=True)
    alone = np.where(frame["num_gpus"] == 1, "one ", "several ")
    several = names.str.contains("A3B")
    groups = names + " | " + np.where(several, alone, "") + frame["gpu"]
    print(*_HEAD, sep="\n")
    for spread in _SPREADS:
        served = load(frame.assign(routing=f"lognormal_{spread:g}"), f"{spread:g}")
        at = predicted(served)
        group = np.array([groups[row.number] for row in served.rows])
        for name in sorted(set(group)):
            bias = 100 * np.median((at - served.read)[group == name, 0])
            cells = errors(served, at, group == name)
            print(f"| {name} | {spread:g} | {cells} | {bias:+.1f} |")


if __name__ == "__main__":
    main()
