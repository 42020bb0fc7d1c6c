"""A model as the stack of its layers: weights, formats of a checkpoint, KV cache."""

import collections
import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, Final

from ... import dtypes
from ._checkpoint.formats import Checkpoint, Precision, precision_of, read_checkpoint
from ._layer import Layer
from ._model import Model
from ._operators.linear import Linear
from ._operators.memory import Weights, bytes_of, number_of
from ._operators.operator import Cached, Embedding, Norm, Operator, Stored, Table
from ._operators.sharding import ModelShare
from ._towers import Tower, tower_of

_UNQUANTISED: Final = "bf16"
"""Type of the weights that a quantised checkpoint does not quantise."""


@dataclasses.dataclass(frozen=True)
class LayeredModel(Model):
    """Layers (`blocks`, first to last) with an embedding before and a head behind them,
    and their weights; of several GPUs that share the model one's part (`share`).

    `tied`: no head of its own. `norm`: those over the whole width; `norm_bias`: whether
    a LayerNorm also shifts. `learned`: positions are looked up and added. `unread`:
    parameters beside that no kernel reads. `tables`: what modules make before the
    layers beside the angles of rotary positions (stack eager). `modules`: `nn.Module`
    calls of a layer, around all layers and of the head, where they are not the usual
    ones. `sizes`: what a summary tells of the layers.
    """

    hidden: int
    vocab: int
    positions: int
    blocks: tuple[Layer, ...]
    tied: bool
    _: dataclasses.KW_ONLY
    norm: str = "rmsnorm"
    norm_bias: bool = True
    learned: bool = False
    unread: int = 0
    tables: tuple[Table, ...] = ()
    modules: tuple[int, int, int] | None = None
    sizes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    share: ModelShare = ModelShare()

    @property
    def layers(self) -> int:
        """Layers of all GPUs."""
        return len(self.blocks)

    @property
    def embedding(self) -> Embedding:
        """Look-up of tokens, and of positions where they are learned."""
        return Embedding(self.vocab, self.hidden, self.positions * self.learned)

    @property
    def untied(self) -> bool:
        """Whether the head has weights of its own (not the embedding's)."""
        return not self.tied

    def stack(self) -> tuple[Layer, ...]:
        """All layers, first to last."""
        return self.blocks

    def _sizes(self) -> dict[str, Any]:
        ends = {"hidden": self.hidden, "vocab": self.vocab, "positions": self.positions}
        return {**ends, **self.sizes} | {"tied": self.tied}

    @functools.cached_property
    def layer_counts(self) -> Mapping[Layer, int]:
        """Number of occurrences of each distinct layer, formats of the checkpoint
        included, in order of first appearance."""
        stack, counts = self.stack(), collections.Counter[Layer]()
        own = [self._formatted(stack[i], i) for i in self.share.layers(len(stack))]
        # by identity first: a layer is many records, which take long to hash
        same = collections.Counter(map(id, own))
        each = {id(layer): layer for layer in own}
        for key, number in same.items():
            counts[each[key].shard(self.share.split)] += number
        return counts

    @functools.cached_property
    def checkpoint(self) -> Checkpoint:
        """Types of the weights by the config, or by the file beside it."""
        return read_checkpoint(self.config.outer or self.config)

    @property
    def norms(self) -> int:
        """Norms over the whole width in all layers."""
        return sum(layer.norms * n for layer, n in self.layer_counts.items())

    def all_weights(self) -> list[tuple[Weights, int]]:
        """Weights of the language model, and how often each occurs (towers left
        out)."""
        norm, share = Norm(self.norm, self.hidden, shifted=self.norm_bias), self.share
        ends: list[tuple[Operator, int]] = [(norm, self.norms + share.is_last)]
        if share.is_first or (share.is_last and not self.untied):
            ends.insert(0, (self._table, 1))
        if self.untied and share.is_last:
            ends.append((self.head, 1))
        inside = [
            (x, n) for layer, n in self.layer_counts.items() for x in layer.operators
        ]
        return [(w, n) for operator, n in (*ends, *inside) for w in operator.weights()]

    @property
    def head(self) -> Linear:
        """Logits of a token; in 16 bit unless the checkpoint says otherwise."""
        form = self.checkpoint.format("lm_head") if self.checkpoint.rules else None
        words = math.ceil(self.vocab / self.share.split.tp)  # engines fill it up
        return Linear(words, self.hidden, wide=True, format=form)

    @property
    def _table(self) -> Embedding:
        """The part of the embedding on this GPU; the last of several has words only."""
        table = self.embedding.shard(self.share.split)
        first = self.share.is_first
        return table if first else dataclasses.replace(table, positions=0)

    @functools.cached_property
    def tower(self) -> Tower | None:
        """Vision tower; None for a model that reads text alone."""
        return tower_of(self.config)

    @property
    def notes(self) -> tuple[str, ...]:
        note = self.tower.note if self.tower else ""
        return (f"{note}.",) if note else ()

    def text_parameters(self) -> int:
        """Number of parameters without those of a vision tower."""
        return number_of(self.all_weights())

    def tower_weights(self) -> list[tuple[Weights, int]]:
        """Weights of the vision tower, and how often each occurs."""
        tower = self.tower if self.share.is_first else None
        number = tower.parameters if tower else None
        return [(Weights(number), 1)] if number else []

    def parameters(self) -> int:
        beside = self.unread if self.share.is_first else 0
        return self.text_parameters() + beside + number_of(self.tower_weights())

    @functools.cached_property
    def stored_dtype(self) -> str:
        """Type of most weights (`bf16` where nothing is quantised)."""
        shares: collections.Counter[str] = collections.Counter()
        for w, n in self.all_weights():
            shares[w.format.weights if w.format else _UNQUANTISED] += w.number * n
        return shares.most_common(1)[0][0]

    def weight_bytes(self, dtype: str) -> float:
        """Bytes of the weights with the linear layers of all layers in `dtype`, or
        each as it is stored where `dtype` is `stored_dtype`."""
        weights = [*self.all_weights(), *self.tower_weights()]
        return bytes_of(weights, self._precision(dtype, "bf16"))

    def all_cached(self) -> list[tuple[Cached, int]]:
        """State and cache of a sequence in all layers, and how often each occurs."""
        layers = self.layer_counts.items()
        return [(cached, n) for layer, n in layers for cached, _ in layer.all_cached()]

    def kv_bytes_per_token(self, dtype: str, windowed: bool = False) -> float:
        elements = sum(
            cached.elements * n
            for cached, n in self.all_cached()
            if bool(cached.window) == windowed
        )
        return float(elements * dtypes.BYTES[dtypes.code(dtype)])

    def state_bytes(self) -> float:
        return float(sum(cached.state * n for cached, n in self.all_cached()))

    def _formatted(self, layer: Layer, place: int) -> Layer:
        """The layer at a place with the stored formats of its linear layers."""
        if not self.checkpoint.rules:
            return layer
        format_of, path = self.checkpoint.format, f"layers.{place}."
        operators = tuple(
            dataclasses.replace(x, format=format_of(path + x.module))
            if isinstance(x, Stored) and x.module
            else x
            for x in layer.operators
        )
        return dataclasses.replace(layer, operators=operators)

    def _precision(self, dtype: str, cache: str) -> Precision:
        if dtype == self.stored_dtype and self.checkpoint.quantised:
            return Precision(_UNQUANTISED, _UNQUANTISED, cache, stored=True)
        return precision_of(dtype, cache)
