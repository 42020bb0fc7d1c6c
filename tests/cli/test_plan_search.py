"""`diffenergy plan` without `--stage-clocks`."""

import json

import pytest


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--num-gpus 8", "`--global-batch` is missing"),
        ("--num-gpus 8 --global-batch 8 --tp 2", "--plan tp=N"),
        ("--num-gpus 8 --global-batch 8 --granularity stage", "--stage-clocks"),
        ("--num-gpus 8 --global-batch 8 --sm-clock 900,1200", "list"),
        ("--num-gpus 8 --global-batch 8 --out x.csv", ".json"),
    ],
)
def test_bad_input(run, flags: str, words: str):
    code, out, err = run("plan", "gpt2", *flags.split())
    assert code == 2 and not out
    assert words in err and len(err.strip().splitlines()) == 1


@pytest.mark.slow
def test_json_of_the_command(run):
    words = "plan gpt2 --num-gpus 4,8 --global-batch 32 --objective energy --json"
    code, out, _ = run(*words.split())
    s = json.loads(out)
    assert code == 0 and s["objective"] == "energy"
    assert s["num_gpus"] in (4, 8)
    assert {"best", "plan", "considered", "frontier"} <= s.keys()
    least = min(x["energy_j"] for x in s["frontier"])
    assert least == pytest.approx(s["best"]["energy_j"])
