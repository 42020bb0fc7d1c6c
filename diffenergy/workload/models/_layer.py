"""Layers of language models: their operators, common parts, and readers of the keys
that most configs share."""

import dataclasses
import functools
from dataclasses import replace
from typing import Any, Literal

from ._checkpoint.config import Config
from ._operators.attention import Attention, Heads
from ._operators.elementwise import Map, Part
from ._operators.experts import Experts
from ._operators.linear import Activation, Gated, Linear
from ._operators.memory import Weights
from ._operators.mixers import STATES
from ._operators.operator import Cached, Norm, Operator, Trainable
from ._operators.sharding import Columns, ModelSplit, Rows


@dataclasses.dataclass(frozen=True)
class AttentionShape:
    """Sizes of grouped-query attention.

    `bias`: of queries, keys and values; `output_bias`: of the projection behind.
    `norms`: of queries and keys by head ("head"), over all heads ("all"), by head
    without weights ("bare") or none. `gate`: a gate as wide as the queries multiplies
    the output. `same_keys`: values are the projected keys.
    `chosen`: keys that a query reads at most (0: all), which `index` picks.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int = 0
    bias: bool = False
    output_bias: bool = False
    norms: Literal["", "head", "all", "bare"] = ""
    gate: bool = False
    same_keys: bool = False
    window: int = 0
    chunk: int = 0
    rotary: bool = True
    sinks: bool = False
    chosen: int = 0
    index: tuple[Operator, ...] = ()


def attention(shape: AttentionShape, prefix: str = "self_attn") -> Part:
    """Queries, keys and values as one product, the attention, the output."""
    s, values = shape, shape.v_head_dim or shape.head_dim
    queries, keys = s.heads * s.head_dim, s.kv_heads * s.head_dim
    inward = keys + (0 if s.same_keys else s.kv_heads * values)
    width, out = queries * (2 if s.gate else 1) + inward, s.heads * values
    split = Columns(inward, s.kv_heads)
    parts = (queries * (2 if s.gate else 1), keys)
    parts = parts if s.same_keys else (*parts, s.kv_heads * values)
    return (
        Linear(
            width, s.hidden, s.bias, parts=parts, module=f"{prefix}.q_proj", split=split
        ),
        *_head_norms(s),
        *s.index,
        Attention(
            Heads(s.heads, s.kv_heads, s.head_dim, s.window, v_head_dim=s.v_head_dim),
            rotary=s.rotary,
            sinks=s.sinks,
            chunk=s.chunk,
            chosen=s.chosen,
        ),
        *((Map("gate_mul", out, reads=2, split=True),) if s.gate else ()),
        Linear(s.hidden, out, s.output_bias, module=f"{prefix}.o_proj", split=Rows()),
    )  # fmt: skip


def _head_norms(s: AttentionShape) -> Part:
    if not s.norms:
        return ()
    norm, both = Norm("rmsnorm", s.head_dim, residual=False), (s.heads, s.kv_heads)
    if s.norms == "all":
        return tuple(replace(norm, cols=n * s.head_dim, heads=n) for n in both)
    weighted = s.norms == "head"
    return tuple(replace(norm, per_token=n, heads=n, weighted=weighted) for n in both)


def feed_forward(
    hidden: int,
    inner: int,
    prefix: str = "mlp",
    *,
    fn: str = "silu",
    gated: bool = True,
    bias: bool = False,
    joined: bool = False,
    joins: bool = False,
    merged: bool = False,
) -> Part:
    """Gate and up as one product, their product, down; without a gate up, the
    activation and down. `joined`: added to what routed experts make. `joins`: its input
    is that of the attention beside it. `merged`: modules have gate and up as one layer,
    too."""
    out = Linear(hidden, inner, bias, module=f"{prefix}.down_proj", split=Rows(joined))
    if not gated:
        up = Linear(inner, hidden, bias, module=f"{prefix}.up_proj", split=Columns())
        return (up, dataclasses.replace(out, activation=Activation(fn, inner)))
    both = Linear(
        2 * inner,
        hidden,
        bias,
        joins=joins,
        parts=() if merged else (inner, inner),
        module=f"{prefix}.gate_proj",
        split=Columns(),
    )
    return (both, Gated(inner, fn), out)


def shared_expert(
    hidden: int, inner: int, prefix: str, gate: bool = False, gated: bool = True
) -> Part:
    """A feed-forward layer of all tokens, added to what the routed experts make, if
    need be times a sigmoid of one number a token (`gate`)."""
    if not inner:
        return ()
    fn = "silu" if gated else "relu2"
    return (
        *feed_forward(hidden, inner, prefix, fn=fn, gated=gated, joined=True),
        *((Linear(1, hidden, wide=True),) if gate else ()),
        Map("add", hidden, reads=2),
    )


def experts(
    hidden: int, inner: int, number: int, chosen: int, prefix: str = "mlp", **more: Any
) -> Experts:
    """Routed experts whose matrices checkpoints name after `prefix`."""
    matrix = "gate_proj" if more.get("gated", True) else "up_proj"
    module = f"{prefix}.experts.0.{matrix}".lstrip(".")
    return Experts(hidden, inner, number, chosen, module=module, **more)


Trained = tuple[tuple[Trainable, ...], ...]
"""Parts of a layer in training, each with a norm before it and a skip behind it."""
_CONTAINERS = 3
"""Modules that hold others: a layer, its mixer and its feed-forward part."""


@dataclasses.dataclass(frozen=True)
class Layer:
    """Operators of a layer in launch order, without the `norms` over the whole width
    that begin its parts (and add the residual)."""

    operators: tuple[Operator, ...]
    norms: int = 2

    def shard(self, split: ModelSplit) -> "Layer":
        """The part of the layer on one of several GPUs."""
        if split not in self._shards:
            for operator in self.operators:  # whose errors name heads come first
                if not isinstance(operator, Linear):
                    operator.shard(split)
            operators = tuple(x.shard(split) for x in self.operators)
            self._shards[split] = dataclasses.replace(self, operators=operators)
        return self._shards[split]

    @functools.cached_property
    def _shards(self) -> dict[ModelSplit, "Layer"]:
        """Parts by split: a search asks thousands of times for few of them."""
        return {}

    def in_training(self) -> Trained | None:
        """Parts of the layer in a training step: one behind one norm, else mixer and
        feed forward (with 4 norms others follow them, `normed_behind`). None if an
        operator is not known to train, or for other numbers of norms.

        The mixer ends with the first linear layer that GPUs divide by its inputs.
        """
        parts = [x.in_training() for x in self.operators]
        each = [x for x in parts if x is not None]
        if len(each) < len(parts) or self.norms not in (1, 2, 4):
            return None
        if self.norms == 1:
            return (tuple(op for x in each for op in x),)
        ends = (
            i + 1
            for i, x in enumerate(self.operators)
            if isinstance(x, Linear) and isinstance(x.split, Rows)
        )
        stop = next(ends, 0)
        if not 0 < stop < len(each):
            return None
        parts = each[:stop], each[stop:]
        return tuple(tuple(op for x in part for op in x) for part in parts)

    @property
    def normed_behind(self) -> bool:
        """Whether norms stand behind its parts beside those before."""
        return self.norms == 4

    @property
    def modules(self) -> int:
        """`nn.Module` calls of one pass, as most modules have them: containers, linear
        layers, norms, activations."""
        trained = [x for part in self.in_training() or () for x in part]
        layers = [x for x in trained if isinstance(x, Linear)]
        linear = sum(len(x.parts or (1,)) + bool(x.activation) for x in layers)
        others = sum(isinstance(x, Norm | Gated) for x in trained)
        return _CONTAINERS + self.norms + linear + others

    def all_weights(self) -> list[tuple[Weights, int]]:
        """Weights of the layer, each once."""
        return [(w, 1) for x in self.operators for w in x.weights()]

    def all_cached(self) -> list[tuple[Cached, int]]:
        """State and cache of a sequence."""
        return [(cached, 1) for x in self.operators for cached in x.cached()]


FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
LINEAR = "linear_attention"


def head_sizes(config: Config, *widths: str) -> dict[str, Any]:
    """Width of the model, number of heads and their width; `widths`: keys of the
    latter."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    kv_heads = config.size("num_key_value_heads", default=heads)
    if heads % kv_heads:
        config.divides("num_key_value_heads", "num_attention_heads")
    if not any([config.has(key) for key in widths]):
        config.divides("num_attention_heads", "hidden_size")
    head_dim = config.size(*widths, default=hidden // heads)
    sizes = {"hidden": hidden, "heads": heads, "kv_heads": kv_heads}
    return {**sizes, "head_dim": head_dim}


def attention_shape(config: Config, **more: Any) -> AttentionShape:
    """Heads, their width and biases."""
    bias = config.flag("attention_bias", False)
    choices = {"bias": bias, "output_bias": bias, **more}
    sizes = head_sizes(config, "head_dim", "attention_head_dim")
    return AttentionShape(**sizes, **choices)


def mixture(
    config: Config,
    number: str,
    *chosen: str,
    inner: str = "moe_intermediate_size",
    prefix: str = "mlp",
    **more: Any,
) -> Experts:
    """Routed experts by the keys of their width, their `number` and how many are
    `chosen` (`num_experts_per_tok`)."""
    return experts(
        config.size("hidden_size"),
        config.size(inner),
        config.size(number),
        config.size(*(chosen or ("num_experts_per_tok",))),
        prefix,
        **more,
    )


def layer_kinds(config: Config, *kinds: str, pattern: int = 0) -> tuple[str, ...]:
    """Kind of every layer: by `layer_types`, or by `pattern`: every `pattern`-th layer
    is the first of `kinds`, the others the second; without a pattern all are the
    first."""
    layers = config.size("num_hidden_layers")
    if config.has("layer_types"):
        return config.words("layer_types", kinds, layers)
    if not pattern:
        return layers * (kinds[0],)
    return tuple(kinds[bool((i + 1) % pattern)] for i in range(layers))


def state_dtype(config: Config, key: str) -> str:
    """Type of the states of a recurrence."""
    name = config.text(key, "float32")
    if name not in STATES:
        raise config.error(key, ", ".join(STATES))
    return STATES[name]
