"""What builds and launches the kernels of a plan: PyTorch or JAX on a GPU."""

from collections.abc import Mapping
from typing import Final, Protocol, runtime_checkable

from ._shapes import Kernel

DTYPES: Final = {
    "fp32": "float32",
    "tf32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8_e4m3fn",
}
"""Names of our types in both libraries."""
LASTING: Final = 2e-3
"""s that one program or graph of launches should take at least: gaps between them then
do not count."""


class Unsupported(Exception):
    """This kernel cannot run here; the message says why."""

    @classmethod
    def of(cls, error: Exception) -> "Unsupported":
        """An error with the first line of a library's message."""
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return cls(lines[0][:160])


@runtime_checkable
class Running(Protocol):
    """A kernel with its tensors, ready to be launched."""

    def run(self, launches: int) -> int:
        """Makes at least so many launches, waits for them and returns their number."""
        ...


@runtime_checkable
class Runner(Protocol):
    """A library with a GPU. `versions` of what the kernels come from; `l2` in bytes,
    NaN where it does not tell."""

    versions: Mapping[str, str]
    l2: float

    def prepare(self, kernel: Kernel, copies: int, zeros: bool) -> Running:
        """Makes `copies` sets of tensors, random normal ones or `zeros`.

        Raises `Unsupported` if the library or the board cannot run the kernel.
        """
        ...
