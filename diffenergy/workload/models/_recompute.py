"""Which operators of a layer run forward again in the backward pass, module by module,
and the bytes that the layer then keeps no more (Megatron-LM's `recompute_modules`)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from .._activations import modules_of
from ._operators.attention import Attention
from ._operators.experts import Experts
from ._operators.latent import Expanded
from ._operators.linear import Gated, Linear
from ._operators.operator import Norm, Residual, Trainable
from ._operators.passes import ForwardPass
from ._operators.sharding import Rows


def rerun(
    operators: Sequence[Trainable], run: ForwardPass
) -> tuple[list[Trainable], float]:
    """Operators of a layer that run forward again, in their order, and the bytes of a
    micro-batch that it keeps no more."""
    again, dropped = dict[int, Trainable](), dict[tuple[int, str], float]()
    for word in set(modules_of(run.recompute)) & set(_MODULES):
        for first, part in _parts(operators):
            rows, bytes_of = _MODULES[word](part, run)
            again |= {first + i: x for i, x in rows.items()}
            # two words may drop the same tensor
            dropped |= {(first + i, name): x for (i, name), x in bytes_of.items()}
    return [again[i] for i in sorted(again)], sum(dropped.values())


def _parts(
    operators: Sequence[Trainable],
) -> Iterator[tuple[int, Sequence[Trainable]]]:
    """(place of its norm, operators) of the parts of a layer, which end with a skip."""
    first = 0
    for i, x in enumerate(operators):
        if type(x) is Residual:
            yield first, operators[first:i]
            first = i + 1


_Module = tuple[dict[int, Trainable], dict[tuple[int, str], float]]
"""What runs again by its place; bytes by place and tensor."""


def _at(part: Sequence[Trainable], places: Iterable[int]) -> dict[int, Trainable]:
    return {i: part[i] for i in places}


def _norm(part: Sequence[Trainable], run: ForwardPass) -> _Module:
    """The norm that begins a part: its output is the input of several operators."""
    norm = part[0]
    width = norm.cols if isinstance(norm, Norm) else 0
    readers = [
        i
        for i, x in enumerate(part)
        if isinstance(x, Experts)
        # what mixes behind it may be as wide (heads, features of an MLP)
        or (isinstance(x, Linear) and x.inputs == width and type(x.split) is not Rows)
    ]
    readers = [i for i in readers if not any(_norms(part[1:i]))]
    return _at(part, [0]), {(i, "input"): part[i].input_bytes(run) for i in readers}


def _norms(part: Sequence[Trainable]) -> list[bool]:
    return [isinstance(x, Norm) for x in part]


def _act(part: Sequence[Trainable], run: ForwardPass) -> _Module:
    """The gated product, input of the linear layer behind it, and that of experts, if
    these do not run again as a whole."""
    places = [i for i, x in enumerate(part) if isinstance(x, Gated)]
    again = _at(part, places)
    dropped = {(i + 1, "input"): part[i + 1].input_bytes(run) for i in places}
    for i, x in enumerate(part):
        if (
            isinstance(x, Experts)
            and x.gated
            and "experts" not in modules_of(run.recompute)
        ):
            again[i] = x.gated_product(run)
            dropped[i, "product"] = x.product_bytes(run)
    return again, dropped


def _mlp(part: Sequence[Trainable], run: ForwardPass) -> _Module:
    """All of a gated MLP but its last product."""
    places = [i for i, x in enumerate(part) if isinstance(x, Gated)]
    if not places:
        return {}, {}
    norm, dropped = _norm(part, run)
    dropped |= {(i + 1, "input"): part[i + 1].input_bytes(run) for i in places}
    dropped |= {(i, "saved"): part[i].saved_bytes(run) for i in places}
    return norm | _at(part, [i + j for i in places for j in (-1, 0)]), dropped


def _up(part: Sequence[Trainable], run: ForwardPass) -> _Module:
    """Queries, keys and values made from their latents."""
    at = next((i for i, x in enumerate(part) if isinstance(x, Expanded)), None)
    if at is None:
        return {}, {}
    attention = part[at + 1]
    assert isinstance(attention, Attention)
    return _at(part, [at - 2, at - 1, at]), {
        (at + 1, "operands"): attention.operand_bytes(run)
    }


def _experts(part: Sequence[Trainable], run: ForwardPass) -> _Module:
    """The routed experts; their input is kept."""
    places = [i for i, x in enumerate(part) if isinstance(x, Experts)]
    return _at(part, places), {
        (i, "saved"): part[i].saved_bytes(run) - part[i].input_bytes(run)
        for i in places
    }


_MODULES: Final = {  # `core`, the scores of attention, is that operator's own
    "norm": _norm,
    "act": _act,
    "up": _up,
    "mlp": _mlp,
    "experts": _experts,
}
