"""Models of one eager forward pass: text encoders and vision."""

import abc
import dataclasses
from typing import Any, ClassVar

from ..._listing import Kernel, Listing
from ..._unlisted import Attention, attention_copies, stream
from .attention import Scores, fused
from .base import Model, Request, linear, rows_of
from .memory import in_parts, working_bytes


@dataclasses.dataclass(frozen=True)
class Encoder(Model):
    """A network without a KV cache; its only phase is one forward pass."""

    scores: ClassVar[Scores]
    """Of its attention, if it has one."""

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

    def _layers(
        self, request: Request, site: Attention, inner: int, activation: str
    ) -> list[Kernel]:
        """Transformer layers, one for each of `site`'s calls: norm, attention and sum,
        norm, MLP and sum."""
        p, n, tokens = self.precision(request), site.count, site.sequences * site.q_len
        width = site.heads * site.head_dim
        if request.attention == "flash":
            attention = [fused(site, p, causal=False)]
        else:
            attention = self.scores.rows(site, p) + attention_copies(site, p.values)
        return [
            rows_of("layernorm", tokens, width, p.values, count=2 * n),
            linear(p, width, tokens, width, count=4 * n),
            *attention,
            stream("pointwise_add", tokens * width, p.values, 2 * n),
            linear(p, inner, tokens, width, count=n),
            stream(activation, tokens * inner, p.values, n),
            linear(p, width, tokens, inner, count=n),
        ]

    def memory(self, request: Request) -> dict[str, float]:
        """Weights and the operands of the largest kernel."""
        (listing,) = self._listings(request)
        return in_parts(
            weights=self.weight_bytes(request.dtype),
            activations=working_bytes(listing.kernels),
        )

    def _listings(self, request: Request) -> list[Listing]:
        return [self.listing(request, self._forward(request), request.phase)]
