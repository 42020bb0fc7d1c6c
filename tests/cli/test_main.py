"""The frame of all commands: help, version, exit status, speed of the start."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from diffenergy import __version__
from diffenergy.cli import app, main, progress
from diffenergy.cli.app import QUESTIONS
from diffenergy.cli.commands import estimate

SHELL = "import sys; from diffenergy.cli import main; sys.exit(main(sys.argv[1:]))"
LAZY = """
import os
import sys
from diffenergy.cli import main
assert main(["--help"]) == 0
assert main(["estimate", "--help"]) == 0
assert main(["estimate", "--schema"]) == 0
assert main(["--version"]) == 0
for words in ("estimate ", "estimate gpt2 --gpu ", "collective "):
    os.environ["COMP_WORDS"] = "diffenergy " + words
    os.environ["COMP_CWORD"] = str(len(words.split(" ")))
    os.environ["_DIFFENERGY_COMPLETE"] = "complete_bash"
    assert main([]) == 0
    del os.environ["_DIFFENERGY_COMPLETE"]
assert main(["estimate", "gpt2", "--batch", "0"]) == 2
assert main(["measure", "--minutes", "-1"]) == main(["measure", "--only", "x"]) == 2
heavy = {"jax", "pandas", "numpy", "scipy", "torch", "pynvml"}
print(sorted(heavy & set(sys.modules)))
"""

LEVELS = """
import os
import sys
import diffenergy.cli

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "jax":
            print("level", os.environ.get("TF_CPP_MIN_LOG_LEVEL"), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Finder())
diffenergy.cli.main()
"""
"""Prints the level of XLA's log at the moment when JAX is imported, which reads it."""
NAMES = ("TF_CPP_MIN_LOG_LEVEL", "DIFFENERGY_DEBUG")
PLAIN = {name: x for name, x in os.environ.items() if name not in NAMES}
"""The environment without what sets the level."""


def shell(*args, **kwargs):
    command = [sys.executable, "-c", SHELL, *args]
    return subprocess.run(command, capture_output=True, text=True, **kwargs)


@pytest.mark.parametrize(
    ("command", "environment", "level"),
    [
        ("estimate", {}, "3"),
        ("dvfs", {"TF_CPP_MIN_LOG_LEVEL": "0"}, "0"),
        ("report", {"DIFFENERGY_DEBUG": "1"}, "None"),
    ],
)
def test_the_log_of_xla_is_silent_before_jax_loads(command, environment, level):
    """ "Very slow compile?" is at the level of errors, 2. In a caller's process, where
    `main` has its words from the caller, nothing is set."""
    done = subprocess.run(
        [sys.executable, "-c", LEVELS, command, "gpt2", "--gpu", "none"],
        capture_output=True, text=True, env={**PLAIN, **environment},
    )  # fmt: skip
    assert done.stdout == f"level {level}\n"


def test_help_and_bad_numbers_load_neither_jax_nor_pandas():
    done = subprocess.run(
        [sys.executable, "-c", LAZY], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", app.names())
def test_every_command_has_two_or_three_examples(run, name):
    outcome = run(name, "--help")
    assert outcome.code == 0 and outcome.err == ""
    examples = outcome.out.split("Examples:")[1].splitlines()
    assert len([x for x in examples if x.startswith("    diffenergy ")]) in (2, 3)
    assert all(len(line) <= 80 for line in outcome.out.splitlines())
    assert "╭" not in outcome.out and "<" not in outcome.out  # no types of Python


def test_version_and_bare_call(run):
    assert run("--version").out == f"diffenergy {__version__}\n"
    assert "What will it cost?" in run().out


def test_help_lists_every_command_once_under_its_question(run):
    lines = run("--help").out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    listed: dict[str, list[str]] = {}
    names: list[str] = []
    for line in lines[lines.index("What will it cost?") :]:
        assert not line.endswith("...")
        if line.startswith("  "):
            names.append(line.split()[0])
        elif line:
            names = listed.setdefault(line, [])
    names = [name for result in listed.values() for name in result]
    assert sorted(names) == app.names()
    listed.pop("More", None)  # commands that no question names
    assert {question: list(result) for question, result in QUESTIONS.items()} == listed


@pytest.mark.parametrize(
    "words, offered",
    [
        (["es"], ["estimate"]),
        (["estimate", "llama-3.1-"], ["llama-3.1-70b", "llama-3.1-8b"]),
        (["report", "gpt2", "--versus", "l4"], ["l4", "l40s"]),
        (["dvfs", "gpt3"], ["gpt3-xl"]),
        (["gpus", "show", "mi3"], ["mi300x"]),
        (["models", "sh"], ["show"]),
        (["collective", "m"], ["mi250x-1", "mi250x-2"]),
        (["estimate", "gpt2", "--pha"], ["--phase"]),
        (["estimate", "./my"], []),
    ],
    ids=lambda value: " ".join(value),
)
def test_what_a_shell_offers(words, offered, monkeypatch, capsys):
    monkeypatch.setenv("COMP_WORDS", " ".join(["diffenergy", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    monkeypatch.setenv("_DIFFENERGY_COMPLETE", "complete_bash")
    assert main([]) == 0
    shown = capsys.readouterr().out.split()
    assert set(offered) <= set(shown) and bool(offered) == bool(shown)
    assert shown == sorted(x for x in shown if x.startswith(words[-1]))


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(tmp_path):
    program = tmp_path / "diffenergy"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{SHELL}' \"$@\"\n")
    program.chmod(0o755)
    env = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = shell("--show-completion", "bash", env=env)
    assert (script.returncode, script.stderr) == (0, "")
    words = f"COMP_WORDS=({program} estimate gpt2 --gpu b20) COMP_CWORD=4"
    script_text = f"{script.stdout}\n{words}\n_diffenergy_completion {program}\n"
    script_text += 'echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script_text], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("b200-sxm\n", "")


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [(KeyboardInterrupt(), 130, "interrupted\n"), (KeyError("a\nb"), 1, "KeyError")],
)
def test_an_interrupt_or_a_fault_of_the_program_is_one_line(
    run, monkeypatch, error, code: int, words: str
):
    def broken(*environment, **more):
        raise error

    monkeypatch.delenv("DIFFENERGY_DEBUG", raising=False)
    monkeypatch.setattr(estimate, "task_of", broken)
    outcome = run("estimate", "gpt2")
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.count("\n") == 1 and words in outcome.err


@pytest.mark.parametrize("words", [["--help"], ["models"]])
def test_a_reader_that_stops_reading_is_no_error(words):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", SHELL, *words]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
def test_a_program_that_jax_kept_too_is_compiled_again(tmp_path):
    """A process keeps its compilations. A program from JAX's own cache lacks a part
    once it is written again."""
    installed = tmp_path / "diffenergy"
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    env |= {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax")}
    env |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    env |= {"JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    args = ("estimate", "gpt2", "--phase", "decode", "--json")
    first = shell(*args, env=env)
    assert (first.returncode, first.stderr) == (0, "")
    assert json.loads(first.stdout)["phase"] == "decode"
    assert list((installed / "jax").iterdir())
    shutil.rmtree(installed)
    for _ in range(2):  # written from what JAX kept, then read
        done = shell(*args, env=env)
        assert (done.returncode, done.stdout) == (0, first.stdout), done.stderr


def test_points_done_say_what_is_next_where_something_is(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    with progress.points("estimates") as show:
        show(3, 36, "")
        show(4, 36, "gemm")
    reported = capsys.readouterr().err.splitlines()
    assert reported[0] == "diffenergy: 3 of 36 points"
    assert reported[1] == "diffenergy: 4 of 36 points, now gemm"


@pytest.mark.parametrize("words", ["--help 1>&-", "--help 2>&-", "models 1>&- 2>&-"])
def test_a_closed_stream(words: str):
    """Python has None in place of a stream that its caller closed."""
    command = f"{sys.executable} -m diffenergy {words}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
