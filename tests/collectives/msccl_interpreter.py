"""What an MSCCL program does, with numbers in the buffers and small FIFOs.

Written from the semantics alone: thread blocks run their steps in order; a send blocks
while the FIFO of its connection is full, a receive while it is empty; a step waits for
the step that it names. Blocks are run in a random order, so that what is not ordered
by the program is not ordered here either.
"""

import random
import xml.etree.ElementTree as ElementTree
from collections import deque

import numpy as np

KINDS = {"s", "r", "rrc", "cpy", "nop"}


class Deadlock(Exception):
    """No thread block can take its next step."""


def run(
    text: str, inputs: np.ndarray, seed: int = 0, slots: int = 1
) -> list[np.ndarray]:
    """Output buffers of all GPUs; `inputs`: (GPU, chunk). What was never written is
    NaN, and so is what was made of it."""
    algo = ElementTree.fromstring(text)
    gpus = sorted(algo, key=lambda gpu: int(gpu.attrib["id"]))
    assert len(gpus) == int(algo.attrib["ngpus"]) == len(inputs)
    buffers, blocks = [], {}
    for rank, gpu in enumerate(gpus):
        size = {b: int(gpu.attrib[f"{b}_chunks"]) for b in "ios"}
        assert size["i"] == inputs.shape[1]
        buffers.append({b: np.full(n, np.nan) for b, n in size.items()})
        buffers[rank]["i"][:] = inputs[rank]
        ends = set()
        for tb in gpu:
            a = tb.attrib
            for way in ("send", "recv"):
                if a[way] != "-1":
                    assert (way, a[way], a["chan"]) not in ends
                    ends.add((way, a[way], a["chan"]))
            steps = list(tb)
            assert [int(s.attrib["s"]) for s in steps] == list(range(len(steps)))
            blocks[rank, int(a["id"])] = (a, [s.attrib for s in steps])
    for (rank, _), (_, steps) in blocks.items():
        for step in steps:
            assert step["type"] in KINDS
            if step["depid"] != "-1":  # steps that others wait for say so
                other = blocks[rank, int(step["depid"])][1][int(step["deps"])]
                assert other["hasdep"] == "1"
    _play(blocks, buffers, random.Random(seed), slots)
    return [b["o"] for b in buffers]


def _play(blocks: dict, buffers: list, chance: random.Random, slots: int) -> None:
    done = dict.fromkeys(blocks, 0)
    fifo: dict[tuple, deque] = {}
    left = sum(len(steps) for _, steps in blocks.values())
    while left:
        order = [key for key in blocks if done[key] < len(blocks[key][1])]
        chance.shuffle(order)
        moved = 0
        for key in order:
            attributes, steps = blocks[key]
            step = steps[done[key]]
            moved += _step(key, attributes, step, buffers, fifo, done, slots)
        if not moved:
            raise Deadlock
        left -= moved


def _step(key, attributes, step, buffers, fifo, done, slots) -> int:
    rank, mine = key[0], buffers[key[0]]
    if step["depid"] != "-1" and done[rank, int(step["depid"])] <= int(step["deps"]):
        return 0
    count, source, target = (int(step[x]) for x in ("cnt", "srcoff", "dstoff"))
    taken, put = slice(source, source + count), slice(target, target + count)
    if step["type"] == "s":
        ends = rank, int(attributes["send"]), attributes["chan"]
        line = fifo.setdefault(ends, deque())
        if len(line) >= slots:
            return 0
        line.append(mine[step["srcbuf"]][taken].copy())
    elif step["type"] in ("r", "rrc"):
        ends = int(attributes["recv"]), rank, attributes["chan"]
        line = fifo.setdefault(ends, deque())
        if not line:
            return 0
        value = line.popleft()
        if step["type"] == "rrc":
            value = value + mine[step["srcbuf"]][taken]
        mine[step["dstbuf"]][put] = value
    elif step["type"] == "cpy":
        mine[step["dstbuf"]][put] = mine[step["srcbuf"]][taken]
    done[key] += 1
    return 1
