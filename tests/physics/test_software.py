"""Older training programs: what streams takes longer, products do not."""

import dataclasses
import json

import numpy as np
import pytest

import diffenergy as de
from diffenergy.estimator import operating_points, packed_alike, prepare, run
from diffenergy.workload import listing_lines, read_listings


@pytest.fixture(scope="module")
def task():
    return prepare("gpt2", "a100-sxm-80gb", phase="train", plan="dp=8", global_batch=64)


@pytest.mark.slow
def test_only_kernels_that_stream_are_slower_in_older_software(task):
    """Twenty years: exp(20 `training_progress`) of their time beyond the launch."""
    (new,) = (x for x in task.listings if x.mode and x.mode.startswith("forward"))
    old = dataclasses.replace(new, age=20.0)
    point = operating_points(task.settings)
    times = []
    for listing in (new, old):
        result = run(packed_alike([listing], 1)[0], task.gpu, point, 1).kernels
        live = np.asarray(result.count) > 0
        row, alone = np.asarray(result.row), np.asarray(result.time - result.launch)
        times.append(dict(zip(row[live].tolist(), alone[live].tolist(), strict=True)))
    ops = [kernel["op"] for kernel in new.kernels]
    slower = np.exp(20 * float(task.gpu.corrections.training_progress))
    assert slower > 1.2
    for row, time in times[0].items():
        ratio = times[1][row] / time
        if ops[row] in ("gemm", "context_attention"):
            assert ratio == pytest.approx(1.0)
        elif ops[row] in ("layernorm", "softmax"):
            assert ratio == pytest.approx(slower)
        else:  # launches overlap
            assert 1.01 < ratio < slower
    assert {"gemm", "context_attention", "layernorm", "softmax"} <= {*ops}


@pytest.mark.parametrize("age", [2.5, -3.5])  # software=2024, 2030
def test_the_age_of_a_listing_is_written_and_read(task, tmp_path, age):
    old = dataclasses.replace(task.listings[0], age=age)
    file = tmp_path / "old.jsonl"
    file.write_text(listing_lines([old]))
    (read,) = read_listings(str(file))
    assert read.age == age and read.training == old.training


def test_a_streaming_kernel_of_a_training_step_ages(tmp_path):
    """A softmax of a listing, 20 years older: the same factor of its time."""
    row = {"op": "softmax", "rows": 200_000, "cols": 4096, "dtype": "bf16"}

    def time(**fields) -> float:
        line = {"mode": "forward", "training": True, "kernels": [row], **fields}
        (path := tmp_path / "one.jsonl").write_text(json.dumps(line))
        return de.estimate(str(path), "a100-sxm-80gb").time

    progress = float(de.load_gpu("a100-sxm-80gb").corrections.training_progress)
    older = time(age=20) / time()
    assert older == pytest.approx(np.exp(20 * progress), rel=0.01) and older > 1.2
    assert time(age=20, training=False) == pytest.approx(time(training=False))
