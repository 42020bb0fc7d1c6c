"""MSCCL XML files as records."""

import dataclasses
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .._demand.demand import Collective
from .msccl import NAMES

_KINDS: Final = ("s", "r", "rcs", "rrc", "rrs", "rrcs", "cpy", "re", "nop")
_COLLECTIVES: Final[Mapping[str, Collective]] = {v: k for k, v in NAMES.items()}

_MOST_CHUNKS: Final = 5_000_000
"""Chunks in all buffers of one kind."""


@dataclasses.dataclass(frozen=True)
class Step:
    """A step: buffers and chunks in them, how many, and what it waits for."""

    kind: str
    source: tuple[str, int]
    target: tuple[str, int]
    count: int
    waits: tuple[int, int] | None


@dataclasses.dataclass(frozen=True)
class Block:
    """A thread block with its peers (-1: none) and channel."""

    gpu: int
    number: int
    send: int
    recv: int
    channel: int
    steps: tuple[Step, ...]


@dataclasses.dataclass(frozen=True)
class Program:
    """A file: what it computes on how many GPUs, buffer sizes in chunks, all blocks."""

    collective: Collective
    ranks: int
    inputs: int
    outputs: int
    in_place: bool
    root: int
    blocks: tuple[Block, ...]


def read_program(path: Path | str) -> Program:
    """The program in an MSCCL XML file; `ValueError` if it is none."""
    try:
        algo = ElementTree.fromstring(Path(path).read_bytes())
    except OSError as error:
        raise ValueError(f"`{path}` cannot be read: {error.strerror}.") from error
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise ValueError(
            f"`{path}` is not whole XML ({error}); give a file as it was written."
        ) from error
    if algo.tag != "algo":
        raise ValueError(f"`{path}` begins with <{algo.tag}>; MSCCL files with <algo>.")
    kind = algo.get("coll", "").lower().replace("_", "")
    known: dict[str, Collective] = {
        name.replace("_", ""): value for name, value in _COLLECTIVES.items()
    }
    if kind not in known:
        raise ValueError(
            f"`coll` of `{path}` is {algo.get('coll')!r}; allowed are "
            f"{', '.join(_COLLECTIVES)}."
        )
    gpus = sorted(algo.findall("gpu"), key=lambda gpu: _int(gpu, "id"))
    ranks = _int(algo, "ngpus", len(gpus))
    if not gpus or [_int(gpu, "id") for gpu in gpus] != list(range(ranks)):
        raise ValueError(
            f"`{path}` has {len(gpus)} <gpu> for ngpus {ranks}; each has its id from 0."
        )
    blocks = [_block(gpu, tb) for gpu in gpus for tb in gpu.findall("tb")]
    if len({(block.gpu, block.number) for block in blocks}) < len(blocks):
        raise ValueError(f"`{path}` has two <tb> of one id on a GPU; ids differ.")
    inputs, outputs = (
        max(_int(gpu, f"{end}_chunks") for gpu in gpus) for end in ("i", "o")
    )
    if max(inputs, outputs) * ranks > _MOST_CHUNKS:
        raise ValueError(
            f"`{path}` has {max(inputs, outputs)} chunks a GPU; allowed are "
            f"{_MOST_CHUNKS} in all."
        )
    if known[kind] == "all_to_all" and inputs % ranks:
        raise ValueError(
            f"`i_chunks` of `{path}` is {inputs}, which {ranks} GPUs do not divide."
        )
    return Program(
        known[kind],
        ranks,
        inputs,
        outputs,
        bool(_int(algo, "inplace", 0)) and not _int(algo, "outofplace", 0),
        _int(algo, "root", 0),
        tuple(blocks),
    )


def _int(element: ElementTree.Element, key: str, default: int | None = None) -> int:
    text = element.get(key, None if default is None else str(default))
    if text is None or not text.strip().lstrip("-").isdigit():
        raise ValueError(
            f"`{key}` of <{element.tag}> is {text!r}; MSCCL files have a whole number."
        )
    return int(text)


def _block(gpu: ElementTree.Element, tb: ElementTree.Element) -> Block:
    steps = [_step(step) for step in tb.findall("step")]
    return Block(
        _int(gpu, "id"),
        _int(tb, "id"),
        _int(tb, "send", -1),
        _int(tb, "recv", -1),
        _int(tb, "chan", 0),
        tuple(steps),
    )


def _step(step: ElementTree.Element) -> Step:
    kind = step.get("type", "")
    if kind not in _KINDS:
        raise ValueError(
            f"`type` of a step is {kind!r}; MSCCL has {', '.join(_KINDS)}."
        )
    places: list[tuple[str, int]] = []
    for end in ("src", "dst"):
        buffer = step.get(f"{end}buf", "i")
        if buffer not in ("i", "o", "s"):
            raise ValueError(f"`{end}buf` of a step is {buffer!r}; MSCCL has i, o, s.")
        places.append((buffer, _int(step, f"{end}off", 0)))
    depid = _int(step, "depid", -1)
    waits = None if depid < 0 else (depid, _int(step, "deps"))
    return Step(kind, places[0], places[1], max(_int(step, "cnt", 1), 1), waits)
