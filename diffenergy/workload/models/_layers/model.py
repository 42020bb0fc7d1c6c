"""A language model whose layers differ: it serves, trains where all of its layers do,
and does not run by operators."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Final

from .._network.operators import Embedding
from .._network.passes import ForwardPass
from .._shared.config import Config, positions
from .._shared.trained import TrainedModel
from .layer import Halves, Layer

_SERVED: Final = "only prefill, decode, generate and forward"


@dataclasses.dataclass(frozen=True)
class Layered(TrainedModel):
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

    @functools.cached_property
    def _halves(self) -> tuple[Halves | None, ...]:
        each = functools.cache(Layer.in_training)
        return tuple(each(block) for block in self.blocks)

    @property
    def trains(self) -> bool:
        return None not in self._halves

    def halves(self, run: ForwardPass) -> Sequence[Halves]:
        return [half for half in self._halves if half is not None]

    def module_calls(self, base: bool) -> int:
        """None: there is no eager pass."""
        return 0

    def _check(self, values: dict[str, Any]):
        super()._check(values)
        train = values["phase"] == "train"
        for key, value, wrong, has in (
            ("stack", "eager", True, "only serving (fused kernels)"),
            ("phase", "train", not self.trains, _SERVED),
            ("attention", "eager", train, "fused attention alone in training"),
            ("lora", values.get("lora"), train, "no adapters that are known"),
        ):
            if wrong and value is not None and values.get(key) == value:
                raise ValueError(
                    f"`{key}` is {value!r}, but {self.name} has {has}; a kernel "
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
