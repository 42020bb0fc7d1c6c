"""BERT: bidirectional encoder with learned positions, LayerNorm and a pooler; in
training with the head that its config names. RoBERTa is one whose table of positions
begins with rows that no token takes."""

import dataclasses
from typing import ClassVar, Final

from ..._eager_rows import stream
from ..._kernel import Kernel
from .._checkpoint.config import Config
from .._encoder import Encoder, encoder_layer, labels_of
from .._operators.elementwise import forward_only, pointwise
from .._operators.linear import Linear
from .._operators.memory import Weights
from .._operators.operator import Embedding, Norm
from .._operators.partial import Within, parameters
from .._operators.passes import linear
from .._operators.scores import Scores
from .._request import Request
from .._stack import Block, Stack
from .._step import Loss

_ROBERTA: Final = ("roberta", "xlm-roberta", "camembert")
MODEL_TYPES: Final = ("bert", *_ROBERTA)
_HEADS: Final = (
    "ForMaskedLM", "ForPreTraining", "ForSequenceClassification",
    "ForTokenClassification",
)  # fmt: skip
"""Ends of the classes of a config whose training is known."""
_LABELS: Final = 2
"""Classes where a config does not say how many."""


@dataclasses.dataclass(frozen=True)
class Bert(Encoder):
    """BertModel; heads of derived classes are not added, but in training."""

    layers: int
    hidden: int
    heads: int
    inner: int
    vocab: int
    positions: int
    types: int
    activation: str
    head: str
    unused: int = 0  # positions that no token takes

    adapts: ClassVar[bool] = True
    scores: ClassVar[Scores] = Scores("unspecified_scalar", cast=False)

    @property
    def max_positions(self) -> int:
        return self.positions

    def parameters(self) -> int:
        inputs, layers, _ = self.network().blocks
        pooler = Linear(self.hidden, self.hidden, True)
        return inputs.parameters + layers.parameters + parameters((pooler,))

    def module_calls(self, base: bool) -> int:
        """18 a layer and 8 around them: 440 for BERT-large, as counted there."""
        return 18 * self.layers + 8

    def _forward(self, request: Request) -> list[Kernel]:
        p, h = self.precision(request), self.hidden
        return [
            *self.traced(self.network().blocks[:2], request),
            linear(p, h, request.batch, h),
            stream("tanh", request.batch * h, p.values, 1),
        ]

    def length(self, request: Request) -> int:
        return request.input_len or self.positions

    def network(self, whole: bool = True) -> Stack:
        h, norm = self.hidden, Norm("layernorm", self.hidden)
        inputs = (
            Embedding(self.vocab, h, self.positions + self.unused),
            Embedding(self.types, h),
            forward_only("pointwise_add", h),
            norm,
            forward_only("scalar_mul", 1),  # additive padding mask
        )
        layer = encoder_layer(
            h, self.heads, self.inner, self.activation, self.scores, norm_first=False
        )
        words = (
            Linear(h, h, True),
            pointwise(self.activation, h),
            norm,
            _Tied(self.vocab, h, True, wide=True, frozen=not whole),
        )
        classifier = Linear(self._labels, h, True, wide=True)
        pooled = Within((Linear(h, h, True), pointwise("tanh", h), classifier))
        head, loss = {
            "ForMaskedLM": (words, Loss(self.vocab)),
            "ForPreTraining": ((*words, pooled), Loss(self.vocab)),
            "ForSequenceClassification": ((pooled,), Within((Loss(self._labels),))),
            "ForTokenClassification": ((classifier,), Loss(self._labels)),
        }[self.head]
        blocks = (Block(inputs), Block(layer, self.layers, h), Block(head))
        return Stack(blocks, loss)

    @property
    def _labels(self) -> int:
        """Classes of the head; two of the next sentence."""
        if self.head == "ForPreTraining":
            return _LABELS
        return labels_of(self.config, _LABELS)


@dataclasses.dataclass(frozen=True)
class _Tied(Linear):
    """Logits by the table of the embedding, and a bias."""

    def weights(self) -> tuple[Weights, ...]:
        return (Weights(self.outputs),)


def _head_of(config: Config) -> str:
    """The head that is trained: what the class of the config ends in; that of masked
    words where it is the bare `BertModel`, or no class that is known."""
    names = config.stated("architectures")
    stated = names if isinstance(names, list) else []
    matches = [x for x in _HEADS if any(str(name).endswith(x) for name in stated)]
    return matches[0] if matches else _HEADS[0]


def build(config: Config) -> Bert:
    """BERT of a config."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    config.divides("num_attention_heads", "hidden_size")
    is_roberta = config.text("model_type") in _ROBERTA
    unused = config.size("pad_token_id", default=1) + 1 if is_roberta else 0
    return Bert(
        config=config,
        layers=config.size("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        inner=config.size("intermediate_size"),
        vocab=config.size("vocab_size"),
        positions=config.size("max_position_embeddings") - unused,
        types=config.size("type_vocab_size", default=2),
        unused=unused,
        activation=config.text("hidden_act", "gelu"),
        head=_head_of(config),
    )
