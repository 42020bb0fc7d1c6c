"""Decoder language models: phases, attention variants and the fused serving stack."""

import abc
import dataclasses
from typing import Any, ClassVar

from .... import dtypes
from ..._listing import Kernel, Listing
from ..._unlisted import (
    Attention,
    attention_copies,
    finished,
    repeated_keys,
    stream,
    unlisted,
)
from .._network.linear_layer import Linear
from .._network.operators import Embedding, Fixed, Norm, Operator, Pass, Residual
from .._network.self_attention import Heads, Rotary, SelfAttention
from .._network.step import Loss, Network, kept, training_listings
from .attention import Scores, fused, products, score_stream, softmax
from .base import Model, Request, linear, repeated, rows_of
from .memory import CONTEXT, in_parts, logit_bytes, trained, working_bytes

_SEGMENTS = 8
"""Decode steps are integrated over at most so many KV lengths."""


@dataclasses.dataclass(frozen=True)
class Decoder(Model):
    """A causal language model of equal layers."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    positions: int
    window: int

    norm: ClassVar[str]
    rotary: ClassVar[bool] = False
    scores: ClassVar[Scores]

    @property
    def max_positions(self) -> int:
        return self.positions

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
    def mlp(self, fused: bool) -> tuple[Operator, ...]:
        """What follows the second norm of a layer."""

    def tables(self, run: Pass) -> list[Kernel]:
        """Masks or angles that an eager pass makes before its layers."""
        return []

    @abc.abstractmethod
    def _eager_pass(self, run: Pass) -> list[Kernel]:
        """Kernels that the Hugging Face base model launches in one pass."""

    def kv_bytes_per_token(self, dtype: str) -> float:
        elements = 2 * self.layers * self.kv_heads * self.head_dim
        return elements * dtypes.BYTES[dtypes.code(dtype)]

    def defaults(self) -> dict[str, Any]:
        return dict(
            batch=1,
            input_len=512,
            output_len=128,
            phase="generate",
            dtype=quantised_dtype(self) or "bf16",
            kv_dtype=None,
            attention="flash",
            stack="serving",
            dispatch=None,
            base=not self._has_head(),
        )

    def _check(self, values: dict[str, Any]):
        total = values["input_len"] + (values["output_len"] or 0)
        if total > self.max_positions:
            raise ValueError(
                f"`input_len` + `output_len` is {total}, but {self.name} has "
                f"{self.max_positions} positions; shorten the input or the output."
            )

    def _listings(self, request: Request) -> list[Listing]:
        if request.phase == "train":
            run = self._run(request, _length(request), _length(request))
            return training_listings(self, self.network(run), request, run)
        if request.phase == "decode":
            rows = self._pass(request, 1, _length(request))
            return [self.listing(request, rows, "decode")]
        prefill = self._pass(request, _length(request), _length(request))
        if request.phase != "generate":
            return [self.listing(request, prefill, request.phase)]
        listings = [self.listing(request, prefill, "prefill", suffix="/prefill")]
        steps = (request.output_len or 1) - 1
        if steps:
            rows = [
                row
                for kv_len, count in decode_segments(_length(request), steps)
                for row in repeated(self._pass(request, 1, kv_len), count)
            ]
            listings.append(
                self.listing(request, rows, "decode", steps, suffix="/decode")
            )
        return listings

    def memory(self, request: Request) -> dict[str, float]:
        """In training what a micro-batch leaves for its gradients beside AdamW's state,
        else the cache of all tokens and a layer's operands."""
        length = _length(request)
        read = 1 if request.phase == "decode" else length
        run = self._run(request, read, length)
        body = self._pass(dataclasses.replace(request, base=True), read, length)
        working = working_bytes(finished(body, self.name))
        if request.phase == "train":
            network = self.network(run)
            return in_parts(
                **trained(self.parameters(), run.values),
                activations=kept(network, run),
                logits=Loss(self.vocab).kept(run),
                workspace=CONTEXT + working,  # gradients of a layer's operands
            )
        scored = run.tokens if request.stack == "eager" else run.sequences
        tokens = length + (request.output_len or 0)
        held = request.batch * min(tokens, self.window or tokens)
        return in_parts(
            weights=self.weight_bytes(request.dtype),
            kv_cache=held * self.kv_bytes_per_token(request.kv_dtype),
            activations=working,
            logits=0.0
            if request.base
            else scored * self.vocab * logit_bytes(run.values),
        )

    def _run(self, request: Request, q_len: int, kv_len: int) -> Pass:
        return Pass(
            request.batch,
            q_len,
            kv_len,
            self.precision(request),
            request.stack == "serving",
            request.attention == "flash",
            bool(request.checkpointing),
        )

    def _pass(self, request: Request, q_len: int, kv_len: int) -> list[Kernel]:
        run = self._run(request, q_len, kv_len)
        rows = self._serving_pass(run) if run.fused else self._eager_pass(run)
        if request.base:
            return rows
        if run.fused:
            return rows + self._serving_head(run)
        head = linear(run.precision, self.vocab, run.tokens, self.hidden)
        return [*rows, head]

    def _serving_pass(self, run: Pass) -> list[Kernel]:
        """Fused kernels of one pass, up to the final norm."""
        t, h, dtype, n = run.tokens, self.hidden, run.values, self.layers
        return [
            *self.embedding.forward(dataclasses.replace(run, fused=False)),
            rows_of(self.norm, t, h, dtype),
            *self.each(run, *self.projections(True), *self.head_norms()),
            self._kv_write(run),
            *self._serving_attention(run),
            *self.each(run, self.output(True), *self.mlp(True)),
            # two a layer and the final one; the very first had no residual to add
            rows_of(self.norm, t, h, dtype, count=2 * n, residual=True),
        ]

    def _serving_head(self, run: Pass) -> list[Kernel]:
        """Logits of the last token of each sequence, and sampling.

        The head stays in the activations' type where layers are quantised to 8 bit.
        """
        last = dataclasses.replace(run, q_len=1)
        head = Linear(self.vocab, self.hidden, wide=True).forward(last)
        return [*head, rows_of("softmax", run.sequences, self.vocab, "fp32")]

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
            head=Linear(self.vocab, h, wide=True),
        )

    def each(self, run: Pass, *operators: Operator) -> list[Kernel]:
        """Forward kernels of operators that every layer has."""
        return repeated([row for x in operators for row in x.forward(run)], self.layers)

    @property
    def head_layout(self) -> Heads:
        """Heads of the attention."""
        return Heads(self.heads, self.kv_heads, self.head_dim, self.window)

    def _site(self, run: Pass) -> Attention:
        """All attention calls of a pass."""
        return self.head_layout.site(run, self.layers)

    def _serving_attention(self, run: Pass) -> list[Kernel]:
        """One fused kernel a layer, or products around an fp32 softmax."""
        site, p = self._site(run), run.precision
        if run.flash:
            return [fused(site, p, window=self.window)]
        scores, values = products(site, p, **run.zeros)
        scale = score_stream("scale_mask", site, p.values, reads=1, **run.zeros)
        return [scores, scale, softmax(site, "fp32", **run.zeros), values]

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

    def _kv_write(self, run: Pass) -> Kernel:
        """New keys and values copied to the cache, q and k rotated on the way.

        Elements are q and k (rotated) or k and v; the cache may have fewer bytes.
        """
        p, kv = run.precision, self.kv_heads
        size = dtypes.BYTES[dtypes.code(p.cache)] / dtypes.BYTES[dtypes.code(p.values)]
        queries = self.heads if self.rotary else 0
        elements = queries + kv if self.rotary else 2 * kv
        return stream(
            "rope_kv_write" if self.rotary else "kv_write",
            run.tokens * elements * self.head_dim,
            p.values,
            self.layers,
            reads=(queries + 2 * kv) / elements,
            writes=(queries + 2 * kv * size) / elements,
        )


def decode_segments(input_len: int, steps: int) -> list[tuple[int, int]]:
    """(KV length, steps) of at most eight equal parts of a generation.

    Step i of `steps` attends to `input_len` + i tokens (i from 1); a part stands at its
    midpoint, so a cost linear in the KV length is integrated exactly (up to rounding).

    Example:

    >>> decode_segments(100, 3)
    [(101, 1), (102, 1), (103, 1)]
    """
    parts = min(_SEGMENTS, steps)
    edges = [steps * i // parts for i in range(parts + 1)]
    return [
        (round(input_len + (low + 1 + high) / 2), high - low)
        for low, high in zip(edges, edges[1:], strict=False)
    ]


def quantised_dtype(model: Model) -> str | None:
    """Type of the linear layers that the config's `quantization_config` states."""
    config = model.config
    raw = config.values.get("quantization_config")
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise config.error("quantization_config", "an object")
    method = raw.get("quant_method")
    modelopt = method == "modelopt" and "fp8" in str(raw.get("quant_algo")).lower()
    if method != "fp8" and not modelopt:
        raise ValueError(
            f"{config.where}: `quantization_config.quant_method` is {method!r}; "
            "supported are fp8 and modelopt (FP8); give `dtype`, or a kernel listing."
        )
    return "fp8_block" if raw.get("weight_block_size") else "fp8"


def _length(request: Request) -> int:
    return request.input_len or 1
