"""Models of one eager forward pass: text encoders and vision."""

import abc
import dataclasses
from typing import Any

from ..._listing import Kernel, Listing
from .base import Model, Request


@dataclasses.dataclass(frozen=True)
class Encoder(Model):
    """A network without a KV cache; its only phase is one forward pass."""

    @abc.abstractmethod
    def _forward(self, request: Request) -> list[Kernel]:
        """Kernels that the published module launches."""

    @property
    def max_positions(self) -> int | None:
        return None

    def defaults(self) -> dict[str, Any]:
        return dict(
            batch=1,
            input_len=self.max_positions,
            output_len=None,
            phase="forward",
            dtype="bf16",
            kv_dtype=None,
            attention="eager",
            stack="eager",
            dispatch=None,
            base=not self._has_head(),
        )

    def _check(self, values: dict[str, Any]):
        if values["phase"] == "train":
            raise ValueError(
                f"`phase` is 'train', but training is known for language models alone, "
                f"not for {self.name}; give a kernel listing (`.jsonl`)."
            )
        if values["phase"] not in ("forward", "prefill"):
            raise ValueError(
                f"`phase` is {values['phase']!r}, but {self.name} generates no tokens; "
                "use forward."
            )
        if values["stack"] != "eager":
            raise ValueError(
                f"`stack` is {values['stack']!r}, but {self.name} has only eager."
            )
        longest, length = self.max_positions, values["input_len"]
        if longest is None and length is not None:
            raise ValueError(
                f"`input_len` is {length}, but {self.name} reads images of the "
                "config's size; leave it out."
            )
        if longest is not None and length is not None and length > longest:
            raise ValueError(
                f"`input_len` is {length}, but {self.name} has {longest} positions; "
                "shorten the input."
            )

    def _listings(self, request: Request) -> list[Listing]:
        return [self.listing(request, self._forward(request), request.phase)]
