"""Decoders of equal layers, which also train and run by operators."""

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from ..._eager_rows import (
    Attention,
    attention_copies,
    repeated_keys,
    stream,
    unlisted,
)
from ..._kernel import Kernel
from .._layers.attention import CachedAttention
from .._layers.layer import Halves, Layer
from .._network.linear_layer import Linear
from .._network.operators import Embedding, ForwardPass, Norm, Operator, Trainable
from .._network.passes import product, repeat_rows
from .._network.self_attention import Heads, Rotary, SelfAttention
from .._network.sharding import Columns
from .._request import Request
from .attention import Scores, fused
from .trained import TrainedModel


@dataclasses.dataclass(frozen=True)
class Decoder(TrainedModel):
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
        before, behind = self._halves(True, self.attention)
        return self.layers * (Layer((*before, *behind)),)

    def _halves(
        self, fused: bool, *attention: Operator
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Operators behind the two norms of a layer, around its `attention`."""
        inward = (*self.projections(fused), *self.head_norms())
        return (*inward, *attention, self.output(fused)), self.mlp(fused)

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

    def queries_keys_values(
        self, joined: bool, bias: bool, **more: Any
    ) -> tuple[Linear, ...]:
        """These products, as one (with `more` fields) where they are `joined`."""
        h, keys = self.hidden, self.kv_heads * self.head_dim
        width = self.heads * self.head_dim
        if joined:
            split = Columns(2 * keys, self.kv_heads)
            return (Linear(width + 2 * keys, h, bias, split=split, **more),)
        split = Columns(keys, self.kv_heads)
        inward = Linear(keys, h, bias, joins=True, split=split)
        return (Linear(width, h, bias, split=Columns()), inward, inward)

    def head_norms(self) -> tuple[Norm, ...]:
        """Norms of queries and keys, by head."""
        return ()

    @abc.abstractmethod
    def output(self, fused: bool) -> Linear:
        """Linear layer behind the attention."""

    @abc.abstractmethod
    def mlp(self, fused: bool) -> tuple[Trainable, ...]:
        """What follows the second norm of a layer."""

    @abc.abstractmethod
    def _eager_pass(self, run: ForwardPass) -> list[Kernel]:
        """Kernels that the Hugging Face base model launches in one pass behind the
        look-up of its tokens."""

    def halves(self, run: ForwardPass) -> Sequence[Halves]:
        layout = self.head_layout
        rotary = (Rotary(layout),) if self.rotary else ()
        one = self._halves(run.fused, *rotary, SelfAttention(layout, self.scores))
        return self.layers * (one,)

    def _pass(self, request: Request, q_len: int, kv_len: int) -> list[Kernel]:
        run = self.run(request, q_len, kv_len)
        if run.fused:
            return super()._pass(request, q_len, kv_len)
        head = [] if request.base else self.head.forward(run)
        return [*self._table.forward(run), *self._eager_pass(run), *head]

    def each(self, run: ForwardPass, *operators: Trainable) -> list[Kernel]:
        """Forward kernels of operators that every layer has."""
        return repeat_rows(
            [row for x in operators for row in x.forward(run)], self.layers
        )

    @property
    def head_layout(self) -> Heads:
        """Heads of the attention."""
        return Heads(self.heads, self.kv_heads, self.head_dim, self.window)

    def tables(self, run: ForwardPass) -> list[Kernel]:
        """Of rotary positions: angles (an outer product of frequencies and positions),
        then cos and sin."""
        if not self.rotary:
            return []
        angles = product("fp32", 1, self.head_dim // 2, run.q_len, 1)
        return [angles, stream("scalar_mul", run.q_len * self.head_dim, "fp32", 2)]

    def _site(self, run: ForwardPass) -> Attention:
        """All attention calls of a pass."""
        return self.head_layout.site(run, self.layers)

    def _eager_attention(self, run: ForwardPass) -> list[Kernel]:
        """One fused kernel a layer, or the module's operators."""
        site, p = self._site(run), run.precision
        if run.flash:
            return [fused(site, p, window=self.window)]
        return self.scores.rows(site, p, (), **run.zeros)

    def _eager_copies(self, run: ForwardPass) -> list[Kernel]:
        """Unlisted copies around attention; in decode also the grown KV cache."""
        dtype, site = run.values, self._site(run)
        rows = repeated_keys(site, dtype)
        if not run.flash:
            rows += attention_copies(site, dtype)
        if run.is_decode:
            cached = run.sequences * self.kv_heads * run.kv_len * self.head_dim
            rows.append(unlisted("concat", cached, dtype, 2 * self.layers))
        return rows
