"""A language model whose layers differ: it serves, and neither trains nor runs by
operators."""

import dataclasses
from typing import Any

from .._network.operators import Embedding
from .._shared.config import Config, positions
from .._shared.language_model import LanguageModel
from .layer import Layer


@dataclasses.dataclass(frozen=True)
class Layered(LanguageModel):
    """A language model of `blocks`, first to last; `tied`: no head of its own."""

    blocks: tuple[Layer, ...]
    tied: bool

    @property
    def layers(self) -> int:
        """Layers."""
        return len(self.blocks)

    @property
    def embedding(self) -> Embedding:
        return Embedding(self.vocab, self.hidden)

    @property
    def own_head(self) -> bool:
        return not self.tied

    def stack(self) -> tuple[Layer, ...]:
        return self.blocks

    def module_calls(self, base: bool) -> int:
        """None: there is no eager pass."""
        return 0

    def _check(self, values: dict[str, Any]):
        super()._check(values)
        for key, value, has in (
            ("stack", "eager", "only serving (fused kernels)"),
            ("phase", "train", "only prefill, decode, generate and forward"),
        ):
            if values[key] == value:
                raise ValueError(
                    f"`{key}` is '{value}', but {self.name} has {has}; a kernel "
                    "listing can say otherwise."
                )


def layered(config: Config, blocks: list[Layer], tied: bool = False) -> Layered:
    """The model of a config whose keys have all been read; raises `ValueError` for a
    key that nobody read and that may change a layer.

    `tied`: whether the head is the embedding where the config does not say.
    """
    model = Layered(
        config=config,
        hidden=config.size("hidden_size"),
        vocab=config.size("vocab_size"),
        positions=positions(config),
        blocks=tuple(blocks),
        tied=config.tied(tied),
    )
    config.check_read()
    return model
