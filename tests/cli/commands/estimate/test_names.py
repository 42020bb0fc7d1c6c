"""Names as people write them, and what the answer says of them."""

import pytest

import diffenergy as de

WORDS = ("--input-len", "64", "--output-len", "5", "--batch", "2")


@pytest.mark.slow
def test_family_hub_name_and_type_are_assumed(run, gpt2):
    """The same answer as by the bundled names, which stand under *assumed*."""
    line = ("estimate", "openai-community/GPT2", "--gpu", "A100", "--dtype", "BF16")
    found = run(*line, *WORDS, "--json").json
    assert (found["model"], found["gpu"], found["dtype"]) == (
        "gpt2", "a100-sxm-80gb", "bf16",
    )  # fmt: skip
    assert found["energy_j"] == gpt2["energy_j"]
    taken = {name: found["assumed"][name] for name in ("gpu", "model")}
    assert taken == {"gpu": "a100-sxm-80gb", "model": "gpt2"}
    assert "gpu" not in gpt2["assumed"] and "model" not in gpt2["assumed"]
    assert "assumed: gpu a100-sxm-80gb; model gpt2; " in run(*line, *WORDS).out
    request = {"input_len": 64, "output_len": 5, "batch": 2, "dtype": "BF16"}
    python = de.estimate("openai-community/GPT2", "A100", **request).summary
    assert python["assumed"] == found["assumed"]


@pytest.mark.slow
def test_families_in_a_list_are_assumed(run):
    line = ("estimate", "gpt2", "--gpu", "a100,h100-sxm", *WORDS)
    found = run(*line, "--json").json
    assert [x["gpu"] for x in found["points"]] == ["a100-sxm-80gb", "h100-sxm"]
    assert found["assumed"]["gpu"] == "a100-sxm-80gb"


@pytest.mark.parametrize("command", ["estimate", "serve", "dvfs", "plan", "report"])
def test_help_names_every_type_that_is_taken(run, command):
    """The types are those of the refusal, and bf16 is not the default of a checkpoint
    in fp8."""
    refused = run("estimate", "gpt2", "--dtype", "fp7").err
    allowed = refused.split("allowed are ")[1].rstrip(".\n").split(", ")
    text = " ".join(run(command, "--help").out.split())
    if "as in `estimate`" not in text:
        assert f"{', '.join(allowed[:-1])} or {allowed[-1]} [as the check" in text
