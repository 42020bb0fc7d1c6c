"""`GpuName`: a GPU as requests name it."""

from collections.abc import Sequence
from typing import Annotated

from .. import reading
from ..requests import Text, each
from ._card import GpuCard, gpu_names


def _files(name: str) -> tuple[str, ...]:
    return (name,)


GpuName = Annotated[str | GpuCard, Text("NAME", files=_files, completed=gpu_names)]
"""A bundled name, a .toml file, or what `read_gpu` gives."""
GpuNames = Annotated[
    Sequence[str | GpuCard] | str | GpuCard,
    Text("NAME[,...]", reading.names, _files, gpu_names, each),
]
"""One or several of those."""
