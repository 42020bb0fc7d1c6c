"""Whisper (arXiv 2212.04356): an encoder over windows of 30 s of speech, and a decoder
of text that attends to what the encoder made, too."""

import dataclasses
from typing import Any, ClassVar, Final

from ..._eager_rows import stream
from ..._kernel import Kernel, normalise_rows
from ..._listing import Listing
from .._checkpoint.config import Config
from .._encoding import EncoderShape, FullAttention, Stage, encoder_layer
from .._layer import Layer, feed_forward
from .._operators.attention import Attention, Heads
from .._operators.elementwise import Map, Plain
from .._operators.linear import Linear
from .._operators.memory import Weights, memory_by_part, working_bytes
from .._operators.operator import Cached, ForwardPass, Norm, Operator
from .._request import Request
from .._trained import TrainedModel

MODEL_TYPES: Final = ("whisper",)
_PROMPT: Final = 4
"""Tokens that a transcript begins with: start, language, task, no timestamps."""
_TAPS: Final = 3
"""Frames that a convolution sees; the second one takes every other."""
_CROSS_BYTES: Final = 2.0
"""Bytes of an element that is kept of the encoder's output."""


@dataclasses.dataclass(frozen=True)
class CrossAttention(Operator):
    """Attention to `positions` of an encoder; their keys and values are made in the
    pass over the prompt and kept."""

    hidden: int
    heads: int
    head_dim: int
    positions: int

    def forward(self, run: ForwardPass) -> list[Kernel]:
        keys = [] if run.is_decode else self._keys_and_values(run)
        crossing = dataclasses.replace(run, kv_len=self.positions)
        return [*keys, *FullAttention(self.heads, self.head_dim).forward(crossing)]

    def weights(self) -> tuple[Weights, ...]:
        return (*self._both.weights(), Weights(self._width))  # values have a bias

    def cached(self) -> tuple[Cached, ...]:
        return (Cached(state=2 * self._width * self.positions * _CROSS_BYTES),)

    def _keys_and_values(self, run: ForwardPass) -> list[Kernel]:
        heard = dataclasses.replace(run, q_len=self.positions, kv_len=self.positions)
        elements = heard.tokens * 2 * self._width
        write = stream("kv_write", elements, run.values, 1, reads=1, writes=1)
        return [*self._both.forward(heard), write]

    @property
    def _width(self) -> int:
        return self.heads * self.head_dim

    @property
    def _both(self) -> Linear:
        return Linear(2 * self._width, self.hidden, module="encoder_attn.k_proj")


@dataclasses.dataclass(frozen=True)
class Whisper(TrainedModel):
    """`encoder`: from frames to the `heard` positions of a window. A request's batch is
    windows; its phases are forward (the encoder alone), prefill (encoder, then the
    decoder over the prompt), decode and generate."""

    encoder: tuple[Stage, ...]
    heard: int

    divides: ClassVar[bool] = False

    def tower_weights(self) -> list[tuple[Weights, int]]:
        return [pair for stage in self.encoder for pair in stage.weights()]

    def defaults(self) -> dict[str, Any]:
        return super().defaults() | {"input_len": _PROMPT}

    def request(self, **choices: Any) -> Request:
        """The request with every choice made; see `Model.request`."""
        checked = super().request(**choices)
        alone = checked.phase == "forward"
        return dataclasses.replace(checked, input_len=None) if alone else checked

    def memory(self, request: Request) -> dict[str, float]:
        """Of the encoder alone all weights and the operands of its largest kernel."""
        if request.phase != "forward":
            return super().memory(request)
        rows = normalise_rows(self._encoded(request), self.name)
        weights = self.weight_bytes(request.dtype)
        return memory_by_part(weights=weights, activations=working_bytes(rows))

    def _check(self, values: dict[str, Any]):
        super()._check(values)
        length, phase = values["input_len"], values["phase"]
        if phase == "forward" and length != _PROMPT:
            raise ValueError(
                f"`input_len` is {length}, but forward is the encoder of {self.name} "
                "alone, which reads windows of 30 s; leave it out or take `--phase "
                "prefill`."
            )
        if phase == "decode" and length == 1:
            raise ValueError(
                "`input_len` is 1, but a decode step follows the pass over the prompt; "
                "give at least 2."
            )

    def listings_of(self, request: Request) -> list[Listing]:
        if request.phase != "forward":
            return super().listings_of(request)
        return [self.listing(request, self._encoded(request), "forward")]

    def _encoded(self, request: Request) -> list[Kernel]:
        """The encoder's pass over all windows."""
        if request.phase == "decode":
            return []
        run = self.run(request, self.heard, self.heard)
        return [row for stage in self.encoder for row in stage.rows(run)]


def build(config: Config) -> Whisper:
    """Whisper of a config."""
    hidden, heads = config.size("d_model"), config.size("decoder_attention_heads")
    config.divides("decoder_attention_heads", "d_model")
    config.divides("encoder_attention_heads", "d_model")
    heard = config.size("max_source_positions", default=1500)
    layer = _decoder_layer(hidden, heads, config.size("decoder_ffn_dim"), heard)
    return Whisper(
        config=config,
        hidden=hidden,
        vocab=config.size("vocab_size"),
        positions=config.size("max_target_positions", default=448),
        blocks=config.size("decoder_layers") * (layer,),
        tied=True,
        norm="layernorm",
        learned=True,
        sizes={"heard": heard},
        encoder=_encoder(config, hidden, heard),
        heard=heard,
    )


def _encoder(config: Config, hidden: int, heard: int) -> tuple[Stage, ...]:
    """Convolutions along the frames as products over their taps, two frames a position
    before the second; layers; a norm."""
    heads = config.size("encoder_attention_heads")
    inner = config.size("encoder_ffn_dim")
    shape = EncoderShape(hidden, heads, hidden // heads, inner, key_bias=False)
    bins = config.size("num_mel_bins", default=80)
    gelu, positions = Map("gelu", hidden), heard * hidden
    return (
        Stage((Linear(hidden, _TAPS * bins, True), gelu), per=2),
        Stage((Linear(hidden, _TAPS * hidden, True), gelu)),
        Stage((Map("positions", hidden, reads=2, parameters=positions),)),
        Stage(encoder_layer(shape), config.size("encoder_layers")),
        Stage((Norm("layernorm", hidden),)),
    )


def _decoder_layer(hidden: int, heads: int, inner: int, heard: int) -> Layer:
    """Attention to the text before, attention to what was heard, feed forward; keys
    have no bias."""
    head_dim = hidden // heads
    self_part = (
        Linear(3 * hidden, hidden, module="self_attn.q_proj"),
        Plain(2 * hidden),  # biases of queries and values
        Attention(Heads(heads, heads, head_dim)),
        Linear(hidden, hidden, True, module="self_attn.out_proj"),
    )
    cross = (
        Linear(hidden, hidden, True, module="encoder_attn.q_proj"),
        CrossAttention(hidden, heads, head_dim, heard),
        Linear(hidden, hidden, True, module="encoder_attn.out_proj"),
    )
    feed = feed_forward(hidden, inner, fn="gelu", gated=False, bias=True)
    return Layer((*self_part, *cross, *feed), norms=3)
