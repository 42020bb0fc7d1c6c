"""`Model`: a configured network that lists its kernels for a phase of its work."""

import abc
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ... import dtypes, units
from .._kernel import Kernel, Number, normalise_rows
from .._listing import Listing
from .._model_request import ModelRequest
from . import _speculation as speculation
from ._checkpoint.config import Config
from ._checkpoint.formats import Precision, precision_of, values_dtype
from ._operators.passes import TRAINED_ROUTING
from ._request import (
    Request,
    check_inputs,
    check_routing,
    check_stack,
    check_training,
    check_types,
    trained_dtype,
)

if TYPE_CHECKING:
    from .._workload import Workload

_FURTHER: Final = ("base", "recompute", "storage")
"""Choices of a `Request` that callers make and users do not."""
_REMEMBERED: Final = 16
"""Requests whose listings a model remembers."""
_STORED: Final = ("fp32", "bf16", "fp8")
"""Types whose bytes stand in a summary."""


@dataclasses.dataclass(frozen=True)
class Model(abc.ABC):
    """A network of known shape; subclasses are model families."""

    config: Config

    def __init_subclass__(cls):
        cls.__repr__ = Model.__repr__  # not that of a dataclass, thousands of lines

    def __repr__(self) -> str:
        lines = [
            f"<{type(self).__name__} '{self.name}'",
            f"{units.si(self.parameters(), '')} parameters, "
            f"{units.si(self.weight_bytes('bf16'), 'B')} in bf16",
        ]
        if self.max_positions:
            lines.append(f"up to {self.max_positions:,} tokens")
        for size, what in (
            (self.kv_bytes_per_token("bf16"), "of cache a token in bf16"),
            (self.state_bytes(), "of state a request"),
        ):
            if size:
                lines.append(f"{units.si(size, 'B')} {what}")
        return "\n  ".join(lines) + ">"

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
        """Bytes of state of a request that do not grow with its length."""
        return 0.0

    @abc.abstractmethod
    def memory(self, request: Request) -> dict[str, float]:
        """Peak bytes in the memory of a GPU while `request` runs, by `MEMORY_PARTS`."""

    @abc.abstractmethod
    def defaults(self) -> dict[str, Any]:
        """Default of each choice of a `Request`."""

    def inputs(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        """Values of those of `MODEL_INPUTS` that the model has, where `choices` lack
        them."""
        return {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what the kernels leave out."""
        return ()

    @abc.abstractmethod
    def module_calls(self, base: bool) -> int:
        """`nn.Module` calls of one eager forward pass, containers counted."""

    @abc.abstractmethod
    def listings_of(self, request: Request) -> list[Listing]:
        """Kernel listings of a request, one a phase."""

    def entry(self) -> dict[str, Any]:
        """Row of the model in the list of models."""
        return {
            "name": self.name,
            "family": self.config.values["model_type"],
            "parameters": self.parameters(),
            "layers": self._num_layers(),
            "max_positions": self.max_positions,
            "phase": self.defaults()["phase"],
        }

    def summary(self) -> dict[str, Any]:
        """JSON of the model: sizes, bytes of the weights by dtype, bytes that a token
        adds to the KV cache (without and within windows), state of a request, and what
        was read of the types of the checkpoint.

        `dtype` is the type of most weights, None where it cannot be read."""
        default = self.defaults()["dtype"]
        checkpoint = getattr(self, "checkpoint", None)  # of language models
        unread = checkpoint.unread if checkpoint else ""
        stored = dict.fromkeys((*_STORED, default))
        cache = {dtype: self.kv_bytes_per_token(dtype) for dtype in _STORED}
        windowed = {dtype: self.kv_bytes_per_token(dtype, True) for dtype in _STORED}
        cached = any((*cache.values(), *windowed.values()))
        return {
            **self.entry(),
            "dtype": None if unread else default,
            "weight_bytes": {dtype: self.weight_bytes(dtype) for dtype in stored},
            "kv_bytes_per_token": cache if cached else None,
            "kv_bytes_per_token_windowed": windowed if cached else None,
            "state_bytes_per_request": self.state_bytes() if cached else None,
            "checkpoint": [unread]
            if unread
            else list(getattr(checkpoint, "statements", ())),
            "sizes": self._sizes(),
            "defaults": {k: v for k, v in self.defaults().items() if k != "base"},
        }

    def _sizes(self) -> dict[str, Any]:
        """Sizes of the layers, as in a summary."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if isinstance(getattr(self, field.name), int | float | str | tuple)
            and field.name != "blocks"
        }

    def _num_layers(self) -> int | None:
        """Layers of a transformer, blocks of a convolutional network."""
        if hasattr(self, "layers"):
            return getattr(self, "layers")  # noqa: B009
        depths = getattr(self, "depths", None)
        return sum(depths) if depths else None

    def request(self, **choices: Any) -> Request:
        """Request with every choice made.

        Raises `ValueError` for a choice that is unknown or that the model lacks.
        """
        further = {x: choices.pop(x) for x in _FURTHER if x in choices}
        choices = vars(ModelRequest(**choices)) | further
        choices |= {x: choices[x] or None for x in ("checkpointing", "guidance")}
        choices = {key: value for key, value in choices.items() if value is not None}
        defaults = self.defaults()
        if choices.get("stack") == "eager":
            defaults["attention"] = "eager"
        if "phase" in choices and choices["phase"] != "generate":
            defaults["output_len"] = None
        if choices.get("phase") == "train":
            defaults |= {"base": False, "accumulation": 1, "checkpointing": False}
            stack = str(choices.get("stack", defaults["stack"]))
            defaults["dtype"] = trained_dtype(defaults["dtype"], stack)
            defaults |= {"lora_layers": "all"} if choices.get("lora") else {}
            defaults |= {"routing": TRAINED_ROUTING} if defaults.get("routing") else {}
        more = self.inputs(choices)
        check_inputs(self.name, choices, more)
        values = {**defaults, **more, **choices}
        values.setdefault("kv_dtype", None)
        if values["kv_dtype"] is None:
            values["kv_dtype"] = values_dtype(str(values["dtype"]))
        check_training(choices)
        check_types(values)
        check_routing(values.get("routing"), defaults.get("routing"), self.name)
        values = speculation.resolve(values)
        self._check(values)
        check_stack(values)
        return Request(**values)

    def listings(self, **choices: Any) -> list[Listing]:
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
        - `routing`: how tokens spread over experts: "lognormal_X" (by popularity, X
            the standard deviation of its logarithm), "random" (all alike), "balanced"
            or "power_law_X" with an exponent X.
        - `speculative`: "mtp", "eagle" or "draft=MODEL": a decode step drafts
            `draft_tokens` tokens and verifies them at once, each right with the
            probability `accept` where those before it were.
        - `base`: leave out the head; by default as the config's `architectures` say.
        - `accumulation`: micro-batches whose gradients one optimizer step adds up.
        - `checkpointing`: run every layer again before its backward pass; `recompute`:
            what of it runs again ("none", "selective", "selective-op" or "full").
        - `lora`: train adapters of this rank on the linear layers, all else is frozen;
            `lora_layers`: on "all" of them, or on those of the "attention" alone.
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
        request = self.request(**choices)
        if (request.speculative or "").startswith("draft"):  # its file may change
            return self.listings_of(request)
        listings = self._listings.get(request)
        if listings is None:
            if len(self._listings) >= _REMEMBERED:
                self._listings.clear()
            listings = self._listings[request] = self.listings_of(request)
        return [
            dataclasses.replace(x, kernels=tuple({**row} for row in x.kernels))
            for x in listings
        ]

    @functools.cached_property
    def _listings(self) -> dict[Request, list[Listing]]:
        """Listings of the last requests."""
        return {}

    def sequence(self, **choices: Any) -> tuple[Kernel, ...]:
        """Kernels of one pass in the order of their launches: blocks of layers one
        after the other, whose rows' `count` is how often the block repeats.

        `choices` as of `listings`; phases "prefill", "decode" or "forward".
        """
        request = self.request(**choices)
        return normalise_rows(self._one_pass(request), self.name, False)

    def _one_pass(self, request: Request) -> list[Kernel]:
        """Kernels of one pass, not merged."""
        raise ValueError(f"{self.name} has no single pass whose order is known.")

    def workload(self, **choices: Any) -> "Workload":
        """`Workload` of the same choices as `listings`.

        Example:

        >>> from diffenergy.workload.models import load_model
        >>> load_model("gpt2").workload(batch=4, phase="prefill").names
        ('prefill',)
        """
        from .._workload import assemble  # loads JAX

        return assemble(self.listings(**choices))

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
        """Listing of the rows of `passes` passes, equal rows `merged`."""
        eager = request.stack == "eager"
        graph = request.stack == "serving" and mode == "decode"
        return Listing(
            name=self.name + suffix,
            model=self.name,
            precision=request.dtype,
            batch=request.batch,
            seq_len=request.input_len,
            mode=mode,
            kernels=normalise_rows(rows, self.name, merged),
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
        """Raises `ValueError` for a request beyond the limits of the family."""
