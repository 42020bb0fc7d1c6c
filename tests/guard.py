"""What the program answers, before and after a change that is to leave answers alone.

    python tests/guard.py write BEFORE [--only requests]     # in the old tree
    python tests/guard.py write AFTER [--only requests]      # in the new one
    python tests/guard.py compare BEFORE AFTER

Groups: `requests` (listings, parameters, memory and refusals of every bundled model,
one to three minutes), `commands` (JSON and text of every command of README, docs and
help; half an hour), `fits` (constants of five small fits). The published schedules of
TE-CCL are a test of their own (tests/collectives/test_published.py). Numbers
may differ by a part in 10^9; times of solvers and of the clock on the wall are left
out. Both trees have to run on one machine.
"""

import argparse
import contextlib
import hashlib
import importlib
import io
import itertools
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
TOLERANCE: Final = 1e-9
UNSTEADY: Final = ("wall_s", "solver_s", "written", "version")
"""Keys whose values differ from run to run."""
Answers = Iterator[tuple[str, Any]]

PHASES: Final = ("prefill", "decode", "generate", "train", "forward")
SIZES: Final = ({}, {"batch": 8, "input_len": 1024}, {"batch": 3, "output_len": 7})
VARIANTS: Final[tuple[dict[str, Any], ...]] = (
    {}, {"dtype": "fp8"}, {"dtype": "nvfp4", "kv_dtype": "fp8"}, {"stack": "eager"},
    {"attention": "eager"}, {"dispatch": "graph"}, {"lora": 16}, {"tp": 2},
    {"routing": "balanced"}, {"checkpointing": True}, {"frozen_layers": 2},
)  # fmt: skip


def requests() -> Answers:
    """Every bundled model in all phases, sizes and variants: its listing (a digest),
    what the answer says of it, its memory; or the refusal."""
    from diffenergy.estimator import prepare
    from diffenergy.results import Infeasible
    from diffenergy.workload import listing_lines
    from diffenergy.workload.models import model_names

    cases = itertools.product(model_names(), PHASES, SIZES, VARIANTS)
    for model, phase, size, variant in cases:
        if variant and size and size != SIZES[1]:
            continue
        name = f"{model} {phase} {json.dumps(size | variant)}"
        try:
            task = prepare(model, "h100-sxm", phase=phase, **size, **variant)
        except (ValueError, Infeasible) as error:
            yield name, {"refused": str(error)}
            continue
        digest = hashlib.sha256(listing_lines(task.listings).encode()).hexdigest()
        yield name, {"listing": digest, **task.about, "memory": task.memory}


def commands() -> Answers:
    """Every command of README, docs and help: JSON where it has one, and text."""
    docs = importlib.import_module("pages")
    for block in [*docs.examples(), *(x for p in docs.PAGES for x in docs.blocks(p))]:
        if any(docs.SHARED in x for x in block.commands):
            continue
        with _folder(docs.EXAMPLES, docs.LINKED):
            for i, command in enumerate(block.commands):
                program, *words = shlex.split(docs.REDIRECTED.sub(r"\1", command))
                if program == "diffenergy" and words[0] != "measure":
                    name = f"{block.page}:{i} {command}"
                    yield name, _answered(words)


def _answered(words: list[str]) -> dict[str, Any]:
    """Exit status, text, and JSON of a command, if it has any."""
    status, text, error = _run(words)
    answer = {"status": status, "text": text.splitlines(), "stderr": error}
    if status == 0 and "--json" not in words and words[0] not in ("report", "gpus"):
        coded, said, _ = _run([*words, "--json"])
        answer["json"] = json.loads(said) if coded == 0 and said else None
    return answer


def _run(words: list[str]) -> tuple[int, str, str]:
    from diffenergy.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
    return status, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def _folder(examples: Path, linked: tuple[str, ...]) -> Iterator[None]:
    """An empty folder with the examples, as the tests of the pages have it."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as place:
        here = Path(place) / "here"
        shutil.copytree(examples, here)
        for name in linked:
            (here / name).symlink_to(ROOT / name)
        os.chdir(here)
        try:
            yield
        finally:
            os.chdir(before)


def fits() -> Answers:
    """Constants of small fits to the kernels and passes that this project measured:
    from the shipped corrections and from priors, with levels held and groups left out.
    """
    rows = ROOT / "calibration" / "measurements"
    kernels, passes = str(rows / "h100_kernels.csv"), str(rows / "h100_passes.csv")
    few = ("--max-rows", "64")
    for name, words in {
        "kernels": [kernels, *few],
        "kernels by a seed": [kernels, *few, "--seed", "3"],
        "levels held": [kernels, *few, "--freeze", "energy_"],
        "from priors": [kernels, *few, "--start", "none"],
        "passes": [passes],
    }.items():
        with tempfile.TemporaryDirectory() as place:
            out = f"{place}/fit.json"
            status, _, error = _run(["fit", *words, "--out", out])
            read = json.loads(Path(out).read_text()) if status == 0 else error
            yield name, {"status": status, "file": read}


GROUPS: Final = {"requests": requests, "commands": commands, "fits": fits}


def write(folder: Path, only: list[str]) -> None:
    """One JSON line an answer, one file a group."""
    folder.mkdir(parents=True, exist_ok=True)
    for group in only or GROUPS:
        with (folder / f"{group}.jsonl").open("w", encoding="utf-8") as file:
            for i, (name, answer) in enumerate(GROUPS[group](), 1):
                file.write(json.dumps([name, answer], default=str) + "\n")
                if i % 500 == 0:
                    print(f"{group}: {i} answers", file=sys.stderr)
        print(f"{group}: done", file=sys.stderr)


def differences(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """Where two answers differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            if key not in UNSTEADY:
                old, new = before.get(key, "(absent)"), after.get(key, "(absent)")
                yield from differences(old, new, f"{at}.{key}")
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{at}: {len(before)} -> {len(after)} entries"
        for i, (old, new) in enumerate(zip(before, after, strict=False)):
            yield from differences(old, new, f"{at}[{i}]")
    elif isinstance(before, float) and isinstance(after, int | float):
        if abs(after - before) > TOLERANCE * max(abs(before), abs(after)):
            yield f"{at}: {before!r} -> {after!r}"
    elif before != after:
        yield f"{at}: {before!r} -> {after!r}"


def compare(before: Path, after: Path) -> int:
    """Prints what differs; how many answers do."""
    count = 0
    for file in sorted(before.glob("*.jsonl")):
        if not (after / file.name).exists():
            print(f"{file.stem}: not compared, {after} has none")
            continue
        old, new = (
            dict(json.loads(line) for line in (x / file.name).open(encoding="utf-8"))
            for x in (before, after)
        )
        for name in dict.fromkeys([*old, *new]):
            result = list(differences(old.get(name), new.get(name)))
            count += bool(result)
            for line in result[:5]:
                print(f"{file.stem}: {name}{line}")
        print(f"{file.stem}: {len(old)} answers before, {len(new)} after")
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description="What the program answers.")
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", action="append", choices=list(GROUPS), default=[])
    request = parser.parse_args()
    if request.action == "compare":
        return min(compare(*request.folders), 1)
    from diffenergy.estimator import start_jax

    start_jax()
    write(request.folders[0].resolve(), request.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
