"""MSCCL XML files as records: what a program says, and what it must compute."""

import dataclasses
import itertools
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .._demand.demand import Collective

NAMES: Final[Mapping[Collective, str]] = {
    "all_gather": "allgather",
    "all_to_all": "alltoall",
    "reduce_scatter": "reduce_scatter",
    "all_reduce": "allreduce",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
"""Collectives that MSCCL has, and what it calls them."""
_KINDS: Final = ("s", "r", "rcs", "rrc", "rrs", "rrcs", "cpy", "re", "nop")
_MOST_CHUNKS: Final = 5_000_000
"""Chunks in all buffers of one kind."""
Place = tuple[str, int]
"""Buffer (i, o or s) and chunk in it."""
Value = tuple[tuple[int, int], int]
"""(GPU or -1 for sums, input chunk), and the GPUs summed up as bits."""


@dataclasses.dataclass(frozen=True)
class Step:
    """A step: buffers and chunks in them, how many, and the (thread block, step) of its
    GPU that it waits for."""

    kind: str
    source: Place
    target: Place
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
    steps: list[Step]


@dataclasses.dataclass(frozen=True)
class Program:
    """A file: what it computes on how many GPUs, buffer sizes in chunks, all blocks."""

    collective: Collective
    ranks: int
    inputs: int
    outputs: int
    in_place: bool
    root: int
    blocks: list[Block]


def goals(program: Program) -> dict[tuple[int, int], Value]:
    """What must stand in (GPU, output chunk) at the end."""
    ranks, inputs, outputs = range(program.ranks), program.inputs, program.outputs
    kind, root, full = program.collective, program.root, (1 << program.ranks) - 1
    if kind == "all_gather":
        grid = itertools.product(ranks, ranks, range(inputs))
        return {(g, r * inputs + c): ((r, c), 1 << r) for g, r, c in grid}
    if kind == "all_to_all":
        part = inputs // program.ranks
        grid = itertools.product(ranks, ranks, range(part))
        return {(d, s * part + p): ((s, d * part + p), 1 << s) for s, d, p in grid}
    if kind == "broadcast":
        grid = itertools.product(ranks, range(outputs))
        return {(g, c): ((root, c), 1 << root) for g, c in grid}
    if kind == "reduce":
        return {(root, c): ((-1, c), full) for c in range(inputs)}
    own = outputs if kind == "reduce_scatter" else 0
    grid = itertools.product(ranks, range(outputs))
    return {(g, c): ((-1, g * own + c), full) for g, c in grid}


# --- writing


def program_xml(program: Program, name: str) -> str:
    """The whole file; steps that others wait for say so."""
    algo = ElementTree.Element(
        "algo",
        _texts(
            name=name,
            proto="Simple",
            nchannels=1,
            nchunksperloop=max(program.inputs, program.outputs),
            ngpus=program.ranks,
            coll=NAMES[program.collective],
            inplace=int(program.in_place),
            outofplace=int(not program.in_place),
            root=program.root,
            minBytes=0,
            maxBytes=0,
        ),
    )
    mine: list[list[Block]] = [[] for _ in range(program.ranks)]
    for block in program.blocks:
        mine[block.gpu].append(block)
    for gpu, blocks in enumerate(mine):
        steps = [step for block in blocks for step in block.steps]
        kept = [step.target for step in steps if step.kind != "s"]
        scratch = 1 + max((n for buffer, n in kept if buffer == "s"), default=-1)
        chunks = {"i": program.inputs, "o": program.outputs, "s": scratch}
        sizes = {f"{buffer}_chunks": count for buffer, count in chunks.items()}
        node = ElementTree.SubElement(algo, "gpu", _texts(id=gpu, **sizes))
        awaited = {step.waits for step in steps}
        for block in blocks:
            _write_block(node, block, awaited)
    ElementTree.indent(algo)
    return ElementTree.tostring(algo, encoding="unicode") + "\n"


def _write_block(
    node: ElementTree.Element, block: Block, awaited: set[tuple[int, int] | None]
) -> None:
    ends = {"send": block.send, "recv": block.recv, "chan": block.channel}
    tb = ElementTree.SubElement(node, "tb", _texts(id=block.number, **ends))
    for n, step in enumerate(block.steps):
        depid, deps = step.waits or (-1, -1)
        row = _texts(
            s=n,
            type=step.kind,
            srcbuf=step.source[0],
            srcoff=step.source[1],
            dstbuf=step.target[0],
            dstoff=step.target[1],
            cnt=step.count,
            depid=depid,
            deps=deps,
            hasdep=int((block.number, n) in awaited),
        )
        ElementTree.SubElement(tb, "step", row)


def _texts(**values: object) -> dict[str, str]:
    return {key: str(value) for key, value in values.items()}


# --- reading


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
    given = algo.get("coll", "").lower().replace("_", "")
    known: dict[str, Collective] = {
        name.replace("_", ""): kind for kind, name in NAMES.items()
    }
    if given not in known:
        raise ValueError(
            f"`coll` of `{path}` is {algo.get('coll')!r}; allowed are "
            f"{', '.join(NAMES.values())}."
        )
    gpus = sorted(algo.findall("gpu"), key=lambda gpu: _int(gpu, "id"))
    ranks = _int(algo, "ngpus", len(gpus))
    if not gpus or [_int(gpu, "id") for gpu in gpus] != list(range(ranks)):
        raise ValueError(
            f"`{path}` has {len(gpus)} <gpu> for ngpus {ranks}; each has its id from 0."
        )
    blocks = [
        Block(
            _int(gpu, "id"),
            _int(tb, "id"),
            _int(tb, "send", -1),
            _int(tb, "recv", -1),
            _int(tb, "chan", 0),
            [_step(step) for step in tb.findall("step")],
        )
        for gpu in gpus
        for tb in gpu.findall("tb")
    ]
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
    if known[given] == "all_to_all" and inputs % ranks:
        raise ValueError(
            f"`i_chunks` of `{path}` is {inputs}, which {ranks} GPUs do not divide."
        )
    in_place = bool(_int(algo, "inplace", 0)) and not _int(algo, "outofplace", 0)
    root = _int(algo, "root", 0)
    return Program(known[given], ranks, inputs, outputs, in_place, root, blocks)


def _int(element: ElementTree.Element, key: str, default: int | None = None) -> int:
    text = element.get(key, None if default is None else str(default))
    if text is None or not text.strip().lstrip("-").isdigit():
        raise ValueError(
            f"`{key}` of <{element.tag}> is {text!r}; MSCCL files have a whole number."
        )
    return int(text)


def _step(step: ElementTree.Element) -> Step:
    kind = step.get("type", "")
    if kind not in _KINDS:
        raise ValueError(
            f"`type` of a step is {kind!r}; MSCCL has {', '.join(_KINDS)}."
        )
    places: list[Place] = []
    for end in ("src", "dst"):
        buffer = step.get(f"{end}buf", "i")
        if buffer not in ("i", "o", "s"):
            raise ValueError(f"`{end}buf` of a step is {buffer!r}; MSCCL has i, o, s.")
        places.append((buffer, _int(step, f"{end}off", 0)))
    depid = _int(step, "depid", -1)
    waits = None if depid < 0 else (depid, _int(step, "deps"))
    return Step(kind, places[0], places[1], max(_int(step, "cnt", 1), 1), waits)
