"""How unequal the experts of a served mixture are: what it takes by `lognormal_X`.

    python calibration/studies/served/routing.py DATA

DATA holds `serving/mlenergy_v3_serving.csv`. Rows of Qwen3-30B-A3B on one GPU, priced
with constants of the engine that the dense models of that GPU give, for several values
of X. The default of `estimate` and `serve` was read off the H100's lines; those of the
B200, and mixtures on several GPUs, were not used for it.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from calibration.studies.served.engines import (  # noqa: E402
    FROZEN,
    MOST,
    errors,
    load,
    prior,
)
from calibration.studies.served.tables import ml_energy  # noqa: E402
from diffenergy.serving._fitting.fit import Served, as_arrays, fitted  # noqa: E402

_SPREADS: Final = (0.0, 0.5, 0.8, 1.0, 1.2, 1.5)
_HEAD: Final = (
    "| GPU | X | rows | TPOT | W | J per token | TTFT | inside |",
    "|---|---:|---:|---:|---:|---:|---:|---:|",
)


def _all(served: Served) -> np.ndarray:
    return np.full(len(served.rows), True)


def main():
    """Prints a Markdown table: median errors (90th percentile), %."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, help="folder of the measured tables")
    jax.config.update("jax_enable_x64", True)
    path = parser.parse_args().data / "serving/mlenergy_v3_serving.csv"
    frame: Any = ml_energy(path)
    few = frame["running_requests"] <= frame["gpu"].map(MOST)
    frame = frame[(frame["num_gpus"] == 1) & few & ~frame["waits"]]
    mixed = frame["name"].str.contains("A3B")
    print(*_HEAD, sep="\n")
    for gpu in MOST:
        here = frame["gpu"] == gpu
        dense = load(frame[here & ~mixed], f"{gpu}, dense")
        values = as_arrays(prior() | fitted(dense, _all(dense), prior(), FROZEN))
        for spread in _SPREADS:
            rows = frame[here & mixed].assign(routing=f"lognormal_{spread:g}")
            served = load(rows, f"{gpu}, {spread:g}")
            cells = errors(served, served.predict(values), _all(served))
            print(f"| {gpu} | {spread:g} | {cells} |")


if __name__ == "__main__":
    main()
