"""`diffenergy help`: the help of a command, and the skill file."""

import re

from diffenergy.cli import app


def test_help_is_that_of_the_command(run):
    assert run("help", "estimate").out == run("estimate", "--help").out


def test_the_skill_file_names_every_command_and_flag(run):
    text: str = run("help", "--skill").out
    assert text.startswith("---\nname: diffenergy\n")
    assert re.findall(r"^- `diffenergy (\w+)", text, re.MULTILINE) == app.names()
    for word in ("--sm-clock", "3 infeasible", "--schema", "## Units"):
        assert word in text
    assert text.count("```sh") == 3
