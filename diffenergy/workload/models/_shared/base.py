"""`Model`: a configured network that lists its kernels for a phase of its work."""

import abc
import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from .... import dtypes
from ..._kernel import Kernel, Number, finished
from ..._listing import Dispatch, Listing
from .._inputs import check_inputs
from . import speculation
from .config import Config
from .formats import Format

if TYPE_CHECKING:
    from ..._workload import Workload

Phase = Literal["prefill", "decode", "generate", "forward", "train"]
Attend = Literal["flash", "eager"]
Stack = Literal["serving", "eager"]

_CHOICES: Final = {
    "phase": ("prefill", "decode", "generate", "forward", "train"),
    "dtype": (
        "fp32", "tf32", "bf16", "fp16", "fp8", "fp8_block", "mxfp8", "int8", "int4",
        "nvfp4", "mxfp4",
    ),
    "kv_dtype": ("fp32", "bf16", "fp16", "fp8"),
    "attention": ("flash", "eager"),
    "stack": ("serving", "eager"),
    "dispatch": ("eager", "graph"),
}  # fmt: skip
_FORMATS: Final = {
    "fp8": Format("fp8", "fp8"),
    "fp8_block": Format("fp8_block", "fp8_block"),
    "mxfp8": Format("mxfp8", "mxfp8"),
    "int8": Format("int8", "int8"),
    "int4": Format("int4", "bf16", 128, zero_point=True),
    "nvfp4": Format("nvfp4", "nvfp4"),
    "mxfp4": Format("mxfp4", "mxfp8"),
}
"""How the weights of linear layers are kept and multiplied in types below 16 bit."""
_ROUTING: Final = re.compile("random|balanced|power_law_[0-9]+([.][0-9]+)?")
ALL_STACKS: Final = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp8_block")
"""Types that eager and training passes have, too."""
SCALED: Final = ("mxfp8", "nvfp4")
"""Types of fused training passes beside them (Transformer Engine)."""

RECOMPUTE: Final = ("none", "selective", "selective-op", "full")
"""What of a layer runs again before its gradients: nothing; attention that is not fused
(arXiv 2205.05198); half of the products and all else but fused attention (torchtitan's
policy by operator); everything."""

_COUNTED: Final = ("accumulation", "lora", "frozen_layers")
_TRAINING: Final = (*_COUNTED, "checkpointing", "recompute")
"""Choices of training alone; the former are whole numbers from 1, as batch and lengths.
"""
_WITHOUT: Final = {
    "kv_dtype": "has no KV cache; leave it out",
    "output_len": "generates nothing; leave it out or take `--phase generate`",
    "base": "needs the head; leave it out",
}
"""Choices that training has not, why, and what to do."""


@dataclasses.dataclass(frozen=True)
class Request:
    """One way of running a model, every choice made (`Model.request`).

    `input_len`, `output_len`: tokens per sequence; None where a model has none.
    `dispatch` None: graphs for serving decode, eager launches otherwise. `base`: the
    network without its language or classification head. `accumulation`: micro-batches
    of an optimizer step, `checkpointing`: whether layers run again before their
    gradients, `recompute`: what of them does, where that is less (`RECOMPUTE`); `lora`:
    rank of the adapters that alone are trained, `frozen_layers`: first layers that are
    not trained; None in other phases than train. `images` of a sequence, each of
    `image_tokens` beside the `input_len` tokens of text; denoising `steps`, `guidance`:
    whether each runs with and without the prompt; None where a model has none.
    """

    batch: int
    input_len: int | None
    output_len: int | None
    phase: Phase
    dtype: str
    kv_dtype: str
    attention: Attend
    stack: Stack
    dispatch: Dispatch | None
    base: bool
    accumulation: int | None = None
    checkpointing: bool | None = None
    routing: str | None = None
    speculative: str | None = None
    accept: float | None = None
    draft_tokens: int | None = None
    images: int | None = None
    image_tokens: int | None = None
    steps: int | None = None
    guidance: bool | None = None
    recompute: str | None = None
    lora: int | None = None
    frozen_layers: int | None = None

    @property
    def recomputed(self) -> str:
        """What of a layer runs again before its gradients."""
        return "full" if self.checkpointing else self.recompute or "none"


@dataclasses.dataclass(frozen=True)
class Precision:
    """Types of the operands: `linear` products, everything else (`values`), KV cache.

    Types below 16 bit apply to linear layers; attention, norms and activations then run
    in bf16. tf32 is a way to multiply fp32 values. `given`: the format that a request
    wants of all linear layers, None from 16 bit on; `stored` instead keeps each weight
    as its checkpoint has it.
    """

    linear: str
    values: str
    cache: str
    given: Format | None = None
    stored: bool = False

    def format(self, own: Format | None, layer: bool = True) -> Format | None:
        """Format of weights that a checkpoint keeps in their `own`, None: as everything
        else. Only a linear `layer` is in what is `given`."""
        if self.stored:
            return own
        return self.given if layer else None

    @property
    def products(self) -> str:
        """Type of products without weights (eager attention)."""
        return "tf32" if self.linear == "tf32" else self.values


def values_dtype(dtype: str) -> str:
    """Type of activations when linear layers run in `dtype`."""
    return "bf16" if dtype in _FORMATS else {"tf32": "fp32"}.get(dtype, dtype)


def precision_of(dtype: str, cache: str) -> Precision:
    """Types of a request that wants all linear layers in `dtype`."""
    return Precision(dtype, values_dtype(dtype), cache, _FORMATS.get(dtype))


@dataclasses.dataclass(frozen=True)
class Model(abc.ABC):
    """A network of known shape; subclasses are model families."""

    config: Config

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.config.name

    @property
    @abc.abstractmethod
    def max_positions(self) -> int | None:
        """Longest sequence in tokens; None for images."""

    @abc.abstractmethod
    def parameters(self) -> int:
        """Number of parameters (shared ones once), as published."""

    def weight_bytes(self, dtype: str) -> float:
        """Bytes of the weights, all of them in `dtype`."""
        return self.parameters() * dtypes.BYTES[dtypes.code(dtype)]

    def kv_bytes_per_token(self, dtype: str, windowed: bool = False) -> float:
        """Bytes that a token adds to the KV cache kept in `dtype` of layers that keep
        all tokens, or of those that keep a window (`windowed`); 0 without a cache."""
        return 0.0

    def state_bytes(self) -> float:
        """Bytes that a request keeps whatever its length; 0 if there are none."""
        return 0.0

    @abc.abstractmethod
    def memory(self, request: Request) -> dict[str, float]:
        """Bytes in a GPU's memory at their most while `request` runs, by `PARTS` of
        `memory`."""

    @abc.abstractmethod
    def defaults(self) -> dict[str, Any]:
        """Value taken for each choice of a `Request` that is not given."""

    def inputs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Those of `_inputs.NAMES` that the model knows, with what is taken where they
        are not `given`."""
        return {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what the kernels leave out."""
        return ()

    @abc.abstractmethod
    def module_calls(self, base: bool) -> int:
        """`nn.Module` calls of one eager forward pass, containers counted."""

    @abc.abstractmethod
    def _listings(self, request: Request) -> list[Listing]:
        """Listings of a checked request."""

    def request(self, **given: Any) -> Request:
        """The request with every choice made.

        Raises `ValueError` for a choice that is unknown or that the model lacks.
        """
        given = {key: value for key, value in given.items() if value is not None}
        defaults = self.defaults()
        if given.get("stack") == "eager":
            defaults["attention"] = "eager"
        if "phase" in given and given["phase"] != "generate":
            defaults["output_len"] = None
        if given.get("phase") == "train":
            defaults |= {"base": False, "accumulation": 1, "checkpointing": False}
        more = self.inputs(given)
        check_inputs(self.name, given, more)
        values = {**defaults, **more, **given}
        values.setdefault("kv_dtype", None)
        if values["kv_dtype"] is None:
            values["kv_dtype"] = values_dtype(str(values["dtype"]))
        _check_training(given)
        _check_choices(values)
        _check_routing(values.get("routing"), defaults.get("routing"), self.name)
        values = speculation.checked(values)
        self._check(values)
        _check_stack(values)
        return Request(**values)

    def listings(self, **given: Any) -> list[Listing]:
        """Kernels of the phase; None takes the model's default (`defaults`).

        Arguments:

        - `batch`: sequences or images; in training those of one micro-batch.
        - `input_len`, `output_len`: tokens per sequence.
        - `phase`: "prefill" (logits of the last token), "decode" (one step at KV length
            `input_len`), "generate" (two listings, prefill and the `output_len` - 1
            decode steps), "forward" or "train" (three listings: forward, backward,
            optimizer).
        - `dtype`: of the linear layers and their weights.
        - `kv_dtype`: of the KV cache.
        - `attention`: "flash" (one kernel) or "eager" (products and softmax).
        - `stack`: "serving" (fused kernels; in training those of llm.c) or "eager"
            (what Hugging Face and torchvision modules launch).
        - `dispatch`: "graph" (no host time) or "eager".
        - `routing`: how tokens spread over experts: "random" (each on its own),
            "balanced" or "power_law_X" with an exponent X.
        - `speculative`: "mtp", "eagle" or "draft=MODEL": a decode step drafts
            `draft_tokens` tokens and verifies them at once, each right with the
            probability `accept` where those before it were.
        - `base`: leave out the head; by default as the config's `architectures` say.
        - `accumulation`: micro-batches whose gradients one optimizer step adds up.
        - `checkpointing`: run every layer again before its backward pass; `recompute`:
            what of it runs again ("none", "selective", "selective-op" or "full").
        - `lora`: train adapters of this rank on the linear layers, all else is frozen.
        - `frozen_layers`: the first layers, and what is before them, are not trained.
        - `images`, `image_tokens`: images of each sequence and the tokens of each,
            which come to the `input_len` tokens of text; the vision tower runs in
            prefill. Of diffusion transformers `image_tokens` are those that they make.
        - `steps`, `guidance`: denoising steps, each with and without the prompt.

        Example:

        >>> from diffenergy.workload.models import load_model
        >>> prefill, decode = load_model("gpt2").listings(input_len=128, output_len=9)
        >>> decode.passes
        8
        """
        return self._listings(self.request(**given))

    def listings_of(self, request: Request) -> list[Listing]:
        """The same of a request whose choices are made."""
        return self._listings(request)

    def workload(self, **given: Any) -> "Workload":
        """`Workload` of the same choices as `listings`.

        Example:

        >>> load_model("gpt2").workload(batch=4, phase="prefill").names
        ('prefill',)
        """
        from ..._workload import assemble  # loads JAX

        return assemble(self.listings(**given))

    def precision(self, request: Request) -> Precision:
        """Operand types of a request."""
        return precision_of(request.dtype, request.kv_dtype)

    def listing(
        self,
        request: Request,
        rows: Sequence[Kernel],
        mode: str,
        passes: Number = 1,
        suffix: str = "",
        merged: bool = True,
    ) -> Listing:
        """Listing of the rows of `passes` passes; equal rows are `merged` into one."""
        eager = request.stack == "eager"
        graph = request.stack == "serving" and mode == "decode"
        return Listing(
            name=self.name + suffix,
            model=self.name,
            precision=request.dtype,
            batch=request.batch,
            seq_len=request.input_len,
            mode=mode,
            kernels=finished(rows, self.name, merged),
            module_calls=passes * self.module_calls(request.base) if eager else 0,
            passes=passes,
            dispatch=request.dispatch or ("graph" if graph else "eager"),
        )

    def _has_head(self) -> bool:
        names = self.config.stated("architectures")
        return isinstance(names, list) and any(
            "For" in str(name) or "LMHead" in str(name) for name in names
        )

    @abc.abstractmethod
    def _check(self, values: dict[str, Any]):
        """Family-specific limits of a request; raises `ValueError`."""


def _check_stack(values: dict[str, Any]):
    train, fused = values["phase"] == "train", values["stack"] == "serving"
    if fused and not train:
        return
    known = (*ALL_STACKS, *SCALED) if fused else ALL_STACKS
    if values["dtype"] not in known:
        what = "a training step" if train else "the stack eager"
        raise ValueError(
            f"`dtype` is {values['dtype']!r}, but {what} has only {', '.join(known)}."
        )


def _check_choices(values: dict[str, Any]):
    for key, allowed in _CHOICES.items():
        value = values[key]
        if value not in allowed and not (key == "dispatch" and value is None):
            raise ValueError(f"`{key}` is {value!r}; allowed are {', '.join(allowed)}.")
    for key in ("batch", "input_len", "output_len", *_COUNTED):
        value = values.get(key)
        if value is None and key != "batch":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(
                f"`{key}` is {value!r}; allowed is a whole number of at least 1."
            )


def _check_routing(routing: Any, default: str | None, name: str):
    """How tokens spread over experts, for models that have any."""
    if routing is None:
        return
    if default is None:
        raise ValueError(
            f"`routing` is {routing!r}, but {name} has no experts; leave it out."
        )
    if not _ROUTING.fullmatch(str(routing)):
        raise ValueError(
            f"`routing` is {routing!r}; allowed are random, balanced and power_law_X "
            "with a number X."
        )


def _check_training(given: dict[str, Any]):
    """What a training step has not, and what it alone has."""
    train = given.get("phase") == "train"
    for name, reason in _WITHOUT.items():
        if train and given.get(name):
            raise ValueError(
                f"`{name}` is {given[name]}, but a training step {reason}."
            )
    for name in _TRAINING:
        if name in given and not train:
            raise ValueError(
                f"`{name}` is given, but only a training step has it; leave it out "
                "or take `--phase train`."
            )
    again = given.get("recompute", "none")
    if again not in RECOMPUTE:
        raise ValueError(
            f"`recompute` is {again!r}; allowed are {', '.join(RECOMPUTE)}."
        )
    if given.get("checkpointing") and again not in ("none", "full"):
        raise ValueError(
            f"`checkpointing` is given beside `recompute` '{again}'; give one."
        )


def layer_parameters(hidden: int, inner: int) -> int:
    """Parameters of a transformer layer with biases: attention, MLP, two LayerNorms."""
    return 4 * hidden**2 + 2 * hidden * inner + inner + 9 * hidden


# Row builders ---------------------------------------------------------------------


def linear(
    precision: Precision, outputs: Number, tokens: Number, inputs: Number, **extra: Any
) -> Kernel:
    """`nn.Linear` as traces write it: m = output features, n = tokens."""
    return _gemm(precision.linear, outputs, tokens, inputs) | {
        "layout": "tn",
        "weights": "a",
        **extra,
    }


def dense(
    dtype: str, tokens: Number, outputs: Number, inputs: Number, **extra: Any
) -> Kernel:
    """Linear layer with m = tokens, n = output features and weights as operand b."""
    return _gemm(dtype, tokens, outputs, inputs) | {"weights": "b", **extra}


def product(
    dtype: str, batch: Number, m: Number, n: Number, k: Number, **extra: Any
) -> Kernel:
    """Batched product of two activations."""
    return _gemm(dtype, m, n, k) | {"batch": batch, "weights": "none", **extra}


def rows_of(op: str, rows: Number, cols: Number, dtype: str, **extra: Any) -> Kernel:
    """Reduction or gather over `rows` rows of `cols` elements."""
    return dict(op=op, rows=rows, cols=cols, dtype=dtype, count=1) | extra


def repeated(rows: Sequence[Kernel], times: Number) -> list[Kernel]:
    """The rows with their counts multiplied."""
    return [{**row, "count": row["count"] * times} for row in rows]


def _gemm(dtype: str, m: Number, n: Number, k: Number) -> Kernel:
    return dict(op="gemm", batch=1, m=m, n=n, k=k, dtype=dtype, count=1)
