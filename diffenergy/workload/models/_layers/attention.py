"""Causal attention over a KV cache, as serving engines launch it."""

import dataclasses
from collections.abc import Iterator

from ..._eager_rows import Attention, stream
from ..._kernel import Kernel
from .._network.operators import Cached, ForwardPass, Operator, Trainable
from .._network.self_attention import Heads, Rotary, SelfAttention
from .._network.sharding import ModelSplit, divided, one_at_least
from .._shared.attention import Scores, around_softmax, fused
from .._shared.memory import Weights, element_bytes


@dataclasses.dataclass(frozen=True)
class CachedAttention(Operator):
    """The write of new keys and values, and the attention.

    `v_head_dim`: width of values (0: that of keys). `window`: tokens that a query sees
    (0: all); `chunk`: those of its own block of so many alone. `rotary`: queries and
    keys are rotated on the way. `sinks`: one more logit a head. `chosen`: keys that
    a query reads at most, all of which are kept (0: all). `scores`: what modules do to
    the scores (stack eager).
    """

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int = 0
    window: int = 0
    chunk: int = 0
    rotary: bool = True
    sinks: bool = False
    chosen: int = 0
    scores: Scores = Scores()

    def forward(self, run: ForwardPass) -> list[Kernel]:
        rows = [self._write(run)]
        for sequences, q_len, kv_len in self._blocks(run):
            times, q_len = (q_len, 1) if run.is_step else (1, q_len)
            site = self._site(sequences, q_len, kv_len, times)
            rows += self._attention(site, run)
        return rows

    def in_training(self) -> tuple[Trainable, ...] | None:
        """Without a cache; None if not every earlier token, or of a window, is seen."""
        if self.chunk or self.chosen:
            return None
        widths = (self.heads, self.kv_heads, self.head_dim)
        heads = Heads(*widths, self.window, v_head_dim=self.v_head_dim)
        rotary = (Rotary(heads),) if self.rotary else ()
        return (*rotary, SelfAttention(heads, self.scores, self.sinks))

    def shard(self, split: ModelSplit) -> "CachedAttention":
        return dataclasses.replace(
            self,
            heads=divided(self.heads, split.tp, "attention heads"),
            kv_heads=one_at_least(self.kv_heads, split.tp),
        )

    def weights(self) -> tuple[Weights, ...]:
        return (Weights(self.heads),) if self.sinks else ()

    def cached(self) -> tuple[Cached, ...]:
        elements = self.kv_heads * (self.head_dim + self._values)
        return (Cached(elements, self.window or self.chunk),)

    @property
    def _values(self) -> int:
        return self.v_head_dim or self.head_dim

    def _site(self, sequences: int, q_len: int, kv_len: int, times: int) -> Attention:
        heads = (self.heads * times, self.kv_heads)
        return Attention(sequences, *heads, q_len, kv_len, self.head_dim, 1)

    def _blocks(self, run: ForwardPass) -> Iterator[tuple[int, int, int]]:
        """(sequences, new tokens, visible tokens) of the blocks that attend apart."""
        if not self.chunk or run.kv_len <= self.chunk:
            yield run.sequences, run.q_len, run.kv_len
            return
        if run.is_decode:  # the last block, as far as it has come
            yield run.sequences, run.q_len, (run.kv_len - 1) % self.chunk + 1
            return
        whole, rest = divmod(run.q_len, self.chunk)
        yield run.sequences * whole, self.chunk, self.chunk
        if rest:
            yield run.sequences, rest, rest

    def _attention(self, site: Attention, run: ForwardPass) -> list[Kernel]:
        """One fused kernel, or products around an fp32 softmax."""
        p = run.precision
        if run.flash:
            row = fused(site, p, window=self.window)
            if self._values != self.head_dim:
                row["v_head_dim"] = self._values
            if self.sinks:
                row["sinks"] = True
            if self.chosen and run.is_step:
                row["kv_len"] = min(run.kv_len, self.chosen)
            elif self.chosen:
                row["window_size"] = self.chosen
            return [row]
        return around_softmax(site, p, "scale_mask", **run.zeros)

    def _write(self, run: ForwardPass) -> Kernel:
        """New keys and values copied to the cache, queries and keys rotated on the way:
        of what is rotated, or else of what is written, are the elements."""
        keys = self.kv_heads * self.head_dim
        both = keys + self.kv_heads * self._values
        if not self.rotary:
            return cache_write(run, "kv_write", both, 0, both)
        queries = self.heads * self.head_dim
        return cache_write(run, "rope_kv_write", queries + keys, queries, both)


def cache_write(
    run: ForwardPass, fn: str, elements: int, queries: int, kept: int
) -> Kernel:
    """Kernel over `elements` a token that reads and writes `queries`, and what is
    `kept`, which in the cache may have fewer bytes."""
    p = run.precision
    size = element_bytes(p.cache) / element_bytes(p.values)
    reads, writes = (queries + kept) / elements, (queries + kept * size) / elements
    return stream(fn, run.tokens * elements, p.values, 1, reads=reads, writes=writes)
