"""What is no trace, graph or report, and what options of an import cannot be."""

import gzip
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from refusals import File, Refusal, row

import diffenergy as de
from diffenergy import imports
from tests.imports import builders

FOLDER = File(None, "made")


def content(sentence: str, text: str | bytes, name: str = "file") -> Any:
    return row(sentence, imports.read, File(text, name))


def read_trace(folder: str, events: list[Any], about: dict[str, Any], **options: Any):
    imports.read(builders.trace(Path(folder), events, **about), **options)


def trace(sentence: str, events: list[Any] = builders.EVENTS, **options: Any) -> Any:
    """A trace with something wrong about it, or with options that do not fit."""
    about = {x: options.pop(x) for x in ("deviceProperties",) if x in options}
    return row(sentence, read_trace, FOLDER, events, about, **options)


def kernel(**wrong: Any) -> list[Any]:
    return [builders.kernel(builders.GEMM, 1, 100, 5) | wrong]


def built(sentence: str, build: Callable[[Path], str], cut: int | None = None) -> Any:
    def read(folder: str):
        path = Path(build(Path(folder)))
        path.write_bytes(path.read_bytes()[:cut])
        imports.read(str(path))

    return row(sentence, read, FOLDER)


PACKED = gzip.compress(json.dumps({"traceEvents": builders.EVENTS * 2000}).encode())
TWO = [builders.kernel(builders.GEMM, i, 1.0, 5.0, device=i) for i in range(2)]
KINDS = [{"id": 0, "name": builders.H100}, {"id": 1, "name": "NVIDIA L4"}]
FILES = [
    content("is empty", ""),
    content("none of the files", "{}"),
    content("none of the files", "hello"),
    content("0 events and no GPU kernel", '{"traceEvents": []}'),
    content("1 events and no GPU kernel", '[{"ph": "X"}]'),
    content("`traceEvents` is no list", '{"traceEvents": 5}'),
    content("is cut off", '{"traceEvents": [{"ph": "X"}'),
    content("is cut off", PACKED[: len(PACKED) // 2], "t.json.gz"),
    content("no whole JSON", '{"traceEvents": [{"ph": }]}'),
    content("a kernel listing already", '{"name": "x", "kernels": [{"op": "gemm"}]}'),
    content("a model's config", '{\n "model_type": "gpt2"}'),
    content("no report of Nsight", "gpu,op,time_us\na10,gemm,3\n"),
    content("SQLite", b"SQLite format 3\0" + b"\0" * 2000, "x.sqlite"),
    built("is empty", lambda folder: builders.nsys(folder, [])),
    built(
        "duration -6 ns", lambda folder: builders.nsys(folder, [(builders.GEMM, 10, 4)])
    ),
    built("cut off", builders.chakra, -4),
    trace("(`dur`) of 'sm90", kernel(dur=-5)),
    trace("(`ts`)", kernel(ts=1e999)),
    trace("different GPUs (NVIDIA H100", TWO, deviceProperties=KINDS),
]
OPTIONS = [
    trace("no kernel starts in the window", window=(90, 95)),
    trace("is no step of the trace", window="step 3"),
    trace("`gpu` is 'h1000'", gpu="h1000"),
    trace("is no graph", dims={"batch": 8}),
    trace("operators of", dims={"tokens": 8}, model="gpt2"),
    trace("is no graph", dims={"colour": 8}, model="gpt2"),
    trace("There is no model or file 'nothing'", model="nothing"),
    trace("no language model", model="resnet-50"),
    row("launches no kernel", de.trace_listing, lambda x: x.reshape(-1),
        jnp.ones((4, 4))),
    row("`fuse` is 'all'; allowed are True, False and 'attention'", de.trace_listing,
        jnp.tanh, jnp.ones(4), fuse="all"),
]  # fmt: skip


@pytest.mark.parametrize("refusal", FILES + OPTIONS)
def test_refused(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)


def test_without_onnx_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    file = File(b"\x08\x08\x12\x04test:\x00", "m.onnx")
    sentence = "pip install 'diffenergy[importers]'"
    Refusal(sentence, ValueError, imports.read, (file,), {}).check(tmp_path)
