"""The frame of all commands: help, version, exit status, speed of the start."""

import json
import os
import subprocess
import sys

import pytest

from diffenergy import __version__
from diffenergy.cli import app, cmd_estimate

SHELL = "import sys; from diffenergy.cli import main; sys.exit(main(sys.argv[1:]))"
LAZY = """
import sys
from diffenergy.cli import main
assert main(["--help"]) == 0
assert main(["estimate", "--help"]) == 0
assert main(["--version"]) == 0
assert main(["estimate", "gpt2", "--batch", "0"]) == 2
print(sorted({"jax", "pandas", "numpy", "scipy"} & set(sys.modules)))
"""


def shell(*args, **kwargs):
    command = [sys.executable, "-c", SHELL, *args]
    return subprocess.run(command, capture_output=True, text=True, **kwargs)


def commands():
    """(words, command) of every command and subcommand."""
    found = []
    for name, command in app.build().commands.items():
        found.append(((name,), command))
        for sub, subcommand in getattr(command, "commands", {}).items():
            found.append(((name, sub), subcommand))
    return found


def test_help_and_bad_numbers_load_neither_jax_nor_pandas():
    done = subprocess.run(
        [sys.executable, "-c", LAZY], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("words", [words for words, _ in commands()], ids=" ".join)
def test_every_command_has_two_examples(run, words):
    outcome = run(*words, "--help")
    assert outcome.code == 0 and outcome.err == ""
    examples = outcome.out.split("Examples:")[1].splitlines()
    assert len([x for x in examples if x.startswith("    diffenergy ")]) == 2
    assert all(len(line) <= 80 for line in outcome.out.splitlines())
    assert "╭" not in outcome.out


def test_version_and_bare_call(run):
    assert run("--version").out == f"diffenergy {__version__}\n"
    assert "Commands:" in run().out


def test_interrupt(run, monkeypatch):
    def interrupted(flags):
        raise KeyboardInterrupt

    monkeypatch.setattr(cmd_estimate, "prepare", interrupted)
    outcome = run("estimate", "gpt2")
    assert (outcome.code, outcome.out) == (130, "")
    assert outcome.err == "diffenergy: interrupted\n"


def test_a_fault_of_the_program_is_one_line_too(run, monkeypatch):
    def broken(flags):
        raise KeyError("two\nlines")

    monkeypatch.delenv("DIFFENERGY_DEBUG", raising=False)
    monkeypatch.setattr(cmd_estimate, "prepare", broken)
    outcome = run("estimate", "gpt2")
    assert outcome.code == 1
    assert len(outcome.err.splitlines()) == 1 and "KeyError" in outcome.err


def test_a_reader_that_stops_reading_is_no_error():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", SHELL, "--help"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_process_of_its_own_keeps_its_compilations(tmp_path):
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    args = ("estimate", "gpt2", "--phase", "decode", "--json")
    done = shell(*args, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["phase"] == "decode"
    assert list((tmp_path / "diffenergy" / "jax").iterdir())
