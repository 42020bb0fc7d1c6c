"""What the tests would notice: break the program in one place, run the closest tests.

    python tests/mutate.py --seed 0 --draw 40 --rooms kernels,workload/models

draws single faults (operator swapped, constant 10 % larger, min and max swapped, a term
dropped, a condition negated, an index off by one, a guard removed, a default changed),
room, then kind, then place by the seed, applies each to a copy of the working tree and
runs there the test files closest to the broken file: those in the same folder of tests/
that name its module, and the wide ones of the room (`WIDE`). What these let pass meets
all tests of the room and those of its commands and pages (`ALSO`), the slow ones
apart. Room `a/b` is every file whose path under diffenergy/ begins so. The unbroken
copy has to pass first.

Each fault is one JSON line of `--log`; a run that was cut off goes on there. At the end
the survivors are listed, with place and change. A survivor is a hole in the tests,
unless a person judges that the change is equivalent (a bound that is never met, a
tolerance, speed only). Runs past `--limit` seconds plus three times the unbroken run
count as noticed (an endless loop) and are given apart (a slow machine: run them again).
"""

import argparse
import importlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any, Final

from faults import ROOT, Fault, draw

WIDE: Final = {
    "kernels": ("kernels/by_hand/test_*", "test_contract", "test_library_fp32"),
    "physics": ("test_timeline", "test_gemm"),
    "dvfs": ("dvfs/test_problem", "dvfs/test_plan"),
    "workload": (
        "test_configs",
        "workload/test_*_passes",
        "test_models",
        "test_training",
    ),
}
"""Test files that look at all of a room."""
ALSO: Final = {
    "codesign": ("cli/commands/test_codesign.py", "cli/test_refusals.py"),
    "collectives": ("cli/commands/test_collective.py",),
    "dvfs": ("cli/commands/test_dvfs.py",),
    "estimator": (
        "test_estimator.py",
        "test_sensitivity.py",
        "cli/commands/test_estimate.py",
        "physics/test_software.py",
        "report",
    ),
    "fleet": ("cli/commands/test_fleet.py",),
    "fitting": ("cli/commands/test_fit.py", "cli/commands/test_evaluate.py"),
    "kernels": ("cli/commands/test_estimate.py", "estimator/test_memory.py"),
    "parallel": ("plans",),
    "physics": ("dvfs/test_problem.py",),
    "serving": ("cli/commands/test_serve.py",),
    "workload": ("cli/commands/test_estimate.py", "cli/commands/test_known.py"),
}
"""Tests of other folders that ask a room for its answers: commands, pages."""
PRELOADED: Final = (
    "jax", "equinox", "numpy", "pandas", "scipy.optimize", "optax", "typer",
    "rich.console", "pytest", "hypothesis", "beartype", "jaxtyping",
)  # fmt: skip
"""Imported once; every run is a fork that has them, and nothing of diffenergy."""


def tests_of(file: str) -> tuple[str, ...]:
    """Test files closest to a file of the package, the closest first."""
    parts = [x.strip("_") for x in Path(file).with_suffix("").parts[1:]]
    tests = ROOT / "tests"
    folders = [tests.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    folder = next(folder for folder in folders if folder.is_dir())
    texts = {path: path.read_text() for path in sorted(folder.rglob("test_*.py"))}
    stems = [part.strip("_") for part in parts[::-1] if part != "__init__"]
    near: list[Path] = []
    for word in (stems[0], stems[0].split("_")[0], *stems[1:]):
        count = {x: len(re.findall(rf"\b_?{word}", texts[x])) for x in texts}
        near = near or sorted(filter(count.get, texts), key=lambda x: -count[x])
    wide = [x for name in WIDE.get(parts[0], ()) for x in tests.rglob(f"{name}.py")]
    chosen = dict.fromkeys((near or list(texts)) + wide)
    first = [x for x in chosen if stems[0] in x.stem]
    return tuple(str(x.relative_to(ROOT)) for x in dict.fromkeys((*first, *chosen)))


def _wider(file: str) -> tuple[str, ...]:
    """All tests of the room of a file, and those that ask it for its answers."""
    room = Path(file).parts[1]
    return f"tests/{room}", *(f"tests/{x}" for x in ALSO.get(room, ()))


class _First:
    """pytest plugin that keeps the first test that failed."""

    failed = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed = self.failed or (report.nodeid if report.failed else "")

    pytest_collectreport = pytest_runtest_logreport


def _child(tree: Path, tests: tuple[str, ...], answer: Path) -> None:
    """Run the tests in this fork of the process; write exit status, first failure."""
    import pytest

    os.setsid()
    os.chdir(tree)
    output = os.open(tree.parent / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.path.insert(0, str(tree))
    first = _First()
    words = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # by `PRELOADED`
    status = int(pytest.main([*words, *tests], plugins=[first]))
    package = sys.modules.get("diffenergy")
    if package and not str(package.__file__).startswith(str(tree)):
        status = 99  # of another tree
    answer.write_text(json.dumps([status, first.failed]))


def run(tree: Path, tests: tuple[str, ...], limit: float) -> tuple[str, str, float]:
    """("noticed", "survived", "time" or "error", first failure, s) of the tests."""
    answer = tree.parent / "answer.json"
    answer.unlink(missing_ok=True)
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            _child(tree, tests, answer)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(0)
    late = False
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if not late and time.monotonic() - begun > limit:
            late = True
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.05)
    seconds = time.monotonic() - begun
    if late or not answer.exists():  # killed, or crashed
        return "time" if late else "noticed", "", seconds
    status, failed = json.loads(answer.read_text())
    known = ("survived", "noticed", "noticed", "noticed", "noticed", "survived")
    return known[status] if status < len(known) else "error", failed, seconds


def scratch(folder: Path) -> Path:
    """Copy of the working tree in a folder, the shared tables beside it."""
    skip = shutil.ignore_patterns(".git", "__pycache__", ".*_cache", "build")
    shutil.copytree(ROOT, folder / "tree", ignore=skip)
    shared = (ROOT.parent / "shared").resolve()
    if shared.is_dir():
        (folder / "shared").symlink_to(shared)
    return folder / "tree"


def judged(faults: list[Fault], log: Path, tree: Path, slack: float) -> list[dict]:
    """Lines of the log, one a fault; runs what is not in it yet."""
    lines = map(json.loads, log.read_text().splitlines() if log.exists() else [])
    known = {Fault(*(x[name] for name in Fault._fields)): x for x in lines}
    usual: dict[tuple[str, ...], float] = {}
    for number, fault in enumerate(faults, 1):
        if fault in known:
            continue
        path = tree / fault.file
        whole = path.read_bytes()
        broken = whole[: fault.start] + fault.now.encode() + whole[fault.end :]
        for tests in (tests_of(fault.file), _wider(fault.file)):
            if tests not in usual:
                result, failed, usual[tests] = run(tree, tests, 1800.0)
                if result != "survived":
                    output = (tree.parent / "output.txt").read_text()[-2000:]
                    raise SystemExit(f"{output}\nthe unbroken tree: {result} {failed}")
            path.write_bytes(broken)
            os.utime(path, (number, number))  # or a stale .pyc of the same size runs
            result, test, seconds = run(tree, tests, slack + 3 * usual[tests])
            path.write_bytes(whole)
            if result != "survived":
                break
        line = {"result": result, "test": test, "seconds": round(seconds, 1)}
        known[fault] = fault._asdict() | line
        with log.open("a") as out:
            out.write(json.dumps(known[fault]) + "\n")
        print(f"{number}/{len(faults)} {_shown(known[fault])}", flush=True)
    return [known[fault] for fault in faults]


def _shown(line: dict[str, Any]) -> str:
    change = " ".join(f"{line['was']} -> {line['now']}".split())
    return f"{line['result']:8} {line['file']}:{line['line']} {line['kind']}: {change}"


def main() -> None:
    """Draw, run, tell."""
    temporary = Path(tempfile.gettempdir())
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draw", type=int, default=40, help="number of faults")
    parser.add_argument("--rooms", default="kernels,workload/models")
    parser.add_argument("--limit", type=float, default=60.0, help="s, see above")
    parser.add_argument(
        "--log", type=Path, help="JSON lines; default in the temp folder"
    )
    arguments = parser.parse_args()
    log = arguments.log or temporary / f"diffenergy-faults-{arguments.seed}.jsonl"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(temporary / "mutate-jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    for module in PRELOADED:
        importlib.import_module(module)
    faults = draw(arguments.rooms.split(","), arguments.draw, arguments.seed)
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        os.environ["PYTHONPATH"] = str(Path(folder) / "tree")
        result = judged(faults, log, scratch(Path(folder)), arguments.limit)
    late = sum(x["result"] == "time" for x in result)
    alive = [x for x in result if x["result"] not in ("noticed", "time")]
    print(
        f"\n{len(result) - len(alive)} of {len(result)} noticed, {late} by time; {log}"
    )
    drawn = Counter(x["room"] for x in result)
    lost = Counter(x["room"] for x in alive)
    for room in drawn:
        print(f"  {room}: {drawn[room] - lost[room]} of {drawn[room]}")
    print("\n".join(map(_shown, alive)))


if __name__ == "__main__":
    main()
