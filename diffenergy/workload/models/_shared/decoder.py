"""Decoders of equal layers, served, run by operators or trained."""

import abc
import dataclasses
from typing import ClassVar

from ..._listing import Kernel, Listing
from ..._unlisted import (
    Attention,
    attention_copies,
    finished,
    repeated_keys,
    unlisted,
)
from .._inputs import length_of
from .._layers.attention import CachedAttention
from .._layers.layer import Layer
from .._network.linear_layer import Linear
from .._network.operators import Embedding, Fixed, Norm, Pass, Residual, Trainable
from .._network.self_attention import Heads, Rotary, SelfAttention
from .._network.step import Loss, Network, kept, training_listings
from .attention import Scores, fused
from .base import Request, linear, repeated
from .language_model import LanguageModel
from .memory import CONTEXT, in_parts, trained, working_bytes


@dataclasses.dataclass(frozen=True)
class Decoder(LanguageModel):
    """A causal language model of equal layers, which also trains."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    window: int
    tied: bool

    rotary: ClassVar[bool] = False
    scores: ClassVar[Scores]

    def stack(self) -> tuple[Layer, ...]:
        layer = Layer(
            (
                *self.projections(True),
                *self.head_norms(),
                self.attention,
                self.output(True),
                *self.mlp(True),
            )
        )
        return self.layers * (layer,)

    @property
    def own_head(self) -> bool:
        return not self.tied

    @property
    def attention(self) -> CachedAttention:
        """Attention of a serving engine."""
        heads = (self.heads, self.kv_heads, self.head_dim)
        return CachedAttention(*heads, window=self.window, rotary=self.rotary)

    @property
    def embedding(self) -> Embedding:
        """Look-up of tokens, and of positions where they are learned."""
        return Embedding(self.vocab, self.hidden, 0 if self.rotary else self.positions)

    @abc.abstractmethod
    def projections(self, fused: bool) -> tuple[Linear, ...]:
        """Queries, keys and values of a layer."""

    def head_norms(self) -> tuple[Norm, ...]:
        """Norms of queries and keys, by head."""
        return ()

    @abc.abstractmethod
    def output(self, fused: bool) -> Linear:
        """Linear layer behind the attention."""

    @abc.abstractmethod
    def mlp(self, fused: bool) -> tuple[Trainable, ...]:
        """What follows the second norm of a layer."""

    def tables(self, run: Pass) -> list[Kernel]:
        """Masks or angles that an eager pass makes before its layers."""
        return []

    @abc.abstractmethod
    def _eager_pass(self, run: Pass) -> list[Kernel]:
        """Kernels that the Hugging Face base model launches in one pass."""

    def _listings(self, request: Request) -> list[Listing]:
        if request.phase != "train":
            return super()._listings(request)
        run = self.run(request, length_of(request), length_of(request))
        return training_listings(self, self.network(run), request, run)

    def memory(self, request: Request) -> dict[str, float]:
        """In training what a micro-batch leaves for its gradients beside AdamW's
        state."""
        if request.phase != "train":
            return super().memory(request)
        length = length_of(request)
        run = self.run(request, length, length)
        body = self._pass(dataclasses.replace(request, base=True), length, length)
        return in_parts(
            **trained(self.parameters(), run.values),
            activations=kept(self.network(run), run),
            logits=Loss(self.vocab).kept(run),
            # the context, gradients of a layer's operands
            workspace=CONTEXT + working_bytes(finished(body, self.name)),
        )

    def _pass(self, request: Request, q_len: int, kv_len: int) -> list[Kernel]:
        run = self.run(request, q_len, kv_len)
        if run.fused:
            return super()._pass(request, q_len, kv_len)
        head = linear(run.precision, self.vocab, run.tokens, self.hidden)
        return [*self._eager_pass(run), *([] if request.base else [head])]

    def network(self, run: Pass) -> Network:
        """Operators of a training step."""
        h, norm, layout = self.hidden, Norm(self.norm, self.hidden), self.head_layout
        return Network(
            inputs=(self.embedding, Fixed(() if run.fused else self.tables(run))),
            norm=norm,
            body=(
                *self.projections(run.fused),
                *self.head_norms(),
                *((Rotary(layout),) if self.rotary else ()),
                SelfAttention(layout, self.scores),
                self.output(run.fused),
                Residual(h),
                norm,
                *self.mlp(run.fused),
                Residual(h),
            ),
            layers=self.layers,
            final=norm,
            head=self.head,
        )

    def each(self, run: Pass, *operators: Trainable) -> list[Kernel]:
        """Forward kernels of operators that every layer has."""
        return repeated([row for x in operators for row in x.forward(run)], self.layers)

    @property
    def head_layout(self) -> Heads:
        """Heads of the attention."""
        return Heads(self.heads, self.kv_heads, self.head_dim, self.window)

    def _site(self, run: Pass) -> Attention:
        """All attention calls of a pass."""
        return self.head_layout.site(run, self.layers)

    def _eager_attention(self, run: Pass) -> list[Kernel]:
        """One fused kernel a layer, or the module's operators."""
        site, p = self._site(run), run.precision
        if run.flash:
            return [fused(site, p, window=self.window)]
        return self.scores.rows(site, p, (), **run.zeros)

    def _eager_copies(self, run: Pass) -> list[Kernel]:
        """Unlisted copies around attention; in decode also the grown KV cache."""
        dtype, site = run.values, self._site(run)
        rows = repeated_keys(site, dtype)
        if not run.flash:
            rows += attention_copies(site, dtype)
        if run.is_decode:
            cached = run.sequences * self.kv_heads * run.kv_len * self.head_dim
            rows.append(unlisted("concat", cached, dtype, 2 * self.layers))
        return rows
