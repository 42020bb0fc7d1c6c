"""GPT-2 (learned positions, LayerNorm, fused QKV as Conv1D, GELU) and the decoder that
it has in common with OPT."""

import dataclasses
from typing import Any, ClassVar, Final

from ..._eager_rows import stream
from ..._kernel import Kernel
from .._network.linear_layer import Activation, Linear
from .._network.operators import ForwardPass, Trainable
from .._network.passes import rows_of
from .._network.sharding import Columns, Rows
from .._shared.attention import Scores
from .._shared.config import Config
from .._shared.decoder import Decoder

MODEL_TYPES: Final = ("gpt2",)


@dataclasses.dataclass(frozen=True)
class PreNorm(Decoder):
    """Decoder with LayerNorm before attention and before an MLP of two layers; biases
    are fused into the linear layers."""

    activation: str

    norm: ClassVar[str] = "layernorm"
    position_offset: ClassVar[int] = 0
    """Rows of the position table before position 0."""
    biased: ClassVar[bool] = True
    """Whether linear layers have biases."""
    conv1d: ClassVar[bool] = False
    """Whether eager weights are row-major, as in `Conv1D`."""

    def parameters(self) -> int:
        before = self.position_offset * self.hidden if self.share.is_first else 0
        return super().parameters() + before

    def projections(self, fused: bool) -> tuple[Linear, ...]:
        """Queries, keys and values as one product."""
        row_major = self.conv1d and not fused
        return self.queries_keys_values(True, self.biased, row_major=row_major)

    def output(self, fused: bool) -> Linear:
        width = self.heads * self.head_dim
        return self._linear(self.hidden, width, fused, split=Rows())

    def mlp(self, fused: bool) -> tuple[Trainable, ...]:
        activation = Activation(self.activation, self.inner)
        return (
            self._linear(self.inner, self.hidden, fused),
            self._linear(self.hidden, self.inner, fused, activation, Rows()),
        )

    def _linear(
        self,
        outputs: int,
        inputs: int,
        fused: bool,
        activation: Activation | None = None,
        split: Columns | Rows = Columns(),  # noqa: B008 (frozen)
    ) -> Linear:
        row_major = self.conv1d and not fused
        return Linear(
            outputs, inputs, self.biased, row_major, activation=activation, split=split
        )

    def _eager_pass(self, run: ForwardPass) -> list[Kernel]:
        t, n, h = run.tokens, self.layers, self.hidden
        return [
            *self.tables(run),
            stream("pointwise_add", t * h, run.values, 2 * n),
            rows_of(self.norm, t, h, run.values, count=2 * n + 1),
            *self.each(run, *self.projections(False)),
            *self._eager_attention(run),
            *self.each(run, self.output(False), *self.mlp(False)),
            *self._eager_copies(run),
        ]


@dataclasses.dataclass(frozen=True)
class Gpt2(PreNorm):
    """GPT-2; its linear layers are row-major (`Conv1D`)."""

    conv1d: ClassVar[bool] = True
    scores: ClassVar[Scores] = Scores("unspecified_tensor", "where", cast=False)

    def module_calls(self, base: bool) -> int:
        """13 a block (block, attention with 2 Conv1D and 2 dropouts, MLP with 2 Conv1D,
        activation and dropout, 2 norms) and 5 around them: 161 for GPT-2."""
        return 13 * self.layers + 5 + (0 if base else 2)


def head_fields(
    config: Config, hidden: int, heads: int, kv_heads: int | None = None
) -> dict[str, Any]:
    """Fields of a decoder without windows whose head is the embedding; `kv_heads`:
    where heads share keys."""
    widths = {"hidden": hidden, "heads": heads, "kv_heads": kv_heads or heads}
    rest = {"head_dim": hidden // heads, "window": 0, "tied": True}
    return {"config": config, **widths, **rest}


def build(config: Config) -> Gpt2:
    """GPT-2 of a config."""
    hidden = config.size("n_embd")
    heads = config.size("n_head")
    config.divides("n_head", "n_embd")
    activation = config.text("activation_function", "gelu_new")
    return Gpt2(
        **head_fields(config, hidden, heads),
        layers=config.size("n_layer"),
        inner=config.size("n_inner", default=4 * hidden),
        vocab=config.size("vocab_size"),
        positions=config.size("n_positions", "n_ctx"),
        activation=activation,
    )
