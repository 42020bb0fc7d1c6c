"""Which library runs the kernels of a measurement."""

import os

from . import runner_jax, runner_torch
from .runner import Runner


def find_runner(uuid: str) -> Runner:
    """PyTorch with CUDA if it is installed, else JAX with a GPU, on the board `uuid`.

    Call it before either library has used a GPU.
    """
    if uuid:
        os.environ["CUDA_VISIBLE_DEVICES"] = uuid
    runner = runner_torch.torch_on_gpu() or runner_jax.jax_on_gpu()
    if runner is None:
        raise ValueError(
            "neither PyTorch with CUDA nor JAX with a GPU is installed, or the driver "
            "does not serve it; `pip install torch` or `pip install 'jax[cuda12]'` "
            "brings one."
        )
    return runner
