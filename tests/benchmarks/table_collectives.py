"""Collective schedules beside published ones, in tables.

    python tests/benchmarks/table_collectives.py [FOLDER] [--part NAME]

`FOLDER` holds `goldens_ndv2_2chassis.csv` (TE-CCL, SIGCOMM 2024) and
`taccl_ndv2_2chassis.csv` (TACCL, NSDI 2023); without it their columns say
"unavailable". Every schedule of ours is verified; `s` is wall time from the machine's
name to the verified schedule, on the computer that runs this, theirs on a large server
with a commercial solver.
"""

import argparse
import csv
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from diffenergy.collectives import Search, demand, load_topology
from diffenergy.collectives._find_schedule import find_schedule
from diffenergy.collectives._plan import Plan

SIZES: Final = ("1KB", "4KB", "16KB", "64KB", "256KB", "1MB", "4MB", "16MB", "64MB",
                "256MB", "1GB")  # fmt: skip
KINDS: Final = {"Fast": "fastest", "Slow": "slowest"}
UNKNOWN: Final = "unavailable"
COLUMNS: Final = {
    "published": (
        "collective", "epochs are", "size", "epochs", "bound", "TE-CCL", "finish us",
        "gap %", "TE-CCL us", "TACCL us", "s", "TE-CCL s", "TACCL s",
    ),
    "machines": (
        "machine", "collective", "epochs are", "size", "epochs", "bound", "finish us",
        "bound us", "gap %", "method", "s",
    ),
}  # fmt: skip
MACHINES: Final = (
    *(("ndv2-2", "all_gather", kind, size, {}) for kind in KINDS for size in SIZES),
    ("ndv2-2", "all_to_all", "Fast", "1GB", {}),
    *(("dgx1", "all_gather", "Slow", f"{200 * n}KB", {"chunks": n})
      for n in range(1, 7)),
    *(("dgx1", "all_gather", "Fast", f"{200 * n}KB", {"chunks": n})
      for n in range(1, 4)),
    ("dgx1", "all_to_all", "Slow", "200KB", {}),
    *((name, "all_gather", "Slow", size, {}) for name in ("dgx2-2", "ndv2-4")
      for size in ("16KB", "64KB", "1MB", "16MB", "1GB")),
    *(("dgx2-2", "all_gather", "Fast", size, {})
      for size in ("64KB", "256KB", "1MB", "16MB", "1GB")),
    ("ndv2-4", "all_gather", "Fast", "1GB", {}),
    ("torus-8x16", "all_gather", "Fast", "128MB", {}),
    ("torus-8x8x8", "all_gather", "Fast", "512MB", {}),
)  # fmt: skip


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description="Collectives beside published ones.")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--part", choices=COLUMNS, default=None)
    arguments = parser.parse_args()
    for part in COLUMNS if arguments.part is None else [arguments.part]:
        columns, began = COLUMNS[part], time.perf_counter()
        rows = machines() if part == "machines" else published(arguments.folder)
        for row in itertools.chain([columns, ("---",) * len(columns)], rows):
            print(f"| {' | '.join(row)} |", flush=True)
        print(f"\n{time.perf_counter() - began:.1f} s in all.\n", flush=True)


def published(folder: Path | None) -> Iterator[tuple]:
    """Every row of TE-CCL for two NDv2 chassis, 15 GPUs."""
    theirs = _read(folder, "goldens_ndv2_2chassis.csv")
    taccl = _read(folder, "taccl_ndv2_2chassis.csv")
    names = {"all_gather": "AllGather", "all_to_all": "AlltoAll"}
    for name, kind, size in itertools.product(names, KINDS, SIZES):
        plan, seconds = _planned("ndv2-2-published", name, kind, size)
        row = theirs.get((names[name], size, kind), {})
        other = taccl.get((names[name], size, ""), {})
        yield (
            name, kind, size, str(plan.schedule.epochs), str(plan.epoch_bound),
            row.get("epochs") or UNKNOWN, f"{plan.finish * 1e6:.6g}",
            f"{100 * plan.gap:.2f}", _micro(row.get("finish_s")),
            other.get("taccl_finish_us") or UNKNOWN, f"{seconds:.2f}",
            row.get("solver_s") or UNKNOWN, other.get("taccl_solver_s") or UNKNOWN,
        )  # fmt: skip


def machines() -> Iterator[tuple]:
    """Machines for which only single figures were published, or none."""
    for machine, name, kind, size, more in MACHINES:
        plan, seconds = _planned(machine, name, kind, size, **more)
        chunks = more.get("chunks", 1)
        yield (
            machine, name, kind, size if chunks == 1 else f"{size}, {chunks} chunks",
            str(plan.schedule.epochs), str(plan.epoch_bound),
            f"{plan.finish * 1e6:.7g}", f"{plan.bound * 1e6:.7g}",
            f"{100 * plan.gap:.2f}", plan.method, f"{seconds:.2f}",
        )  # fmt: skip


def _planned(
    machine: str, name: str, kind: str, size: str, chunks: int = 1
) -> tuple[Plan, float]:
    began = time.perf_counter()
    topology = load_topology(machine)
    search = Search(epoch=KINDS[kind])
    plan = find_schedule(topology, demand(name, topology, size, chunks), search)
    return plan, time.perf_counter() - began


def _read(folder: Path | None, name: str) -> dict[tuple[str, str, str], dict]:
    """Rows by collective, size and kind of epoch."""
    if folder is None:
        return {}
    with (folder / name).open(newline="") as file:
        return {
            (row["collective"], row["size_label"], row.get("epoch_type", "")): row
            for row in csv.DictReader(file)
        }


def _micro(seconds: str | None) -> str:
    return f"{float(seconds) * 1e6:.6g}" if seconds else UNKNOWN


if __name__ == "__main__":
    main()
