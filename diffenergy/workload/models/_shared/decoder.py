"""Decoder language models: phases, attention variants and the fused serving stack."""

import abc
import dataclasses
from typing import Any

from .... import dtypes
from ..._listing import Kernel, Listing
from ..._unlisted import (
    HALF,
    Attention,
    attention_copies,
    repeated_keys,
    stream,
    unlisted,
)
from .._training.self_attention import Heads
from .._training.step import Network, training_listings
from .attention import fused, products, score_stream, softmax
from .base import Model, Precision, Request, dense, linear, repeated, rows_of

_SEGMENTS = 8
"""Decode steps are integrated over at most so many KV lengths."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One forward pass: `q_len` new tokens a sequence against `kv_len` cached ones."""

    batch: int
    q_len: int
    kv_len: int
    precision: Precision
    flash: bool
    base: bool

    @property
    def tokens(self) -> int:
        """New tokens of all sequences."""
        return self.batch * self.q_len

    @property
    def is_decode(self) -> bool:
        """Whether keys of earlier passes are read."""
        return self.kv_len > self.q_len

    @property
    def zeros(self) -> dict[str, float]:
        """Causally masked scores are half zeros; a decode step masks nothing."""
        return {} if self.is_decode else {"zero_share": HALF}


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

    @property
    def max_positions(self) -> int:
        return self.positions

    @abc.abstractmethod
    def _serving_pass(self, step: Step) -> list[Kernel]:
        """Fused kernels of one pass, up to the final norm."""

    @abc.abstractmethod
    def _eager_pass(self, step: Step) -> list[Kernel]:
        """Kernels that the Hugging Face base model launches in one pass."""

    @abc.abstractmethod
    def _network(self, request: Request) -> Network:
        """Operators of a training step."""

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
            return training_listings(self, self._network(request), request)
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

    def _pass(self, request: Request, q_len: int, kv_len: int) -> list[Kernel]:
        step = Step(
            request.batch,
            q_len,
            kv_len,
            self.precision(request),
            request.attention == "flash",
            request.base,
        )
        if request.stack == "serving":
            return self._serving_pass(step) + self._serving_head(step)
        head = linear(step.precision, self.vocab, step.tokens, self.hidden)
        return self._eager_pass(step) + ([] if step.base else [head])

    def _serving_head(self, step: Step) -> list[Kernel]:
        """Logits of the last token of each sequence, and sampling.

        The head stays in the activations' type where layers are quantised to 8 bit.
        """
        if step.base:
            return []
        p = step.precision
        dtype = p.linear if dtypes.BYTES[dtypes.code(p.linear)] >= 2 else p.values
        return [
            dense(dtype, step.batch, self.vocab, self.hidden),
            rows_of("softmax", step.batch, self.vocab, "fp32"),
        ]

    @property
    def head_layout(self) -> Heads:
        """Heads of the attention."""
        return Heads(self.heads, self.kv_heads, self.head_dim, self.window)

    def _site(self, step: Step) -> Attention:
        """All attention calls of a pass."""
        return Attention(
            step.batch,
            self.heads,
            self.kv_heads,
            step.q_len,
            step.kv_len,
            self.head_dim,
            self.layers,
        )

    def _fused_attention(self, step: Step) -> Kernel:
        return fused(self._site(step), step.precision, window=self.window)

    def _serving_attention(self, step: Step) -> list[Kernel]:
        """One fused kernel a layer, or products around an fp32 softmax."""
        if step.flash:
            return [self._fused_attention(step)]
        site, p = self._site(step), step.precision
        scores, values = products(site, p, **step.zeros)
        scale = score_stream("scale_mask", site, p.values, reads=1, **step.zeros)
        return [scores, scale, softmax(site, "fp32", **step.zeros), values]

    def _eager_copies(self, step: Step) -> list[Kernel]:
        """Unlisted copies around attention; in decode also the grown KV cache."""
        dtype, site = step.precision.values, self._site(step)
        rows = repeated_keys(site, dtype)
        if not step.flash:
            rows += attention_copies(site, dtype)
        if step.is_decode:
            cached = step.batch * self.kv_heads * step.kv_len * self.head_dim
            rows.append(unlisted("concat", cached, dtype, 2 * self.layers))
        return rows

    def _kv_write(self, step: Step, fn: str, rotated: bool) -> Kernel:
        """New keys and values copied to the cache, q and k rotated on the way.

        Elements are q and k (rotated) or k and v; the cache may have fewer bytes.
        """
        p, kv = step.precision, self.kv_heads
        size = dtypes.BYTES[dtypes.code(p.cache)] / dtypes.BYTES[dtypes.code(p.values)]
        queries = self.heads if rotated else 0
        elements = queries + kv if rotated else 2 * kv
        return stream(
            fn,
            step.tokens * elements * self.head_dim,
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
