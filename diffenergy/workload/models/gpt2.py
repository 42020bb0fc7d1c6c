"""GPT-2: learned positions, LayerNorm, fused QKV as Conv1D, GELU."""

import dataclasses
from typing import ClassVar, Final

from ._network.linear_layer import Linear
from ._shared.attention import Scores
from ._shared.config import Config
from ._shared.pre_norm import PreNorm

MODEL_TYPES: Final = ("gpt2",)


@dataclasses.dataclass(frozen=True)
class Gpt2(PreNorm):
    """GPT-2; its linear layers are row-major (`Conv1D`)."""

    conv1d: ClassVar[bool] = True
    scores: ClassVar[Scores] = Scores("unspecified_tensor", "where", cast=False)

    def module_calls(self, base: bool) -> int:
        """13 a block (block, attention with 2 Conv1D and 2 dropouts, MLP with 2 Conv1D,
        activation and dropout, 2 norms) and 5 around them: 161 for GPT-2."""
        return 13 * self.layers + 5 + (0 if base else 2)

    def projections(self, fused: bool) -> tuple[Linear, ...]:
        return (self._linear(3 * self.hidden, self.hidden, fused),)


def build(config: Config) -> Gpt2:
    """GPT-2 of a config."""
    hidden = config.size("n_embd")
    heads = config.size("n_head")
    config.divides("n_head", "n_embd")
    activation = config.text("activation_function", "gelu_new")
    return Gpt2(
        config=config,
        layers=config.size("n_layer"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        inner=config.size("n_inner", default=4 * hidden),
        vocab=config.size("vocab_size"),
        positions=config.size("n_positions", "n_ctx"),
        window=0,
        activation=activation,
    )
