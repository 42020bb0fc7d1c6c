"""A GPU file has one set of constants, whoever reads it: Python and the command."""

import dataclasses
import json
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffenergy as de
from diffenergy.hardware import gpu_names, gpu_toml, read_gpu

from .conftest import Outcome

KERNELS = (
    {"op": "gemm", "m": 512, "n": 1024, "k": 4096, "dtype": "fp16"},
    {"op": "collective", "collective": "all_reduce", "bytes": 2**20, "num_gpus": 4},
)


@pytest.fixture(scope="module")
def listing(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small workload without a host."""
    path = tmp_path_factory.mktemp("listing") / "small.jsonl"
    row = {"name": "small", "dispatch": "graph", "kernels": KERNELS}
    path.write_text(json.dumps(row), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every bundled file, and a copy of each that names no GPU whose corrections serve
    it, as `gpus show NAME --toml` prints it otherwise."""
    folder, result = tmp_path_factory.mktemp("gpus"), {}
    for name in gpu_names():
        card = read_gpu(name)
        copy = dataclasses.replace(card, name="mine", aliases=(), corrections=None)
        path = folder / f"{name}.toml"
        path.write_text(gpu_toml(copy), encoding="utf-8")
        result |= {name: str(card.path), f"copy of {name}": str(path)}
    return result


@pytest.mark.slow
def test_every_file_has_the_constants_that_the_command_serves(
    listing: str, files: dict[str, str]
):
    """All files in one call: with what `load_gpu` gave, and with what the command
    line serves to the card."""
    file, workload = de.read_corrections(), de.load_workload(listing)
    carried = [de.load_gpu(path) for path in files.values()]
    served = [file.serve(read_gpu(path)) for path in files.values()]
    gpus, constants = (
        jax.tree.map(lambda *x: jnp.stack(x), *each) for each in (carried, served)
    )
    each = jax.vmap(lambda gpu: de.estimate(workload, gpu))
    each = jax.jit(each, compiler_options=de.compiler_options(once=True))
    ours, printed = each(gpus), each(dataclasses.replace(gpus, corrections=constants))
    for got, wanted in ((ours.time, printed.time), (ours.energy, printed.energy)):
        apart = np.abs(np.asarray(got / wanted) - 1)
        assert not [x for x, y in zip(files, apart, strict=True) if not y < 1e-12]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["copy of h100-sxm", "a30"])
def test_python_and_command_agree(
    name: str, listing: str, files: dict[str, str], run: Callable[..., Outcome]
):
    printed = run("estimate", listing, "--gpu", files[name], "--json").json
    result = de.estimate(de.load_workload(listing), de.load_gpu(files[name]))
    for value, key in ((result.time, "time_s"), (result.energy, "energy_j")):
        assert float(value) == pytest.approx(printed[key], rel=1e-12, abs=0)


def test_constants_of_another_batch_are_refused():
    gpu = de.load_gpu("h100-sxm")
    two = jax.tree.map(lambda x: jnp.stack([x, x]), gpu.corrections)
    with pytest.raises(ValueError, match="`GpuSpec.corrections` has shape"):
        dataclasses.replace(gpu, corrections=two)
