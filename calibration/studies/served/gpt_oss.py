"""Kernels of gpt-oss-120b in a trace, beside what is predicted of them.

    python calibration/studies/served/gpt_oss.py TRACE.json.gz

One eager step of vLLM with 888 tokens on a B200, one rank of tensor parallel 8, MXFP4
experts. Nothing was fitted to it, nor to MXFP4. Products have the shapes that follow
from the model's sizes; experts are padded to 384 of 360 features. Lengths of sequences
are not recorded, so attention is left out.
"""

import argparse
import collections
import gzip
import json
from pathlib import Path
from typing import Any, Final

import numpy as np

import diffenergy as de
from diffenergy.workload import Listing, from_listings, normalise_kernel

_TOKENS: Final = 888
_EXPERTS: Final[dict[str, Any]] = dict(
    op="moe", num_tokens=_TOKENS, hidden_size=2880, inter_size=384, topk=4,
    num_experts=128, dtype="mxfp8", weight_dtype="mxfp4", distribution="random",
)  # fmt: skip


def _product(n: int, k: int, m: int = _TOKENS) -> dict[str, Any]:
    return dict(op="gemm", m=m, n=n, k=k, dtype="bf16")


KERNELS: Final[dict[str, tuple[dict[str, Any], tuple[str, ...]]]] = {
    "norm": (
        dict(op="rmsnorm", rows=_TOKENS, cols=2880, dtype="bf16", residual=True),
        ("fused_add_rms_norm",),
    ),
    "queries, keys, values": (_product(640, 2880), ("nvjet_tst_64x64_64x16_2x1",)),
    "output": (_product(2880, 512), ("nvjet_tst_144x128",)),
    "router": (_product(128, 2880), ("nvjet_tst_64x16_64x16_2x4",)),
    "experts, both products and what is around them": (
        _EXPERTS,
        ("bmm_", "moe::dev", "quantize_with_block_size"),
    ),
    "head, one token": (_product(25136, 2880, 1), ("nvjet_tst_192x8",)),
}
"""Rows of a listing, and parts of the names of their kernels; several names, one call
each, make one row."""


def measured(trace: Path) -> dict[str, float]:
    """Time of one call of every row of `KERNELS`, s: medians by kernel, summed."""
    events = json.loads(gzip.open(trace).read())["traceEvents"]
    times = collections.defaultdict(list)
    for event in events:
        if event.get("cat") == "kernel":
            times[event["name"]].append(event["dur"] * 1e-6)
    return {
        name: sum(
            float(np.median(durations))
            for kernel, durations in times.items()
            if any(part in kernel for part in parts)
        )
        for name, (_, parts) in KERNELS.items()
    }


def predicted() -> dict[str, float]:
    """Predicted time of one call by row of `KERNELS` (s), without launch latency."""
    rows = tuple(normalise_kernel(row, "study") for row, _ in KERNELS.values())
    answer = de.estimate(from_listings([Listing("step", kernels=rows)]), "b200-sxm")
    kernels = answer.kernels
    live = np.argsort(np.asarray(kernels.row), kind="stable")
    time = np.zeros(len(rows))
    np.add.at(
        time,
        np.asarray(kernels.row)[live],
        np.asarray(kernels.time - kernels.launch)[live],
    )
    return dict(zip(KERNELS, time.tolist(), strict=True))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    ours, theirs = predicted(), measured(parser.parse_args().trace)
    for name in KERNELS:
        factor = ours[name] / theirs[name]
        print(
            f"{name:50} {ours[name] * 1e6:7.1f} us, measured {theirs[name] * 1e6:7.1f} "
            f"us: {factor:.2f}"
        )
