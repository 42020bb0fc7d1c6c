"""`Tower`: the part of a model that turns images into tokens of its language model."""

import dataclasses
from collections.abc import Iterator

from ..._kernel import Kernel
from .._layers.encoding import Stage, wide
from .._network.operators import Pass
from .._shared.formats import Precision
from .._shared.memory import number_of


@dataclasses.dataclass(frozen=True)
class Tower:
    """A vision tower with its projector.

    `stages`: from patches to tokens; None: its kind is not known. `usual`: tokens of an
    image of 1024 x 1024 pixels, or of the one size that it reads. `tile`: most tokens
    whose patches attend to each other (0: all of an image); more are several tiles.
    `whole`: whether an image is whole tiles. `note`: what is left out, "" if nothing.

    Weights stay in 16 bit whatever the language model's are, as checkpoints keep them.
    """

    name: str
    stages: tuple[Stage, ...] | None
    usual: int = 0
    tile: int = 0
    whole: bool = False
    note: str = ""

    @property
    def parameters(self) -> int | None:
        """Number of parameters, projector included; None: not known."""
        if self.stages is None:
            return None
        return number_of(x for stage in self.stages for x in stage.weights())

    def rows(
        self, images: int, image_tokens: int, precision: Precision
    ) -> list[Kernel]:
        """Kernels of a pass over `images` of `image_tokens` tokens each.

        Raises `ValueError` where the tower is not known, or the tokens are none that
        an image of it can have.
        """
        if self.stages is None:
            raise ValueError(f"`images` is {images}, but {self.note}.")
        rows = []
        for sequences, length in self._tiles(images, image_tokens):
            run = Pass(sequences, length, length, precision, fused=True, flash=True)
            for stage in self.stages:
                kept = dataclasses.replace(stage, operators=wide(stage.operators))
                rows += kept.rows(run)
        return rows

    def _tiles(self, images: int, tokens: int) -> Iterator[tuple[int, int]]:
        """(number, tokens) of the tiles of all images that have as many tokens."""
        if not self.tile:
            yield images, tokens
            return
        number, rest = divmod(tokens, self.tile)
        if self.whole and rest:
            raise ValueError(
                f"`image_tokens` is {tokens}, but {self.name} makes {self.tile} tokens "
                f"of an image or tile; give a multiple of {self.tile}."
            )
        if number:
            yield images * number, self.tile
        if rest:
            yield images, rest
