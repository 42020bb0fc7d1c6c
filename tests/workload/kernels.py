"""Questions that tests ask of the kernels of a listing."""

import collections

from diffenergy.workload import load_model
from diffenergy.workload.models import Model


def step(model: str | Model, **choices):
    """Kernels of the three phases of a training step."""
    given = {"batch": 2, "phase": "train", **choices}
    made = load_model(model) if isinstance(model, str) else model
    return [listing.kernels for listing in made.listings(**given)]


def flop(kernels):
    """FLOP of the matrix products."""
    return sum(
        2 * k["batch"] * k["m"] * k["n"] * k["k"] * k["count"]
        for k in kernels
        if k["op"] == "gemm"
    )


def one(kernels, **fields):
    """The only kernel with these fields."""
    found = [k for k in kernels if fields.items() <= k.items()]
    assert len(found) == 1, found
    return found[0]


def adamw(kernels):
    """Parameters that the optimizer moves."""
    return one(kernels, fn="adamw")["elements"]


def multiset(kernels):
    """How often each launch occurs."""
    counts = collections.Counter()
    for kernel in kernels:
        key = tuple(sorted((k, x) for k, x in kernel.items() if k != "count"))
        counts[key] += kernel["count"]
    return counts
