"""Rows whose sizes the operator does not state: collectives, and experts and attention
of a serving engine, whose sizes are in the model's config."""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any, Final

from ...workload import Kernel, LanguageModel
from ...workload.models import load_model
from .._launches import Launch, Operator
from .operators import Row, base_name
from .types import carrier, element_bytes, numel

_KINDS: Final = (
    ("all_reduce", r"all_?reduce"),
    ("reduce_scatter", r"reduce_?scatter"),
    ("all_gather", r"all_?gather"),
    ("all_to_all", r"all_?(?:to|2)_?all"),
    ("broadcast", r"broadcast"),
    ("send_recv", r"send|recv"),
    ("reduce", r"reduce"),
)


def collective_kind(words: str) -> str | None:
    """Kind of a collective by its names, None where they do not say.

    >>> collective_kind("ncclDevKernel_AllGather_RING_LL")
    'all_gather'
    """
    kinds = (k for k, pattern in _KINDS if re.search(pattern, words, re.IGNORECASE))
    return next(kinds, None)


def is_collective(operator: Operator) -> bool:
    """Whether the name of an operator is that of a collective."""
    return any(re.search(x, operator.name, re.IGNORECASE) for _, x in _KINDS[:5])


def collective_row(launch: Launch, world: int) -> Row | None:
    """Row of a collective: from what the kernel says (`Collective name`, elements,
    type, group), else from its operator's input and the `world` of the job."""
    stated, operator = launch.collective or {}, launch.operator
    called = operator.name if operator else ""
    kind = collective_kind(f"{stated.get('name', '')} {called} {launch.name}")
    ranks = int(stated.get("ranks") or world or 0)
    if kind is None or ranks < 2:
        return None
    sent, got = stated.get("in"), stated.get("out")
    dtype = str(stated.get("dtype") or "")
    if not (sent or got):
        sizes = operator.sizes(0) if operator else None
        if sizes is None or operator is None:
            return None
        sent = numel(sizes) * (ranks if kind == "all_gather" else 1)
        dtype = operator.type(0)
    elements = max(sent or 0, got or 0)
    size = element_bytes(dtype) or element_bytes(dtype.lower()) or 2.0
    if not elements:
        return None
    return {
        "op": "collective",
        "collective": kind,
        "bytes": max(int(elements * size), 1),
        "num_gpus": ranks,
        "dtype": carrier(dtype or "bf16"),
        **({"family": "custom"} if "multimem" in launch.name else {}),
    }


_LENGTH: Final = 8192
"""Tokens of the prompt by whose kernels a model tells its sizes: more than windows."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of the experts and of the attention of a model, on one GPU; `window`: of
    the layers with a sliding one."""

    experts: Kernel | None
    heads: int
    window: int


@functools.cache
def sizes_of(model: str) -> Sizes:
    """Sizes of a bundled model or of a config file. Raises `ValueError` for what is no
    language model."""
    language_model = load_model(model)
    if not isinstance(language_model, LanguageModel):
        raise ValueError(
            f"`model` is '{model}', which is no language model; it serves the sizes of "
            "experts and attention of a serving engine's trace."
        )
    listings = language_model.listings(
        phase="prefill", batch=1, input_len=min(_LENGTH, language_model.max_positions)
    )
    rows = [kernel for listing in listings for kernel in listing.kernels]
    experts = next((x for x in rows if x["op"] == "moe"), None)
    attention = [x for x in rows if x["op"] == "context_attention"]
    window = max((int(x["window_size"]) for x in attention), default=0)
    heads = max((int(x["num_heads"]) for x in attention), default=0)
    return Sizes(experts, heads, window)


_EXPERTS: Final = re.compile(r"moe_forward|fused_moe|fused_experts|grouped_gemm|moe")
_PACKED: Final = re.compile(r"unified_attention|flash_attn_varlen|varlen_fwd|attention")


def experts_row(
    operator: Operator, kernel: str, model: str | None, heads: int
) -> Row | None:
    """Row of the experts of a serving engine: tokens from the operator, all else from
    the model; `heads`: query heads of a GPU in the trace, which say how many share
    each expert."""
    if model is None or not _EXPERTS.search(base_name(operator.name)):
        return None
    sizes, tokens = sizes_of(model), operator.sizes(0)
    if sizes.experts is None or tokens is None:
        return None
    shared = max(sizes.heads // heads, 1) if heads else 1
    if sizes.experts["inter_size"] % shared:
        shared = 1
    row = {k: v for k, v in sizes.experts.items() if k != "count"}
    row |= {"num_tokens": tokens[0], "moe_tp_size": shared}
    return {**row, **expert_types(kernel)}


def expert_types(kernel: str) -> Mapping[str, Any]:
    """Types in the name of a grouped product: activations x weights."""
    if "MxE4m3" in kernel and "MxE2m1" in kernel:
        return {"dtype": "mxfp8", "weight_dtype": "mxfp4"}
    if "E2m1" in kernel:
        return {"dtype": "nvfp4", "weight_dtype": "nvfp4"}
    return {}


def packed_attention_row(
    operator: Operator, kernel: str, model: str | None
) -> Row | None:
    """Row of attention over packed sequences, [tokens, heads, head_dim]: their lengths
    are not in a trace, so that with a `model` all tokens are one sequence."""
    q, k = operator.sizes(0), operator.sizes(1)
    packed = _PACKED.search(base_name(operator.name))
    if model is None or not packed or q is None or k is None:
        return None
    if len(q) != 3 or len(k) != 3 or q[1] % k[1]:
        return None
    sliding = "liding" in kernel
    return {
        "op": "context_attention",
        "batch": 1,
        "q_len": q[0],
        "kv_len": q[0],
        "num_heads": q[1],
        "num_kv_heads": k[1],
        "head_dim": q[2],
        "window_size": sizes_of(model).window if sliding else 0,
        "causal": True,
        "dtype": carrier(operator.type(0) or "bf16"),
    }


def query_heads(operator: Operator) -> int:
    """Query heads of a GPU by an attention operator over packed sequences, else 0."""
    sizes = operator.sizes(0)
    packed = "unified_attention" in operator.name and sizes and len(sizes) == 3
    return sizes[1] if packed and sizes else 0
