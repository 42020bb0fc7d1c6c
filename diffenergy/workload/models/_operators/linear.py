"""Linear layers of a training step (a product forward, two backward), and the
activations between them: plain ones, GELU made of operators, gated ones."""

import dataclasses
from typing import Any, Final

from ..._eager_rows import HALF, stream
from ..._kernel import Kernel, Number
from .._checkpoint.formats import Format, Precision
from .memory import Weights, element_bytes
from .operator import Stored, Trainable
from .passes import ForwardPass, dense, linear, product
from .sharding import Columns, ModelSplit, Rows, divide, gather_rows, reduce_rows

# --- Low-rank adapters (LoRA, arXiv 2106.09685): of a linear layer whose weights are
# frozen, y = W x + B (A x) with A of rank x inputs and B of outputs x rank.


@dataclasses.dataclass(frozen=True)
class Adapters:
    """Adapters of layers with these `outputs` and the same input, which one product
    may make together: each has an A and a B of its own. Fused stacks multiply by all A
    at once; both add the result with a kernel."""

    rank: int
    outputs: tuple[int, ...]

    def parameters(self, inputs: int) -> int:
        """Number of elements of all A and B.

        >>> Adapters(16, (4096, 1024, 1024)).parameters(4096)
        294912
        """
        return sum(self.rank * (inputs + outputs) for outputs in self.outputs)

    def forward(self, run: ForwardPass, inputs: int) -> list[Kernel]:
        """Kernels of A x, then of B (A x), scaled and added."""
        t, rank, dtype = run.tokens, self.rank, run.values
        if run.fused:
            return [
                dense(dtype, t, self._joined, inputs),
                *(dense(dtype, t, outputs, rank) for outputs in self.outputs),
                stream("pointwise_add", t * sum(self.outputs), dtype, 1),
            ]
        p = dataclasses.replace(run.precision, linear=run.precision.products)
        return [
            row
            for outputs in self.outputs
            for row in (
                linear(p, rank, t, inputs),
                linear(p, outputs, t, rank),
                stream("scalar_mul", t * outputs, dtype, 1),
                stream("pointwise_add", t * outputs, dtype, 1),
            )
        ]

    def backward(self, run: ForwardPass, inputs: int) -> list[Kernel]:
        """Kernels of the gradients of A x, of B, of A and of the input."""
        t, rank, dtype = run.tokens, self.rank, run.values
        added = stream("pointwise_add", t * inputs, dtype, 1)
        ups = [
            row
            for outputs in self.outputs
            for row in (
                *([] if run.fused else [stream("scalar_mul", t * outputs, dtype, 1)]),
                dense(dtype, t, rank, outputs),
                product(dtype, 1, outputs, rank, t),
            )
        ]
        widths = (self._joined,) if run.fused else len(self.outputs) * (rank,)
        downs = [
            row
            for width in widths
            for row in (
                product(dtype, 1, width, inputs, t),
                dense(dtype, t, inputs, width),
                added,
            )
        ]
        return [*ups, *downs]

    def saved_bytes(self, run: ForwardPass) -> float:
        """Bytes of A x."""
        return run.tokens * self._joined * run.element_bytes

    @property
    def _joined(self) -> int:
        return self.rank * len(self.outputs)


# --- Linear layers of a training step (a product forward

_ONE_STAGE: Final = 64 * 80
"""Columns from which llm.c sums a bias gradient in one stage: a CTA holds 64 columns
(8 warp lanes of 8 values), an RTX 3080 Ti has 80 SMs. GPUs differ; the second stage
takes microseconds."""
_SCALED: Final = ("fp8_block", "mxfp8", "int8", "nvfp4", "mxfp4")
"""Types of activations whose scales follow from their values."""
_PARTIAL_SUMS: Final = 4
"""Rows of partial sums that the second stage reads."""


@dataclasses.dataclass(frozen=True)
class Activation:
    """Activation of `width` features a token, the input of a linear layer.

    Fused stacks keep its input alone and run it again for the gradient of that layer's
    weight; ReLU's output tells its own gradient and is kept as that layer's input.
    """

    fn: str
    width: int

    @property
    def zeros(self) -> dict[str, float]:
        """Share of zeros in the output."""
        return {"zero_share": HALF} if self.fn == "relu" else {}

    def forward(self, run: ForwardPass) -> list[Kernel]:
        """Kernels that apply it."""
        elements = run.tokens * self.width
        if self.fn == "gelu_new" and not run.fused:
            return _gelu_new(elements, run.values)
        return [stream(self._name, elements, run.values, 1)]

    def again(self, run: ForwardPass) -> list[Kernel]:
        """Kernels that restore its output in the backward pass."""
        again = run.fused and run.restores and run.recompute != "full"
        return self.forward(run) if again and self.fn != "relu" else []

    def backward(self, run: ForwardPass) -> list[Kernel]:
        """Kernels of its gradient."""
        elements = run.tokens * self.width
        if self.fn == "gelu_new" and not run.fused:
            return _gelu_new_backward(elements, run.values)
        name = f"{self._name}_backward"
        return [stream(name, elements, run.values, 1, reads=2, writes=1)]

    def saved_bytes(self, run: ForwardPass) -> float:
        """Bytes of its input; of `gelu_new` in operators also those of the cube, of
        tanh's gradient and of the last product (two); of ReLU none beside its
        output."""
        if self.fn == "relu":
            return 0.0
        tensors = 4 if self.fn == "gelu_new" and not run.fused else 1
        return tensors * run.tokens * self.width * run.element_bytes

    @property
    def _name(self) -> str:
        return "gelu" if self.fn == "gelu_new" else self.fn


def _gelu_new(elements: int, dtype: str) -> list[Kernel]:
    """`gelu_new` is eight kernels: 0.5 x (1 + tanh(c (x + 0.044715 x^3)))."""
    parts = {
        "scalar_mul": 4,  # 0.5 x, 0.044715 x^3, c (...), 1 + ...
        "unspecified_scalar": 1,
        "pointwise_add": 1,
        "tanh": 1,
        "pointwise_mul": 1,
    }
    return [stream(fn, elements, dtype, n) for fn, n in parts.items()]


def _gelu_new_backward(elements: int, dtype: str) -> list[Kernel]:
    """Gradients of the eight operators, last first; x is used three times."""
    both = {"reads": 2, "writes": 1}
    return [
        stream("pointwise_mul", elements, dtype, 2),  # of the two factors
        stream("tanh_backward", elements, dtype, 1, **both),
        stream("scalar_mul", elements, dtype, 4),  # c, 0.044715, 3 x^2, 0.5
        stream("pow", elements, dtype, 1),
        stream("pointwise_mul", elements, dtype, 1),
        stream("pointwise_add", elements, dtype, 2),
    ]


@dataclasses.dataclass(frozen=True)
class Gated(Trainable):
    """SiLU (or another `fn`) of one half of the features times the other half, `width`
    each."""

    width: int
    fn: str = "silu"

    def shard(self, split: ModelSplit) -> "Gated":
        width = divide(self.width, split.tp, "features")
        return dataclasses.replace(self, width=width)

    def forward(self, run: ForwardPass) -> list[Kernel]:
        elements = run.tokens * self.width
        if run.fused:
            return [stream(f"{self.fn}_mul", elements, run.values, 1, reads=2)]
        both = (self.fn, "pointwise_mul")
        return [stream(fn, elements, run.values, 1) for fn in both]

    def backward(self, run: ForwardPass) -> list[Kernel]:
        elements = run.tokens * self.width
        if run.fused:
            return [gated_backward(elements, run.values, self.fn)]
        both = {"reads": 2, "writes": 1}
        return [
            stream("pointwise_mul", elements, run.values, 2),
            stream(f"{self.fn}_backward", elements, run.values, 1, **both),
        ]

    def saved_bytes(self, run: ForwardPass) -> float:
        """Bytes of gate and up; in operators also of the activated gate."""
        each = 2 * run.kept_bytes if run.fused else 3 * run.element_bytes
        return each * run.tokens * self.width


def gated_backward(elements: Number, dtype: str, fn: str = "silu") -> Kernel:
    """Kernel of the gradients of gate and up, from gate, up and dy."""
    return stream(f"{fn}_mul_backward", elements, dtype, 1, reads=3, writes=2)


@dataclasses.dataclass(frozen=True)
class Linear(Stored, Trainable):
    """Linear layer: one product forward, gradients of input and weight backward.

    `row_major`: weights as in `Conv1D`. `wide`: stays in 16 bit where others have 8.
    `joins`: its input feeds another layer, whose gradient is added. `parts`: outputs of
    the layers that it joins (queries, keys and values); in operators each of them is a
    product, and each has adapters of its own. `activation`: what makes its input; the
    gradient follows where llm.c has it, behind the input's.
    `module`: its name in a checkpoint, which may store it in a `format` (None: 16 bit).
    `split`: how GPUs divide it (None: each has all of it, for its share of the tokens,
    if these are divided); `among`: which GPUs do.
    `frozen`: its weights have no gradient; `adapters`: what is trained in their place.
    """

    outputs: int
    inputs: int
    bias: bool = False
    row_major: bool = False
    wide: bool = False
    joins: bool = False
    parts: tuple[int, ...] = ()
    activation: Activation | None = None
    split: Columns | Rows | None = None
    among: ModelSplit = ModelSplit()
    frozen: bool = False
    adapters: Adapters | None = None

    def shard(self, split: ModelSplit) -> "Linear":
        if split.tp == 1:
            return self
        if self.split is None:
            return dataclasses.replace(self, among=split)
        if isinstance(self.split, Columns):
            outputs = self.split.share(self.outputs, split.tp)
            parts = self.split.share_parts(self.parts, split.tp)
            return dataclasses.replace(self, outputs=outputs, parts=parts, among=split)
        inputs = divide(self.inputs, split.tp, "features")
        before = self.activation and dataclasses.replace(self.activation, width=inputs)
        return dataclasses.replace(self, inputs=inputs, activation=before, among=split)

    def in_training(self) -> tuple["Linear", ...]:
        """The layer in a training step, where routed experts add up their own
        outputs."""
        split = Rows() if isinstance(self.split, Rows) else self.split
        return (dataclasses.replace(self, split=split),)

    def with_adapters(self, rank: int) -> "Linear":
        """The layer frozen, with adapters of `rank` for each of its parts."""
        adapters = Adapters(rank, self.parts or (self.outputs,))
        return dataclasses.replace(self, frozen=True, adapters=adapters)

    def _apart(self) -> tuple["Linear", ...]:
        """The layers that it joins, one each; the first has the input."""
        return tuple(
            dataclasses.replace(
                self,
                outputs=outputs,
                parts=(),
                joins=self.joins or i > 0,
                adapters=self.adapters
                and dataclasses.replace(self.adapters, outputs=(outputs,)),
            )
            for i, outputs in enumerate(self.parts)
        )

    def forward(self, run: ForwardPass) -> list[Kernel]:
        if self.parts and not run.fused:
            return [row for x in self._apart() for row in x.forward(run)]
        whole = gather_rows(run, self.inputs, self.among) if self._spreads else []
        added = reduce_rows(run, self.outputs, self.among) if self._adds else []
        adapted = self.adapters.forward(run, self.inputs) if self.adapters else []
        return [*whole, *self._product(run), *adapted, *added]

    @property
    def _spreads(self) -> bool:
        """Whether its input comes from what GPUs divide by tokens."""
        return isinstance(self.split, Columns) and not self.joins

    @property
    def _adds(self) -> bool:
        """Whether GPUs have partial sums, and no other layer's are added with them."""
        if not isinstance(self.split, Rows):
            return False
        return not self.split.joined or self.among.replicas > 1

    def _tokens(self, run: ForwardPass) -> int:
        """Tokens that it multiplies on one GPU."""
        return run.tokens // (self.among.parts if self.split is None else 1)

    def _product(self, run: ForwardPass) -> list[Kernel]:
        p, t, zeros = self._precision(run), self._tokens(run), self._zeros
        rows = self.activation.forward(run) if self.activation else []
        form = run.precision.format(self.format, not self.wide)
        if run.train and not self.joins:
            rows = [*rows, *self._cast(run, self.inputs)]
        if form and run.fused:
            row = dense(form.products, t, self.outputs, self.inputs, **zeros)
            scaled = [] if run.train else quantise(t * self.inputs, form, run.values)
            return [*rows, *scaled, row | storage_fields(form)]
        if not run.fused and not self.row_major:
            return [*rows, linear(p, self.outputs, t, self.inputs, **zeros)]
        layout = {} if run.fused else {"layout": "nn"}
        row = dense(p.linear, t, self.outputs, self.inputs, **layout, **zeros)
        return [*rows, row]

    def backward(self, run: ForwardPass) -> list[Kernel]:
        if self.parts and not run.fused:
            return [row for x in reversed(self._apart()) for row in x.backward(run)]
        dtype, t = self._precision(run).linear, self._tokens(run)
        behind = self.activation
        add = stream("pointwise_add", t * self.inputs, run.values, 1)
        weight = product(dtype, 1, self.outputs, self.inputs, t, **self._zeros)
        adapted = self.adapters.backward(run, self.inputs) if self.adapters else []
        return [
            *(gather_rows(run, self.outputs, self.among) if self._adds else []),
            *(behind.again(run) if behind and self._reads_input else []),
            *(self._bias_gradient(run) if self.bias and not self.frozen else []),
            *self._cast(run, self.outputs),
            dense(dtype, t, self.inputs, self.outputs),
            *adapted,
            *(behind.backward(run) if behind else []),
            *([] if self.frozen else [weight]),
            *([add] if self.joins and not run.fused else []),
            *(reduce_rows(run, self.inputs, self.among) if self._spreads else []),
        ]

    def _cast(self, run: ForwardPass, width: int) -> list[Kernel]:
        return narrow(run, self._tokens(run) * width, self._precision(run).linear)

    def saved_bytes(self, run: ForwardPass) -> float:
        """Bytes of its input, unless another layer has it, it is restored or no
        gradient needs it; and those of its activation and adapters."""
        behind = self.activation
        total = self.input_bytes(run)
        total += self.adapters.saved_bytes(run) if self.adapters else 0.0
        return total + (behind.saved_bytes(run) if behind else 0.0)

    def input_bytes(self, run: ForwardPass) -> float:
        behind = self.activation
        t = self._tokens(run) / (self.among.parts if self._spreads else 1)
        read = t * self.inputs * element_bytes(self._precision(run).linear)
        restored = self.joins or bool(behind and behind.again(run))
        return 0.0 if restored or not self._reads_input else read

    @property
    def _reads_input(self) -> bool:
        """Whether a gradient needs its input: of its weights, of an adapter or of a
        ReLU before it."""
        relu = self.activation is not None and self.activation.fn == "relu"
        return not self.frozen or self.adapters is not None or relu

    def selective_bytes(self, run: ForwardPass) -> float:
        t = self._tokens(run) / (self.among.parts if self._adds else 1)
        return t * self.outputs * run.element_bytes / 2

    def _bias_gradient(self, run: ForwardPass) -> list[Kernel]:
        """Sum over the tokens, behind partial sums over those that a GPU has."""
        n = self.outputs
        t = self._tokens(run) // (self.among.parts if self._adds else 1)
        sums = [stream("bias_grad", t * n, run.values, 1, reads=1, writes=1 / t)]
        if run.fused and n < _ONE_STAGE:
            reads = {"reads": _PARTIAL_SUMS, "out_dtype": run.values}
            sums.append(stream("bias_reduce", n, "fp32", 1, **reads))
        return sums

    def _precision(self, run: ForwardPass) -> Precision:
        p = run.precision
        narrow = p.requested is not None
        return dataclasses.replace(p, linear=p.values) if self.wide and narrow else p

    @property
    def _zeros(self) -> dict[str, float]:
        return self.activation.zeros if self.activation else {}

    def weights(self) -> tuple[Weights, ...]:
        matrix = Weights(self.outputs * self.inputs, self.format, not self.wide)
        return (matrix, Weights(self.outputs)) if self.bias else (matrix,)


def storage_fields(form: Format) -> dict[str, Any]:
    """Fields of a product whose weights are stored in another type."""
    if form.weights == form.products:
        return {}
    return {"weight_dtype": form.weights, "weight_group": form.group}


def narrow(run: ForwardPass, elements: Number, dtype: str) -> list[Kernel]:
    """Values of a training step written in 8 bits or fewer, twice: as they are for one
    product and transposed for the gradient of the weights."""
    if not run.train or element_bytes(dtype) >= run.element_bytes:
        return []
    # Blocks of 1 x 128 differ in both directions: the values are read for each.
    reads = 2 if dtype == "fp8_block" else 1
    twice = {"reads": reads, "writes": 2, "out_dtype": dtype}
    return [stream("quantize", elements, run.values, 1, **twice)]


def quantise(elements: Number, form: Format, values: str) -> list[Kernel]:
    """The kernel that scales activations block by block. Scales of whole tensors are
    known before, and the norm in front applies them."""
    if form.products not in _SCALED:
        return []
    return [stream("quantize", elements, values, 1, out_dtype=form.products)]
