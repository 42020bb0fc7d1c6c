"""MPT: ALiBi in place of positions, LayerNorm without shift, no biases, GELU."""

import dataclasses
from typing import ClassVar, Final

from .._network.operators import Embedding
from .._shared.attention import Scores
from .._shared.config import Config
from .gpt2 import PreNorm, head_fields

MODEL_TYPES: Final = ("mpt",)


@dataclasses.dataclass(frozen=True)
class Mpt(PreNorm):
    """MPT; what ALiBi adds to the scores is part of the attention kernel."""

    biased: ClassVar[bool] = False
    norm_bias: ClassVar[bool] = False
    scores: ClassVar[Scores] = Scores()

    @property
    def embedding(self) -> Embedding:
        return Embedding(self.vocab, self.hidden)

    def module_calls(self, base: bool) -> int:
        """10 a block (block, 2 norms, attention with 2 linear layers, MLP with 2 and
        the activation, dropout) and 4 around them."""
        return 10 * self.layers + 4 + (0 if base else 1)


def build(config: Config) -> Mpt:
    """MPT of a config; with positions that are learned it is not supported."""
    hidden, heads = config.size("d_model"), config.size("n_heads")
    config.divides("n_heads", "d_model")
    attention = config.stated("attn_config") or {}
    if not attention.get("alibi", True):
        raise config.error("attn_config", "an `alibi` of true")
    if not config.flag("no_bias", True):
        raise config.error("no_bias", "true")
    kv_heads = int(attention.get("kv_n_heads") or heads)
    return Mpt(
        **head_fields(config, hidden, heads, kv_heads),
        layers=config.size("n_layers"),
        inner=config.size("expansion_ratio", default=4) * hidden,
        vocab=config.size("vocab_size"),
        positions=config.size("max_seq_len"),
        activation="gelu",
    )
