"""Decoders of the GPT-2 kind: learned positions, LayerNorm before attention and MLP."""

import dataclasses
from typing import ClassVar

from ..._listing import Kernel
from ..._unlisted import stream
from .._network.activations import Activation
from .._network.linear_layer import Linear
from .._network.operators import Operator, Pass
from .base import layer_parameters, rows_of
from .decoder import Decoder


@dataclasses.dataclass(frozen=True)
class PreNorm(Decoder):
    """Decoder with biases everywhere, fused into the linear layers."""

    activation: str

    norm: ClassVar[str] = "layernorm"
    position_offset: ClassVar[int] = 0
    """Rows of the position table before position 0."""
    conv1d: ClassVar[bool] = False
    """Whether eager weights are row-major, as in `Conv1D`."""

    def parameters(self) -> int:
        h = self.hidden
        tables = (self.vocab + self.positions + self.position_offset) * h
        return tables + self.layers * layer_parameters(h, self.inner) + 2 * h

    def output(self, fused: bool) -> Linear:
        return self._linear(self.hidden, self.hidden, fused)

    def mlp(self, fused: bool) -> tuple[Operator, ...]:
        activation = Activation(self.activation, self.inner)
        return (
            self._linear(self.inner, self.hidden, fused),
            self._linear(self.hidden, self.inner, fused, activation),
        )

    def _linear(
        self,
        outputs: int,
        inputs: int,
        fused: bool,
        activation: Activation | None = None,
    ) -> Linear:
        row_major = self.conv1d and not fused
        return Linear(outputs, inputs, True, row_major, activation=activation)

    def _eager_pass(self, run: Pass) -> list[Kernel]:
        t, n, h = run.tokens, self.layers, self.hidden
        return [
            *self.tables(run),
            stream("pointwise_add", t * h, run.values, 2 * n + 1),
            rows_of(self.norm, t, h, run.values, count=2 * n + 1),
            *self.each(run, *self.projections(False)),
            *self._eager_attention(run),
            *self.each(run, self.output(False), *self.mlp(False)),
            *self._eager_copies(run),
        ]
