"""Nemotron 3 and 4: rotary positions, LayerNorm, grouped queries, squared ReLU."""

import dataclasses
from typing import ClassVar, Final

from ..._eager_rows import rotary_copies
from ..._kernel import Kernel
from .._layers.read import head_sizes
from .._network.operators import ForwardPass
from .._network.self_attention import rotation
from .._shared.attention import Scores
from .._shared.config import Config, positions
from .gpt2 import PreNorm

MODEL_TYPES: Final = ("nemotron",)


@dataclasses.dataclass(frozen=True)
class Nemotron(PreNorm):
    """Nemotron-3-8B, Nemotron-4-15B and -340B and their like, without biases."""

    biased: ClassVar[bool] = False
    rotary: ClassVar[bool] = True
    scores: ClassVar[Scores] = Scores()

    def module_calls(self, base: bool) -> int:
        """11 a layer (layer, attention, 4 projections, 2 norms, MLP with 2 layers less
        its activation) and 4 around them."""
        return 11 * self.layers + 4 + (0 if base else 2)

    def _eager_pass(self, run: ForwardPass) -> list[Kernel]:
        site, dtype = self._site(run), run.values
        rotated = [*rotary_copies(site, dtype), *rotation(site, dtype)]
        return [*super()._eager_pass(run), *rotated]


def build(config: Config) -> Nemotron:
    """Nemotron of a config."""
    sizes = head_sizes(config, "head_dim")
    for key in ("attention_bias", "mlp_bias"):
        if config.flag(key, False):
            raise config.error(key, "false")
    config.ignore("partial_rotary_factor", "norm_eps")
    return Nemotron(
        config=config,
        layers=config.size("num_hidden_layers"),
        **sizes,
        inner=config.size("intermediate_size"),
        vocab=config.size("vocab_size"),
        positions=positions(config),
        window=0,
        tied=config.tied(),
        activation=config.text("hidden_act", "relu2"),
    )
