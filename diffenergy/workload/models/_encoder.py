"""`Encoder`: models without a KV cache (text encoders, vision)."""

import abc
import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from .._eager_rows import stream
from .._kernel import Kernel
from .._listing import Listing
from ._checkpoint.config import Config
from ._model import Model
from ._operators.attention import Attention, Heads
from ._operators.convolution import Convolution
from ._operators.linear import Activation, Linear
from ._operators.memory import (
    CONTEXT,
    bytes_of,
    memory_by_part,
    number_of,
    training_state,
    working_bytes,
)
from ._operators.operator import ForwardPass, Norm, Residual, Trainable
from ._operators.partial import Within
from ._operators.passes import repeat_rows
from ._operators.scores import Scores
from ._request import Request
from ._stack import Block, Stack
from ._step import check_frozen, training_listings

_TRAINED: Final = ("batch_norm_statistics", "batch_norm", "mean")
"""Kernels of a training step that inference has not, or (means over maps) whose traces
do not list them."""


@dataclasses.dataclass(frozen=True)
class Encoder(Model):
    """A network without a KV cache: one forward pass, or a training step."""

    scores: ClassVar[Scores]
    """Operations on the attention scores, if there is attention."""
    adapts: ClassVar[bool] = False
    """Whether the layers have weights in linear layers and norms only."""

    @abc.abstractmethod
    def _forward(self, request: Request) -> list[Kernel]:
        """Kernels that the published module launches."""

    def _one_pass(self, request: Request) -> list[Kernel]:
        return self._forward(request)

    @property
    def max_positions(self) -> int | None:
        return None

    def defaults(self) -> dict[str, Any]:
        return dict(
            batch=1,
            input_len=self.max_positions,
            output_len=None,
            phase="forward",
            dtype="bf16",
            kv_dtype=None,
            attention="eager",
            stack="eager",
            dispatch=None,
            base=not self._has_head(),
        )

    def _check(self, values: dict[str, Any]):
        if values["phase"] == "train":
            self._check_training(values)
        elif values["phase"] not in ("forward", "prefill"):
            raise ValueError(
                f"`phase` is {values['phase']!r}, but {self.name} generates no tokens; "
                "use forward."
            )
        if values["stack"] != "eager":
            raise ValueError(
                f"`stack` is {values['stack']!r}, but {self.name} has only eager."
            )
        longest, length = self.max_positions, values["input_len"]
        if longest is None and length is not None:
            raise ValueError(
                f"`input_len` is {length}, but {self.name} reads images of the "
                "config's size; leave it out."
            )
        if longest is not None and length is not None and length > longest:
            raise ValueError(
                f"`input_len` is {length}, but {self.name} has {longest} positions; "
                "shorten the input."
            )

    def _check_training(self, values: dict[str, Any]):
        network = self.network()
        if network is None:
            raise ValueError(
                f"`phase` is 'train', but the training of {self.name} is not known; "
                "give a kernel listing (`.jsonl`)."
            )
        check_frozen(values, self.name, network.layers)
        if values.get("recompute") == "selective-op":
            raise ValueError(
                "`recompute` is 'selective-op', which is known for language models "
                "alone; take 'none', 'selective' or 'full'."
            )
        if values.get("lora") and not self.adapts:
            raise ValueError(
                f"`lora` is {values['lora']}, but {self.name} has convolutions, whose "
                "adapters are not known; leave it out or take `--frozen-layers`."
            )

    def network(self, whole: bool = True) -> Stack | None:
        """Operators of a training step; not `whole`: the first ones are frozen. None
        for a model whose training is not known."""
        return None

    def length(self, request: Request) -> int:
        """Tokens of a sequence; 1 for an image that is not cut into tokens."""
        return 1

    def _run(self, request: Request) -> ForwardPass:
        """Forward pass of a training step."""
        length = self.length(request)
        return ForwardPass(
            request.batch,
            length,
            length,
            self.precision(request),
            fused=False,
            flash=request.attention == "flash",
            recompute=request.recomputed,
            train=True,
        )

    def _trained(self, request: Request) -> Stack:
        """Operators of a training step, some of them frozen or with adapters."""
        network = self.network(not (request.lora or request.frozen_layers))
        if network is None:
            raise ValueError(f"the training of {self.name} is not known.")
        if request.lora:
            return network.with_adapters(request.lora, request.lora_layers, head=True)
        return dataclasses.replace(network, frozen=request.frozen_layers or 0)

    def traced(
        self, blocks: Iterable[Block], request: Request, **unlisted: int
    ) -> list[Kernel]:
        """Forward kernels of `blocks` as traces have them, without heads, then the
        kernels that traces do not list (`unlisted`: reads of each element by `fn`)."""
        run = dataclasses.replace(self._run(request), train=False)
        rows, rest = [], []
        for block in blocks:
            for row in repeat_rows(_traced(block.operators, run), block.count):
                fn = row.get("fn", "")
                if fn in unlisted:
                    traffic = {"reads": unlisted[fn], "writes": 1}
                    rest.append({**row, "listed": False, **traffic})
                else:
                    rows.append(row)
        return rows + rest

    def memory(self, request: Request) -> dict[str, float]:
        """Bytes by part: weights and operands of the largest kernel; in training
        AdamW's state and the saved activations of a micro-batch."""
        once = dataclasses.replace(request, phase="forward")
        working = working_bytes(
            self.listing(once, self._forward(once), "forward").kernels
        )
        if request.phase != "train":
            return memory_by_part(
                weights=self.weight_bytes(request.dtype), activations=working
            )
        network, run = self._trained(request), self._run(request)
        moving = number_of(network.trained_weights)
        still = bytes_of(network.frozen_weights, run.precision)
        return memory_by_part(
            **training_state(moving, run.values, still),
            activations=sum(network.saved_bytes(run)),
            logits=network.logits(run),
            workspace=CONTEXT + working,  # the context, gradients of operands
        )

    def listings_of(self, request: Request) -> list[Listing]:
        if request.phase == "train":
            network, run = self._trained(request), self._run(request)
            passes = network.forward(run), network.backward(run)
            moving = number_of(network.trained_weights)
            return training_listings(self, passes, request, run, moving)
        return [self.listing(request, self._forward(request), request.phase)]


def _traced(operators: Iterable[Trainable], run: ForwardPass) -> list[Kernel]:
    """Inference kernels of operators without heads: BatchNorm, which needs no
    statistics, with the convolution before it; shortcuts last."""
    rows: list[Kernel] = []
    for x in sorted(operators, key=lambda x: isinstance(x, Convolution) and x.joins):
        if isinstance(x, Within):
            rows += _traced(x.operators, x.inside(run))
        elif isinstance(x, Convolution):
            rows += x.rows(run.sequences, run.precision, batch_norm=not x.bias)
        elif isinstance(x, Linear) and x.activation:  # one kernel, whatever it is
            rows.append(stream(x.activation.fn, run.tokens * x.inputs, run.values, 1))
            rows += dataclasses.replace(x, activation=None).forward(run)
        elif not (isinstance(x, Linear) and x.wide):
            kernels = [row for row in x.forward(run) if row.get("fn") not in _TRAINED]
            rows += sorted(kernels, key=lambda row: row.get("listed") is False)
    return rows


def labels_of(config: Config, usual: int = 1000) -> int:
    """Classes of the classifier: `num_labels`, else the length of `id2label`."""
    names = config.values.get("id2label")
    default = len(names) if isinstance(names, dict) and names else usual
    return config.size("num_labels", default=default)


def encoder_layer(
    width: int,
    heads: int,
    inner: int,
    activation: str,
    scores: Scores,
    norm_first: bool = True,
) -> tuple[Trainable, ...]:
    """Operators of a transformer layer with attention to all tokens: norms before
    attention and MLP, or behind their sums (`norm_first` false)."""
    linear = Linear(width, width, True)
    norm = Norm("layernorm", width)
    layout = Heads(heads, heads, width // heads, causal=False)
    attention = (
        linear,
        *2 * (dataclasses.replace(linear, joins=True),),
        Attention(layout, scores),
        linear,
        Residual(width),
    )
    mlp = (
        Linear(inner, width, True),
        Linear(width, inner, True, activation=Activation(activation, inner)),
        Residual(width),
    )
    if norm_first:
        return (norm, *attention, norm, *mlp)
    return (*attention, norm, *mlp, norm)
