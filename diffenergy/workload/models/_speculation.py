"""Speculative decoding: tokens that a cheap network drafts, and the model verifies in
one pass.

With `accept` the probability that a drafted token is right where all before it were, a
chain of k drafted tokens makes (1 - a^(k + 1)) / (1 - a) tokens a step in the mean
(arXiv 2211.17192, equation 1).
"""

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from ._checkpoint.config import Config
from ._layer import AttentionShape, Layer, attention, feed_forward
from ._operators.attention import Attention
from ._operators.linear import Linear
from ._operators.operator import Norm
from ._operators.sharding import Rows

if TYPE_CHECKING:
    from ._request import Request

_DRAFTED: Final = {"mtp": 1, "eagle": 3, "draft": 4}
"""Tokens drafted a step where nothing is said, by kind."""
_KINDS: Final = "mtp, eagle and draft=MODEL"
MOST_DRAFTED: Final = 32
"""Tokens that a step drafts at most."""


@dataclasses.dataclass(frozen=True)
class Speculation:
    """`kind`: "mtp" (the model's own layer), "eagle" or "draft" (of `model`)."""

    kind: str
    model: str
    accept: float
    drafted: int

    @property
    def tokens(self) -> float:
        """Tokens that a step makes in the mean.

        >>> round(Speculation("mtp", "", 0.8, 3).tokens, 3)
        2.952
        """
        if self.accept == 1:
            return self.drafted + 1.0
        return (1 - self.accept ** (self.drafted + 1)) / (1 - self.accept)


def speculation_of(request: "Request") -> Speculation | None:
    """Speculation of a resolved request; None without any."""
    if request.speculative is None:
        return None
    kind, _, model = request.speculative.partition("=")
    return Speculation(kind, model, request.accept or 0.0, request.draft_tokens or 1)


def resolve(values: dict[str, Any]) -> dict[str, Any]:
    """The choices with the default of `draft_tokens`. Raises `ValueError` for choices
    that contradict each other."""
    stated, accept = values.get("speculative"), values.get("accept")
    if stated is None:
        for name in ("accept", "draft_tokens"):
            if values.get(name) is not None:
                raise ValueError(
                    f"`{name}` is given, but nothing drafts tokens; give {_KINDS} as "
                    "`speculative`."
                )
        return values
    kind, _, model = str(stated).partition("=")
    if kind not in _DRAFTED or bool(model) != (kind == "draft"):
        raise ValueError(f"`speculative` is {stated!r}; allowed are {_KINDS}.")
    if values["phase"] not in ("decode", "generate"):
        raise ValueError(
            f"`speculative` is given, but the phase {values['phase']} makes no tokens; "
            "leave it out or take `--phase generate`."
        )
    if values["stack"] != "serving":
        raise ValueError(
            f"`speculative` is given, but `stack` is '{values['stack']}'; it is known "
            "for serving alone."
        )
    if accept is None:
        raise ValueError(
            "`accept` is missing: give the share of drafted tokens that are right, "
            "0 to 1; it depends on the texts."
        )
    if not isinstance(accept, int | float) or not 0 <= accept <= 1:
        raise ValueError(f"`accept` is {accept!r}; allowed is a number from 0 to 1.")
    drafted = values.get("draft_tokens")
    if drafted is None:
        return values | {"draft_tokens": _DRAFTED[kind]}
    if not isinstance(drafted, int) or not 1 <= drafted <= MOST_DRAFTED:
        raise ValueError(
            f"`draft_tokens` is {drafted!r}; allowed is a whole number from 1 to "
            f"{MOST_DRAFTED}."
        )
    return values


# --- Layers that draft tokens for the model behind which they stand

_MTP_KEYS: Final = (
    "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules",
    "num_mtp_layers",
)  # fmt: skip
"""Keys of configs for the layers that predict further tokens."""
EAGLE_WORDS: Final = 32_000
"""Words that an EAGLE-3 head knows."""
_HEAD: Final = 128
_INNER: Final = 3.5
"""Width of a head, and of the feed-forward layer by that of the model, of a layer of
EAGLE whose model has no grouped-query attention to copy."""


def mtp_layers(config: Config) -> int:
    """Number of layers that predict further tokens, as the config states it."""
    return max(config.whole(key, 0) for key in _MTP_KEYS)


def without_mtp(config: Config) -> Config:
    """The config without layers that predict further tokens."""
    values = {key: x for key, x in config.values.items() if key not in _MTP_KEYS}
    return dataclasses.replace(config, values=values)


def mtp_layer(hidden: int, last: Layer) -> Layer:
    """Layer that predicts a further token: norms of the hidden state and of the new
    token, their joint projection, a layer like the last (DeepSeek-V3, arXiv 2412.19437,
    section 2.2)."""
    norm = Norm("rmsnorm", hidden, residual=False)
    joint = Linear(hidden, 2 * hidden, module="eh_proj")
    return Layer((norm, norm, joint, *last.operators), last.norms)


def eagle_layer(hidden: int, first: Layer) -> Layer:
    """Layer of EAGLE-3: projection of three hidden states, attention over it and the
    token beside it, a gated feed-forward layer."""
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
