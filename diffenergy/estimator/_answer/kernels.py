"""Each listed kernel with its figures: what `estimate --detail` prints."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from ...physics import UNITS
from ...workload import Listing
from .limits import LIMITS
from .records import Estimate

_NO_LAUNCH: Final[Mapping[str, Any]] = dict.fromkeys(
    ("time_s", "kernel_s", "energy_j", "utilization", "limited_by")
)


def kernel_entries(
    listings: Sequence[Listing], estimate: Estimate
) -> list[dict[str, Any]]:
    """One dict a listed kernel, in order: its fields, `time_s`, `kernel_s` (without
    launch latency) and `energy_j` of one launch on one GPU, `utilization` by unit,
    `limited_by` and its phase.

    A row that is several launches has their sums, the utilization is their mean over
    time, the limiter that of the longest. The energy includes idle and leakage power
    during the launch. A row that is never launched has None.
    """
    rows = [
        (kernel, phase)
        for phase, listing in zip(phase_names(listings), listings, strict=True)
        for kernel in listing.kernels
    ]
    k, phases = estimate.kernels, estimate.phases
    live = np.asarray(k.count) > 0
    row, time = np.asarray(k.row)[live], np.asarray(k.time)[live]
    static = np.asarray(phases.static_power)[np.asarray(k.phase)[live]]
    energy = np.asarray(k.energy)[live] + time * static
    running = time - np.asarray(k.launch)[live]
    totals = np.zeros((len(rows), 3 + len(UNITS)))
    weighted = np.asarray(k.utilization)[live] * time[:, None]
    np.add.at(totals, row, np.column_stack([time, running, energy, weighted]))
    limiter = np.zeros(len(rows), int)
    order = np.argsort(time, kind="stable")  # the longest is written last
    limiter[row[order]] = np.asarray(k.limiter)[live][order]
    launched = np.zeros(len(rows), bool)
    launched[row] = True
    totals[launched, 3:] /= totals[launched, :1]
    figures = [
        _launch(sums, LIMITS[limit]) if there else _NO_LAUNCH
        for there, sums, limit in zip(launched, totals.tolist(), limiter, strict=True)
    ]
    return [
        {**kernel, **entry, "phase": phase}
        for (kernel, phase), entry in zip(rows, figures, strict=True)
    ]


def phase_names(listings: Sequence[Listing]) -> list[str]:
    """Name of the phase of each listing: its mode, "forward" if it states none."""
    return [listing.mode or "forward" for listing in listings]


def _launch(sums: Sequence[float], limiter: str) -> dict[str, Any]:
    """What one launch takes; `sums`: time, that without latency, energy, utilization
    by unit."""
    time, kernel, energy, *use = sums
    return {
        "time_s": time,
        "kernel_s": kernel,
        "energy_j": energy,
        "utilization": dict(zip(UNITS, use, strict=True)),
        "limited_by": limiter,
    }
