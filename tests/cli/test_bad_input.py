"""Whatever is wrong: exit 2, nothing on stdout, one line on stderr."""

import json

import pytest

ESTIMATE = ("estimate", "gpt2")
SPELLINGS = (" ", "1;2", "0x10", "1e3", "1,", "1_000", "1e999", "9" * 30)
CLOCKS = ("900Mhz/s", "5MHz", "900,", "900,x", "1", "99999")
CASES = [
    *((*ESTIMATE, "--batch", x) for x in SPELLINGS),
    *((*ESTIMATE, "--sm-clock", x) for x in CLOCKS),
    (*ESTIMATE, "--set", "=3"),
    (*ESTIMATE, "--set", "num_sms=10", "--set", "num_sms=11"),
    (*ESTIMATE, "--sm-clock", "900,1000", "--detail"),
    (*ESTIMATE, "--out", "estimate.txt"),
    (*ESTIMATE, "--out", "no/such/folder/estimate.json"),
    (*ESTIMATE, "--unknown"),
    (*ESTIMATE, "--batch"),
    (*ESTIMATE, "again"),
    ("estimate",),
    ("estimate", "gpt5"),
    ("estimate", "no-such-file.jsonl"),
    ("estimate", "no/such/config.json"),
    ("estimates", "gpt2"),
    ("--unknown",),
    ("gpus", "show"),
    ("gpus", "show", "h100-sxm", "--toml", "--json"),
    ("gpus", "--toml"),
    ("gpus", "hide"),
    ("models", "show", "gpt2", "--out", "model.csv"),
    ("models", "show"),
    ("compare", "gpt2"),
    ("compare", "gpt2 --batch", "gpt2"),
    ("compare", "gpt2 'open", "gpt2"),
    ("compare", "gpt2 --sm-clock 900,1000", "gpt2"),
    ("compare", "gpt2 --json", "gpt2"),
    ("compare", "no-such-file.json", "gpt2"),
    ("evaluate",),
    ("evaluate", "no-such-file.csv"),
]


def refused(outcome, *words):
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    (line,) = outcome.err.splitlines()
    if line.startswith("{"):  # --json
        line = f"diffenergy: {json.loads(line)['error']['message']}"
    assert line.startswith("diffenergy: ") and "fault of diffenergy" not in line
    assert "Traceback" not in line
    for word in words:
        assert word in line


@pytest.mark.parametrize("args", CASES, ids=" ".join)
def test_one_line_and_exit_2(run, tmp_path, monkeypatch, args):
    monkeypatch.chdir(tmp_path)
    refused(run(*args))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "args, words",
    [
        (("--sm-clock", "700W"), ("'700W', a power; give a clock in Hz, kHz, MHz",)),
        (("--sm-clock", "900,1.2Gb/s"), ("'1.2Gb/s', which reads as bits",)),
        (("--mem-clock", "9 furlong"), ("'furlong' is no unit of a clock",)),
        (("--power-limit", "350000mW,1GHz"), ("'1GHz', a clock; give a power in W",)),
        (("--power-limit", "1mw"), ("'mw' is no unit of a power",)),  # m or M?
        (("--temperature", "333K"), ("'K' is no unit of a temperature",)),
        (("--set", "num_sms=10W"), ("without a unit", "count")),
        (("--set", "dram_bandwidth=3.35GHz"), ("'3.35GHz', a clock; give a rate",)),
        (("--set", "dram_bandwidth=3350"), ("looks like GB/s", "3.35e+12")),
        (("--sm-clock", "1.41"), ("if that is GHz, give 1410",)),
        (("--sm-clock", "1.41e9"), ("if that is Hz, give 1410",)),
        (("--sm-clock", "1410000"), ("if that is kHz, give 1410",)),
        (("--power-limit", "150"), ("is 150 W; h100-sxm allows 200 to 700 W.",)),
        (("--power-limit", "300000"), ("200 to 700 W", "if that is mW, give 300")),
        (("--temperature", "333.15"), ("if that is K, give 60",)),
        (("--input-len", "9999"), ("`--input-len` + `--output-len` is 10127",)),
    ],
)
def test_the_line_says_what_to_do(run, args, words):
    refused(run(*ESTIMATE, *args), *words)


@pytest.mark.parametrize(
    "flag, value",
    [
        ("--batch", "2"),
        ("--phase", "prefill"),
        ("--kv-dtype", "fp8"),
    ],
)
def test_what_a_listing_decides_is_no_flag(run, tmp_path, flag, value):
    file = tmp_path / "one.jsonl"
    row = dict(op="softmax", rows=8, cols=8, dtype="fp32")
    file.write_text(json.dumps({"name": "one", "kernels": [row]}))
    refused(run("estimate", file, flag, value), f"`{flag}`", "one.jsonl")


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        '{"points": []}',
        '{"time_s": 0}',
        '{"time_s": true}',
        '{"schema": 2, "time_s": 1, "energy_j": 1, "avg_power_w": 1}',
    ],  # fmt: skip
)
def test_broken_summaries(run, tmp_path, content):
    file = tmp_path / "a.json"
    file.write_text(content)
    refused(run("compare", file, file), "A:", "a.json")


def test_an_input_is_never_overwritten(run, tmp_path):
    row = dict(op="softmax", rows=8, cols=8, dtype="fp32")
    file = tmp_path / "one.jsonl"
    text = json.dumps({"name": "one", "kernels": [row]})
    file.write_text(text)
    refused(run("estimate", file, "--out", file), "input")
    assert file.read_text() == text


@pytest.mark.parametrize(
    "args, flag",
    [
        (("estimate", "gpt2", "--gpu", "l4", "--gpu", "a10"), "--gpu"),
        (("estimate", "gpt2", "--gpu=l4", "--gpu", "l4"), "--gpu"),
        (("estimate", "gpt2", "--batch", "1", "--json", "--batch", "2"), "--batch"),
        (("compare", "gpt2", "gpt2 --dtype fp8 --dtype bf16"), "--dtype"),
        (("report", "gpt2", "--out", "a.html", "--out", "b.html"), "--out"),
        (("dvfs", "gpt2", "--objective", "edp", "--objective", "time"), "--objective"),
    ],
)
def test_a_flag_given_twice_drops_nothing(run, args, flag):
    refused(run(*args), f"`{flag}` is given twice; give it once.")


@pytest.mark.slow
def test_repeatable_flags_and_switches_may_come_twice(run):
    sets = ("--set", "num_sms=60", "--set", "l2_capacity=4e7")
    twice = ("--json", "--json", "--phase", "prefill", "--input-len", "64")
    assert run("estimate", "gpt2", *sets, *twice).json["gpu"]
