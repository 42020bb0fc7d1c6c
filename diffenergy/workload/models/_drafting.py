"""Layers that draft tokens for the model behind which they stand."""

import dataclasses
from typing import Final

from ._checkpoint.config import Config
from ._layer import AttentionShape, Layer, attention, feed_forward
from ._operators.attention import Attention
from ._operators.linear import Linear
from ._operators.operator import Norm
from ._operators.sharding import Rows

_MTP_KEYS: Final = (
    "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules",
    "num_mtp_layers",
)  # fmt: skip
"""Words of configs for the layers that predict further tokens."""
EAGLE_WORDS: Final = 32_000
"""Words that an EAGLE-3 head knows."""
_HEAD: Final = 128
_INNER: Final = 3.5
"""Width of a head, and of the feed-forward layer by that of the model, of a layer of
EAGLE whose model has no grouped-query attention to copy."""


def mtp_layers(config: Config) -> int:
    """How many of these layers a config states."""
    return max(config.whole(key, 0) for key in _MTP_KEYS)


def without_mtp(config: Config) -> Config:
    """The config as if it stated none."""
    values = {key: x for key, x in config.values.items() if key not in _MTP_KEYS}
    return dataclasses.replace(config, values=values)


def mtp_layer(hidden: int, last: Layer) -> Layer:
    """Norms of the hidden state and of the new token, their joint projection, a layer
    like the last (DeepSeek-V3, arXiv 2412.19437, section 2.2)."""
    norm = Norm("rmsnorm", hidden, residual=False)
    joint = Linear(hidden, 2 * hidden, module="eh_proj")
    return Layer((norm, norm, joint, *last.operators), last.norms)


def eagle_layer(hidden: int, first: Layer) -> Layer:
    """Projection of three hidden states, attention over it and the token beside it, a
    gated feed-forward layer."""
    mixers = (x.layout for x in first.operators if isinstance(x, Attention))
    heads = next(mixers, None)
    number = heads.heads if heads else hidden // _HEAD
    groups = heads.kv_heads if heads else max(number // 8, 1)
    width = heads.head_dim if heads else _HEAD
    shape = AttentionShape(2 * hidden, number, groups, width)
    *mixer, _ = attention(shape, "")
    output = Linear(hidden, number * width, split=Rows())
    joint = Linear(hidden, 3 * hidden)
    feed = feed_forward(hidden, int(_INNER * hidden), "")
    return Layer((joint, *mixer, output, *feed))
