"""Blocks as Ray tasks: each writes its part, so a worker that dies loses nothing."""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ._block import block_rows
from ._parts import write_part
from ._spec import Block, Spec

_MISSING: Final = (
    "`ray` is given, but Ray is not installed; install it, as by `pip install "
    "'diffenergy[sweep]'`, or leave `ray` out."
)
_RETRIES: Final = 3
_THREADS: Final = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
"""One thread a worker: Ray counts CPUs."""
_PATIENCE: Final = 5.0
"""s until a cluster has to answer."""
_ACTIVE: Final = 4
"""Tasks handed out beyond what runs, for each CPU of the cluster."""


def need_ray() -> None:
    """Raises `ValueError` if Ray is not there."""
    try:
        import ray  # noqa: F401  # pyright: ignore
    except ImportError:
        raise ValueError(_MISSING) from None


def read_address(address: str) -> int | str:
    """Workers of a Ray of our own (`local`, `local:N`), or the address of a cluster.
    Raises `ValueError` for what is neither."""
    word, _, number = address.partition(":")
    if word == "local":
        if not number:
            return os.cpu_count() or 1
        if number.isdigit() and 1 <= int(number) <= 4096:
            return int(number)
    elif word and number.isdigit() or address == "auto":
        return address
    raise ValueError(
        f"`ray` is '{address}'; allowed are HOST:PORT of a cluster, local, or local:N "
        "with N workers."
    )


def on_cluster(
    address: int | str, spec: Spec, blocks: Sequence[Block], folder: Path
) -> Iterator[tuple[int, int]]:
    """Numbers of blocks as they are done, with their rows that have an error. What was
    started here is stopped at the end, nothing else."""
    import ray  # pyright: ignore[reportMissingImports]

    flags = f"{os.environ.get('XLA_FLAGS', '')} {_THREADS}".strip()
    environment = {"env_vars": {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}}
    how: dict[str, Any] = {"runtime_env": environment, "log_to_driver": False}
    if isinstance(address, int):
        how |= {"num_cpus": address, "include_dashboard": False}
        how |= {"address": "local"}
    else:
        how |= {"address": address}
    try:
        ray.init(**how, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _silent(address, " ".join(str(error).split())[:200]) from None
    with contextlib.ExitStack() as stack:
        stack.callback(ray.shutdown)
        yield from _done(ray, spec, blocks, folder.resolve())


def check_answers(address: int | str) -> None:
    """Raises `ValueError` if nobody listens at HOST:PORT; Ray itself would try long."""
    if isinstance(address, int) or address == "auto":
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise _silent(address, str(error)) from None


def _silent(address: int | str, why: str) -> ValueError:
    return ValueError(
        f"`ray` is '{address}', but no cluster answers there ({why}); start one, as by "
        "`ray start --head`."
    )


def _done(
    ray: Any, spec: Spec, blocks: Sequence[Block], folder: Path
) -> Iterator[tuple[int, int]]:
    task = ray.remote(num_cpus=1, max_retries=_RETRIES)(one_block)
    cpus = int(ray.cluster_resources().get("CPU", 1))
    waiting = list(reversed(blocks))
    running: list[Any] = []
    while waiting or running:
        while waiting and len(running) < _ACTIVE * cpus:
            running.append(task.remote(spec, waiting.pop(), str(folder)))
        finished, running = ray.wait(running, num_returns=1)
        yield from ray.get(finished)


def one_block(spec: Spec, block: Block, folder: str) -> tuple[int, int]:
    """Computes a block and writes its part, in a worker."""
    from ..estimator import start_jax

    start_jax(keep_compilations=True)
    rows = block_rows(spec, block)
    return block.number, write_part(Path(folder), block.number, spec, rows)
