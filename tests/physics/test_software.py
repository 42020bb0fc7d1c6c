"""Older training programs: what streams takes longer, products do not."""

import dataclasses

import numpy as np
import pytest

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
        found = run(packed_alike([listing], 1)[0], task.gpu, point, 1).kernels
        live = np.asarray(found.count) > 0
        row, alone = np.asarray(found.row), np.asarray(found.time - found.launch)
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
