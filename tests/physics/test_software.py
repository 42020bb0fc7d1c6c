"""Older training programs: what streams takes longer, products do not."""

import json

import numpy as np
import pytest

import diffenergy as de
from diffenergy.workload import listing_lines, read_listings

KERNELS = [
    {"op": "softmax", "rows": 200_000, "cols": 4096, "dtype": "bf16"},
    {"op": "layernorm", "rows": 200_000, "cols": 4096, "dtype": "bf16"},
    {"op": "gemm", "m": 8192, "n": 8192, "k": 8192, "dtype": "bf16"},
    {"op": "context_attention", "q_len": 8192, "num_heads": 32, "head_dim": 128}
    | {"dtype": "bf16"},
]


def test_only_kernels_that_stream_are_slower_in_older_software(tmp_path):
    """20 years: exp(20 `training_progress`) of their time; of training alone."""

    def times(**fields) -> np.ndarray:
        line = {"mode": "forward", "training": True, "kernels": KERNELS, **fields}
        (path := tmp_path / "one.jsonl").write_text(json.dumps(line))
        kernels = de.estimate(str(path), "a100-sxm-80gb").kernels
        assert kernels is not None
        return np.array([x["time_s"] for x in kernels])

    progress = float(de.load_gpu("a100-sxm-80gb").corrections.training_progress)
    slower = np.exp(20 * progress)
    assert slower > 1.2
    older = times(age=20) / times()
    assert older == pytest.approx(np.array([slower, slower, 1, 1]), rel=0.01)
    assert times(age=20, training=False) == pytest.approx(times(training=False))


@pytest.mark.parametrize("age", [2.5, -3.5])  # software=2024, 2030
def test_the_age_of_a_listing_is_written_and_read(tmp_path, age):
    line = {"mode": "forward", "training": True, "kernels": KERNELS, "age": age}
    first, second = (tmp_path / f"{name}.jsonl" for name in ("first", "second"))
    first.write_text(json.dumps(line))
    second.write_text(listing_lines(read_listings(str(first))))
    (read,) = read_listings(str(second))
    assert read.age == age and read.training
