"""Fleets as files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Points = Sequence[tuple[str, str, int, float, float]]
"""model, gpu, GPUs of a replica, requests/s, W."""


def write_fleet(
    folder: Path,
    points: Points,
    demand: Sequence[Mapping[str, float]],
    pools: Sequence[Mapping[str, Any]],
    sites: Sequence[Mapping[str, Any]] = ({"name": "main"},),
    models: Mapping[str, Mapping[str, Any]] | None = None,
    latency: tuple[float, float] = (0.1, 0.01),
    **top: Any,
) -> str:
    """Path of a FLEET.toml; slots of 1 s, so that J are W."""
    lines = ["model,gpu,gpus_per_replica,requests_per_s,ttft_p95_s,tpot_p95_s,power_w"]
    ttft, tpot = latency
    lines += [f"{m},{g},{n},{r!r},{ttft},{tpot},{p!r}" for m, g, n, r, p in points]
    (folder / "points.csv").write_text("\n".join(lines) + "\n")
    lines = ["slot,model,requests_per_s"]
    lines += [f"{t},{m},{r!r}" for t, row in enumerate(demand) for m, r in row.items()]
    (folder / "demand.csv").write_text("\n".join(lines) + "\n")
    names = dict.fromkeys(name for row in demand for name in row)
    given = models or {}
    tables = {
        "sites": sites,
        "pools": pools,
        "models": [{"name": name, **given.get(name, {})} for name in names],
    }
    text = ['demand = "demand.csv"', 'points = "points.csv"']
    text += [f"{x} = {json.dumps(y)}" for x, y in ({"slot_s": 1.0} | top).items()]
    for name, entries in tables.items():
        for entry in entries:
            text.append(f"[[{name}]]")
            text += [f"{x} = {json.dumps(y)}" for x, y in entry.items()]
    path = folder / "fleet.toml"
    path.write_text("\n".join(text) + "\n")
    return str(path)


def one_pool(count: int, parked: float) -> list[dict[str, Any]]:
    """A pool `g` at the site `main`."""
    return [
        {"name": "g", "gpu": "x", "count": count, "site": "main", "parked_w": parked}
    ]
