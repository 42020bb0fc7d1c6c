"""OPT: learned positions, LayerNorm before attention and MLP, ReLU."""

import dataclasses
from typing import ClassVar, Final

from ..._eager_rows import stream
from ..._kernel import Kernel
from .._network.linear_layer import Linear
from .._network.operators import ForwardPass
from .._shared.attention import Scores
from .._shared.config import Config
from .gpt2 import PreNorm, head_fields

MODEL_TYPES: Final = ("opt",)


@dataclasses.dataclass(frozen=True)
class Opt(PreNorm):
    """OPT with pre-norm layers."""

    position_offset: ClassVar[int] = 2
    scores: ClassVar[Scores] = Scores(scale_queries=True)

    def module_calls(self, base: bool) -> int:
        """11 a layer (layer, attention, 4 projections, 2 norms, 2 linear, activation)
        and 5 around them: 269 for OPT-1.3B."""
        return 11 * self.layers + 5 + (0 if base else 2)

    def projections(self, fused: bool) -> tuple[Linear, ...]:
        return self.queries_keys_values(fused, True)

    def tables(self, run: ForwardPass) -> list[Kernel]:
        """Causal mask, and positions from the padding mask."""
        mask = run.tokens * run.kv_len
        return [
            stream("pointwise_add", mask, "fp32", 1),
            stream("pointwise_mul", run.tokens, "fp32", 1),
        ]


def build(config: Config) -> Opt:
    """OPT of a config; the 350M variant (projected embeddings) is not supported."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    config.divides("num_attention_heads", "hidden_size")
    if config.size("word_embed_proj_dim", default=hidden) != hidden:
        raise config.error("word_embed_proj_dim", f"`hidden_size` = {hidden}")
    return Opt(
        **head_fields(config, hidden, heads),
        layers=config.size("num_hidden_layers"),
        inner=config.size("ffn_dim"),
        vocab=config.size("vocab_size"),
        positions=config.size("max_position_embeddings"),
        activation=config.text("activation_function", "relu"),
    )
