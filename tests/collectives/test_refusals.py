"""What machines, demands, plans and schedule files refuse; schedules: `verify`."""

import gzip
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import File, Refusal, row

from diffenergy.collectives import (
    Demand,
    Search,
    Violation,
    demand,
    load_topology,
    plan,
    verify,
)
from diffenergy.results import Infeasible

from .builders import read_demand_file, read_published
from .test_files import ring_schedule, table_of
from .test_nvidia_smi import DGX1 as PRINT
from .test_nvidia_smi import PCIE
from .test_published import SMALL
from .test_topologies import OWN

NAN = float("nan")
DGX1, RING = load_topology("dgx1"), load_topology("ring-4")
on_dgx1 = partial(plan, "dgx1", "all_gather", "200KB")


def machine(sentence: str, old: str, new: str) -> Any:
    assert old in OWN
    file = File(OWN.replace(old, new, 1), "own.toml")
    return row("own.toml .. " + sentence, load_topology, file)


def print_of(sentence: str, text: str, gpu: str | None) -> Any:
    """A print of `nvidia-smi topo -m`."""
    return row(sentence, load_topology, File(text, "topo.txt"), gpu=gpu)


MACHINES = [
    machine("`rate` is missing for the links '0..1-sw0'", "rate = 10e9\n", ""),
    machine("looks like GB/s", "rate = 10e9", "rate = 10"),
    machine("`rate` is -1; allowed", "rate = 10e9", "rate = -1"),
    machine("`rate` is 1e+20 B/s, which no link has", "rate = 10e9", "rate = 1e20"),
    machine("`rate` is nan; give a finite number", "rate = 10e9", "rate = nan"),
    machine("`latency` is -1e-06", "latency = 1e-6", "latency = -1e-6"),
    machine("`latency` is True", "latency = 2e-6", "latency = true"),
    machine("nearest: laser", 'medium = "laser"', 'medium = "lasr"'),
    machine("low, typical, high", "typical = 2e-12", "typical = 2"),
    machine("counted by `gpus`", 'names = "sw0"', 'names = "sw0 gpu7"'),
    machine("allowed are names such as", 'names = "sw0"', 'names = "switch"'),
    machine("`nodes` has sw1, but 1 of them", 'names = "sw0"', 'names = "sw1"'),
    machine("`nodes` has sw0 twice", 'names = "sw0"', 'names = "sw0 sw0"'),
    machine("neither `pairs` nor `one_way`", 'pairs = "0..1-sw0"\n', ""),
    machine("`name` is 3; give text", 'name = "two-and-a-switch"', "name = 3"),
    machine("allowed are true and false", "copy = true", "copy = 1"),
    machine("names gpu4, which is not a node", "gpu1->gpu2", "gpu1->gpu4"),
    machine("`one_way` has 'gpu1-gpu2'", "gpu1->gpu2", "gpu1-gpu2"),
    machine("a link joins two nodes", "gpu1->gpu2", "gpu1->gpu1"),
    machine("gpu3->gpu0 twice", "gpu1->gpu2", "3->0"),
    machine("makes 10000000000 links", "0..1-sw0", "0..99999-0..99999"),
    machine("a range rises", "0..1-sw0", "1..0-sw0"),
    machine("allowed are two nodes", "0..1-sw0", "0..1"),
    machine("`gpus` is 150000 in 2 chassis", "gpus = 2", "gpus = 150000"),
    machine("`gpu_count` is not a key", "gpus = 2", "gpu_count = 2"),
    machine("`buffer_gpus` is 1", "chassis = 2", "chassis = 2\nbuffer_gpus = 1"),
    machine("`gpu` is 'h1000'", "h100-sxm", "h1000"),
    machine("give tables", "[[links]]", "[links]"),
    machine("`like` is 'mesh'", "chassis = 2", 'like = "mesh"'),
    machine("`relays` names gpu9", "chassis = 2", 'relays = "gpu9"'),
    machine("not valid TOML", "chassis = 2", "chassis = "),
    row("`links` is missing; add", load_topology, File("gpus = 2\n", "own.toml")),
    row("fewer than two GPUs", load_topology, File(
        'gpus = 1\nlatency = 1e-6\n[[nodes]]\nnames = "sw0"\n[[links]]\n'
        'pairs = "0-sw0"\nrate = 1e9\nmedium = "serial"\n', "own.toml")),
    machine("bundled topologies alone", "chassis = 2", "grid = 2"),
    *(
        row(sentence, load_topology, name)
        for name, sentence in {
            "dgx-1": "neither a known topology nor a file; nearest: `dgx1`",
            "none.toml": "no such file",
            "torus-0x4": "of 0 GPUs",
            "torus-900x900": "of 810000 GPUs",
            "dgx-h100-1": "one is `dgx-h100`",
            "media": "neither a known topology",
        }.items()
    ),
    row("`latency` is -1e-06; allowed is any number of s from 0",
        load_topology, "dgx1", -1e-6),
    row("looks like us", load_topology, "dgx1", 0.7),
    row("states the latency of every link", load_topology, "ndv2-2", 1e-6),
    print_of("no print of", "nothing of it", "h100-sxm"),
    print_of("`gpu` is missing", PRINT, None),
    print_of("has no NVLink", PRINT, "l4"),
    print_of("links are not known", PRINT, "mi300x"),
    print_of("not all pairs are alike", PRINT, "a30"),
    print_of("not a known GPU", PRINT, "v100x"),
    print_of("the whole print", PRINT.replace("GPU7\tSYS", "GPU9\tSYS"),
            "v100-sxm-32gb"),
    print_of("the same way", PRINT.replace("NV1\t X \tNV2", "NV1\t X "),
            "v100-sxm-32gb"),
    print_of("X for a GPU", PRINT.replace("NV2\t X ", "NV2\tNV1", 1), "v100-sxm-32gb"),
    print_of("the same way", PCIE.replace("GPU1    PIX ", "GPU1    QPI "), "l4"),
    print_of("'QPI'", PCIE.replace("PIX", "QPI"), "l4"),
    row("no link of `dgx1` joins .. gpu0 is linked with gpu1", on_dgx1,
        disable=["gpu0-gpu7"]),
    row("allowed are two nodes", on_dgx1, disable=["gpu0"]),
    row("names gpu9, which is not a node of `dgx1`", on_dgx1, disable=["gpu0-gpu9"]),
    row("a pair and a factor", on_dgx1, scale=["0-1"]),
    *(
        row("a factor above 0", on_dgx1, scale=[f"0-1={x}"])
        for x in ("0", "fast", "nan")
    ),
]  # fmt: skip


def demand_of(sentence: str, collective: str = "all_gather", **options: Any) -> Any:
    sized: dict[str, Any] = {"size": "8KB"} | options
    return row(sentence, demand, collective, DGX1, **sized)


def matrix(sentence: str, values: Any) -> Any:
    return row(sentence, plan, "dgx1", "all_to_all", matrix=values)


def blocks(sentence: str, rows: str) -> Any:
    file = File(f"source,chunk,bytes,wanted\n{rows}\n", "demand.csv")
    return row(sentence, read_demand_file, file, DGX1)


ONE_WAY = 'gpus = 3\n[[links]]\none_way = "0->1 1->2"\nrate = 1e9\nmedium = "serial"\n'
APART = "ring-4", ["gpu1-gpu2", "gpu2-gpu3"]
DEMANDS = [
    *(
        demand_of(f"`size` is '{text}'", size=text)
        for text in ("", "GB", "-1GB", "0KB", "1,5GB", "nan", "1e400", "1GBs")
    ),
    demand_of("nearest: .. all_gather", "al_gather"),
    demand_of("which 7 chunks do not divide; 1001 B", size=1000, chunks=7),
    demand_of("whole bytes", size=0.5),
    demand_of("`size` is -8", size=-8),
    demand_of("`size` is missing", size=None),
    demand_of("`chunks` is 0", chunks=0),
    demand_of("take fewer chunks", size=10**9, chunks=10**9),
    demand_of("`root` is 8; allowed are 0 to 7", "reduce", root=8),
    demand_of("or gpu0 to gpu7", "reduce", root="sw0"),
    demand_of("a demand file", "custom"),
    demand_of("names gpu8, which is not a GPU", groups=[[0, 8]]),
    demand_of("each once", groups=[[0, 0]]),
    demand_of("two or more", groups=[[0]]),
    demand_of("`groups` is empty", groups=[]),
    demand_of("all_to_all", matrix=np.ones((8, 8))),
    matrix("is 4 x 4; allowed is one row and column for each of the 8",
           np.ones((4, 4))),
    matrix("below 0", -np.ones((8, 8))),
    matrix("no transfer", np.eye(8)),
    *(
        row(sentence, plan, *APART[:1], collective, "4KB", disable=APART[1])
        for collective, sentence in {
            "all_gather": "6 of the demands: gpu2 wants gpu0's block",
            "broadcast": "1 of the demands: gpu2 wants gpu0's block;",
            "reduce": "gpu2 adds to gpu0's block",
        }.items()
    ),
    row("gpu0 wants gpu1's block", plan, File(ONE_WAY, "one.toml"), "all_gather",
        "3KB"),
    *(
        matrix(sentence, File(text, "demand.csv"))
        for text, sentence in (
            ("", "empty"),
            ("0,1\n2\n", "line 2: the row has 1 cells"),
            ("0,x\n2,0\n", "line 1, cell 2: 'x'"),
            ("0,-1\n2,0\n", "line 1, cell 2: '-1'"),
            ("0," + "1" * 200_000, "cannot be read as CSV"),
        )
    ),
    matrix("cannot be read", "none.csv"),
    blocks("has 3 cells", "0,0,8"),
    blocks("names '9', which is not a GPU", "9,0,8,all"),
    blocks("`chunk` is 'a'", "0,a,8,all"),
    blocks("`chunk` is '\u00b2'", "0,\u00b2,8,all"),
    blocks("`bytes` is 0", "0,0,0,all"),
    blocks("`wanted` is empty", "0,0,8,"),
    blocks("names 'sw0'", "0,0,8,sw0"),
    blocks("line 3: a block again", "0,0,8,1\n0,0,8,2"),
    blocks("there is no block", ""),
    blocks("`wanted` names only the GPU that has the block", "0,0,8,0"),
    row("the columns are 'a, b'; allowed are source, chunk", read_demand_file,
        File("a,b\n1,2\n", "demand.csv"), DGX1),
    row("is not UTF-8 text", read_demand_file, File(b"\xff\n", "demand.csv"), DGX1),
]  # fmt: skip


UNEVEN = Demand(
    "custom", np.arange(2), np.zeros(2, int), np.array([1e6, 2e6]),
    np.ones((2, 8), bool), np.zeros((2, 8), bool),
)  # fmt: skip


def plan_of(sentence: str, **options: Any) -> Any:
    usual = {"topology": "ring-4", "collective": "all_gather", "size": 8e6}
    return row(sentence, plan, **(usual | options))


PLANS = [
    row("`topology` is a int; allowed is a name", plan, 3, kind=TypeError),
    row("`gpu` is a float; allowed is str", on_dgx1, gpu=3.0, kind=TypeError),
    row("`search` is a str; allowed is Search", on_dgx1, search="milp",
        kind=TypeError),
    row("`demand` is a list; allowed is a Demand", on_dgx1, demand=[1],
        kind=TypeError),
    plan_of("`size` is missing", size=None),
    plan_of("`collective` is missing", collective=None),
    plan_of("`size` is '8000000.0', but `matrix` says all", matrix=np.ones((4, 4))),
    plan_of("`root` is '1', but all_gather has none", root=1),
    plan_of("`objective` is 'energy', which needs the power", objective="energy"),
    *(
        plan_of(f"`objective` is '{text}'; allowed are time", objective=text)
        for text in ("joules", "-3", "nan")
    ),
    row("`method` is 'best'; allowed are auto", Search, "best"),
    plan_of("beside a Topology", topology=RING, latency=1e-6),
    row("no model of an all_reduce", plan, "dgx1", "all_reduce", "200KB",
        search=Search(method="milp")),
    row("copied or added up", on_dgx1, search=Search(method="lp")),
    row("chunks of one size", plan, "dgx1", demand=UNEVEN,
        search=Search(method="milp")),
    row("at least 4 are needed (proven)", on_dgx1, kind=Infeasible,
        search=Search(epoch="slowest", horizon=3)),
]  # fmt: skip
BLOCK = {"source": "gpu0", "chunk": 0, "bytes": 1, "wanted": ["gpu1"]}
WHOLE = json.dumps(table_of(ring_schedule("all_gather")))


def schedule(
    sentence: str, edit: Callable[[dict[str, Any]], object], kind: Any = ValueError
) -> Any:
    table = json.loads(WHOLE)
    edit(table)
    return row(sentence, verify, File(json.dumps(table), "a.json"), kind=kind)


def send(sentence: str, kind: Any = ValueError, **values: Any) -> Any:
    return schedule(sentence, lambda t: t["sends"][3].update(values), kind)


def published(sentence: str, flows: Any, kind: Any = Violation, **change: Any) -> Any:
    """A table as TE-CCL publishes them; a single lane (5-6) takes two epochs for a
    chunk, and gpu0 cannot store."""
    text = json.dumps(SMALL | {"7-Flows": flows} | change)
    return row(sentence, verify, File(text, "a.json"), "ndv2-2-published", kind=kind)


def hop(way: str, epoch: int, source: int | None = None, chunk: int = 0) -> str:
    first = way.split("->")[0] if source is None else source
    return f"Chunk {chunk} from {first} traveled over {way} in epoch {epoch}"


def early(table: dict[str, Any]):
    """A second hop half a hop too early."""
    table["sends"][4]["start_s"] /= 2


FILES = [
    row("not whole JSON", verify, File(WHOLE[:-40], "a.json")),
    row("cannot be read", verify, "none.json"),
    row("cannot be read", verify, File(None, "folder")),
    row("no list `sends`", verify, File("[1]", "list.json")),
    row("written only; give the JSON", verify, "none.xml"),
    *(
        row("not whole JSON", read_published, File(content, name), RING)
        for name, content in {
            "cut.json.gz": gzip.compress(WHOLE.encode())[:-90],
            "empty.json": b"",
        }.items()
    ),
    row("cannot be read", read_published, "none.json", RING),
    row("neither", read_published, File('{"sends": []}', "b.json"), RING),
    schedule("no list `sends`", lambda t: t.pop("sends")),
    schedule("names no `topology`", lambda t: t.pop("topology")),
    schedule("`collective` is", lambda t: t.pop("collective")),
    schedule("invalid literal", lambda t: t.update(chunks="x")),
    schedule("`root`", lambda t: t.update(root=[1])),
    schedule("lacks 'source'", lambda t: t.update(demand=[{"chunk": 0}])),
    *(
        schedule(sentence, lambda t, x=block: t.update(demand=[x]), kind)
        for sentence, block, kind in (
            ("`bytes` of the demand is 0", BLOCK | {"bytes": 0}, ValueError),
            ("`gpu9` is no node of ring-4", BLOCK | {"source": "gpu9"}, Violation),
        )
    ),
    schedule("`finish_s` is 1e-09, but the last wanted block arrives at",
             lambda t: t.update(finish_s=1e-9), Violation),
    schedule("lacks 'size_bytes'", lambda t: t.pop("size_bytes")),
    schedule("`sends[3]`", lambda t: t["sends"][3].pop("link")),
    schedule("`sends[3]`", lambda t: t["sends"].__setitem__(3, 7)),
    send("`sends[3]`", chunk=0.5),
    send("send 3 uses gpu0->gpu2", link=["gpu0", "gpu2"], kind=Violation),
    send("send 3 carries chunk 4", chunk=4, kind=Violation),
    schedule("never comes whole", lambda t: t["sends"].pop(), Violation),
    schedule("does not hold yet", early, Violation),
    row("names no topology; give --topology NAME", verify, File(
        json.dumps(SMALL | {"7-Flows": []}), "a.json")),
    row("no link", verify, File(WHOLE, "a.json"), "mesh-2", kind=Violation),
    published("no link", [hop("1->7", 0)]),
    published("names node 77", [hop("1->77", 0)]),
    published("is no flow", ["Chunk zero"], ValueError),
    published("capacity is 1", [hop("5->6", 0), hop("5->6", 1, chunk=1)]),
    published("gpu6 does not have it", [hop("6->7", 0, 5)]),
    published("leaves gpu6 for gpu7 in epoch 1", [hop("5->6", 0), hop("6->7", 1, 5)]),
    published("leaves gpu0 for gpu2 in epoch 2", [hop("4->0", 0), hop("0->2", 2, 4)]),
    published("never comes whole", [hop("5->6", 0)]),
    published("wrong", None, ValueError),
    *(
        published(f"is {sentence}", [hop("5->6", 0)], ValueError, **{key: value})
        for key, value, sentence in (
            ("1-Epoch_Duration", "soon", "'soon'"),
            ("1-Epoch_Duration", 0.0, "0.0"),
            ("1-Epoch_Duration", float("inf"), "inf"),
            ("3-Epochs_Required", float("inf"), "inf"),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("refusal", MACHINES + DEMANDS + PLANS + FILES)
def test_refused(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)
