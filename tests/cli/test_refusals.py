"""Whatever is wrong: exit 2 (3 where a limit cannot be met), nothing on stdout, nothing
written, one line on stderr that says what to do; with `--json` an object made of it."""

import json
import shlex
from pathlib import Path

import pytest

from diffenergy.cli.refusal import to_json
from diffenergy.hardware import gpu_toml, read_gpu
from diffenergy.keys import commands
from tests.service.builders import matrix, metrics, smi

from .conftest import GPT2

TRACE = Path("docs/examples/trace.json").resolve()
FLEET = Path("docs/examples/fleet/fleet.toml").resolve()
HELP = "--help` shows what is allowed."
ROWS = {
    # the parser
    "--unknown": f"; `diffenergy {HELP}",
    "gpu": f"No such command 'gpu'. Did you mean 'gpus'?; `diffenergy {HELP}",
    "estimate": f"Missing argument .. `diffenergy estimate {HELP}",
    "estimate gpt2 again": "(again)",
    "estimate gpt2 --batch": f"'--batch' requires .. `diffenergy estimate {HELP}",
    "estimate gpt2 --bach 2": "--bach",
    "fit x.csv": f"'--out' .. `diffenergy fit {HELP}",
    "plan gpt2 --tp 2 --global-batch 8 --num-gpus 8": "`--plan tp=N`",
    "gpus hide": "`gpus` is followed by 'hide'; allowed is `gpus show NAME`.",
    "gpus show": "`gpus show` lacks a name; `diffenergy gpus` lists those known.",
    "models show": "`models show` lacks a name",
    "gpus --toml": "`--toml`",
    "help nothing": "`COMMAND` is 'nothing'",
    "help gpus --skill": "`COMMAND`",
    # a flag given twice drops nothing
    "estimate gpt2 --gpu=l4 --gpu l4": "`--gpu` is given twice; give it once.",
    "plan gpt2 --stage-clocks --plan pp=2 --plan dp=2": "`--plan` is given twice",
    "estimate gpt2 --set num_sms=10 --set num_sms=11": "`--set num_sms` is given twice",
    # numbers as people write them
    **{f"estimate gpt2 --batch '{x}'": f"`--batch` is '{x.strip()}"
       for x in (" ", "1;2", "0x10", "1e3", "1_000", "1e999", "9" * 30)},
    "estimate gpt2 --batch 1,": "`--batch` is ''",
    "estimate gpt2 --batch 8:1:2": "`--batch` is '8:1:2', a range of 0 values",
    "estimate gpt2 --batch 1:8": "give a list or FROM:TO:STEP",
    "estimate gpt2 --batch 1,024": "write a thousand as 1000, a list as 1,10",
    "estimate gpt2 --set temperature=40": "GPU is called `temperature`; nearest: ",
    "estimate gpt2 --sm-clock 5MHz": "`--sm-clock` is 5 MHz, not the clock of a GPU",
    "estimate gpt2 --sm-clock 900,": "`--sm-clock` is ''; allowed is a finite number",
    "estimate gpt2 --sm-clock 99999": "`--sm-clock` is 99999 MHz",
    "estimate gpt2 --sm-clock 900,1.2Gb/s": "'1.2Gb/s', which reads as bits",
    "estimate gpt2 --mem-clock '9 furlong'": "'furlong' is no unit of a clock",
    "estimate gpt2 --power-limit 350000mW,1GHz": "'1GHz', a clock; give a power in W",
    "estimate gpt2 --temperature 333K": "'K' is no unit of a temperature",
    "estimate gpt2 --set =3": "`--set`",
    "estimate gpt2 --set num_sms=10W": "give the number (count) without a unit",
    "estimate gpt2 --set dram_bandwidth=1e30": "allowed are 1e+10 to 1e+17 (B/s).",
    "estimate gpt2 --set dram_bandwidth=3350": "looks like GB/s .. 3.35e+12",
    "estimate gpt2 --sm-clock 1.41": "if that is GHz, give 1410",
    "estimate gpt2 --sm-clock 1.41e9": "if that is Hz, give 1410",
    "estimate gpt2 --power-limit 150": "is 150 W; h100-sxm allows 200 to 700 W.",
    "estimate gpt2 --power-limit 300000": "200 to 700 W .. if that is mW, give 300",
    "estimate gpt2 --temperature 333.15": "if that is K, give 60",
    "estimate gpt2 --input-len 9999": "`--input-len` + `--output-len` is 10127",
    "estimate gpt2 --phase decode --input-len 1025": "`--input-len` is 1025, .. input.",
    # files
    "estimate gpt5": "There is no model or file 'gpt5'; near are",
    "estimate no/such/config.json": "no/such/config.json",
    "evaluate no-such-file.csv": "no-such-file.csv",
    f"evaluate {TRACE} --plot a.svg": "`--plot` draws charts .. has none; leave it out",
    "sweep none.toml --out x.csv": "there is no such file",
    "fleet none.toml": "there is no such file",
    f"fleet {FLEET} --carbon -5": "`--carbon` is -5",
    "estimate gpt2 --out estimate.txt": "`--out` is 'estimate.txt'; allowed are names",
    "estimate gpt2 --out no/such/folder/a.json": "there is no folder 'no/such/folder'",
    "estimate gpt2 --out folder.json": "`--out` is 'folder.json', a folder",
    "estimate gpt2 --out a.json --trace ./a.json": "`--trace` .. give each a file",
    "estimate gpt2 --trace trace.txt": "`--trace` is 'trace.txt'; allowed are names",
    "estimate gpt2 --trace /trace.json/": "`--trace`",
    "estimate gpt2 --trace a.json --sm-clock 900,1000": "`--trace`",
    "estimate gpt2 --batch 1,2 --out a.jsonl": "`--out` is 'a.jsonl'; allowed are",
    "estimate one.jsonl --out one.jsonl": "input",
    "report gpt2 --versus model.html --out model.html": "input",
    "codesign one.jsonl --gpu a10.toml --vary num_sms --out a10.toml": "overwritten",
    "models show gpt2 --out model.csv": "`--out` is 'model.csv'; allowed are names",
    "plan gpt2 --num-gpus 8 --global-batch 8 --out x.csv": ".json",
    "plan gpt2 --stage-clocks --plan pp=2 --out clocks.txt": "clocks.txt",
    **{f"{command} --plot {file}": reported
       for command in ("estimate gpt2 --corrections given.png", "evaluate given.png",
                       "codesign gpt2 --vary num_sms --corrections given.png",
                       "dvfs gpt2 --corrections given.png")
       for file, reported in (("x=a.pdf", "allowed are names ending in .png, .svg"),
                          ("no/a.png", "there is no folder"),
                          ("given.png", "is an input of this run"))},
    # what does not go together
    **{f"estimate one.jsonl {x}": f"`{x.split()[0]}` .. one.jsonl"
       for x in ("--batch 2", "--phase prefill", "--kv-dtype fp8")},
    "estimate gpt2 --batch 1,2 --detail": "several settings",
    "estimate gpt2 --sensitivity --batch 1,8": "`--sensitivity` is given with several",
    "estimate gpt2 --phase prefill --tokens 1e12": "`--tokens`",
    "estimate qwen3-0.6b --phase prefill --images 1": "qwen3-0.6b reads no images",
    "report gpt2": "`--out` is missing; name the page",
    "report gpt2 --out a.pdf": "allowed are names ending in .html.",
    "report gpt2 --out a.html --sm-clock 900,1000": "takes no lists",
    "report gpt2 --out a.html --versus h1000": "`--versus` .. h1000",
    "report gpt2 --out a.html --slo-tpot 30ms": "no requests come",
    "report gpt2 --out a.html --rate 8 --phase train": "neither trains",
    "report gpt2 --out a.html --rate 8 --concurrency 8": "one way",
    "dvfs": "`MODEL` is missing",
    "dvfs gpt2 --solver exact --starts 3": "`--starts` is given without `--solver`",
    "plan gpt2 --num-gpus 8": "`--global-batch` is missing",
    "plan gpt2 --num-gpus 8 --max-memory 0": "'0'; allowed is a number above 0 (GB).",
    "plan gpt2 --num-gpus 8 --global-batch 8 --granularity stage": "--stage-clocks",
    "plan gpt2 --num-gpus 8 --global-batch 8 --sm-clock 900,1200": "list",
    "plan gpt2 --stage-clocks --plan pp=2 --straggler 1": "STAGE=PERCENT",
    "plan gpt2 --stage-clocks --plan pp=2 --power-limit 200,300": "give one",
    "sweep spec.toml --out out.csv --ray head": "`--ray` is 'head'",
    "collective verify": "lacks a file",
    "collective verify a.json --chunks 2": "no option of verify",
    "collective dgx1 a.json --size 1GB": "collective verify FILE",
    **{f"collective dgx1 --size 1GB {flag}": reported for flag, reported in {
       "--epoch never": "`--epoch` is 'never'; allowed are fastest",
       "--gap 1.5": "`--gap` is '1.5'; allowed is a share from 0 to 1",
       "--tenants 0-3;3-1": "is '0-3;3-1'; allowed are GPUs and ranges",
       "--tenants 0-999999": "has 0-999999, which is too many GPUs"}.items()},
    "codesign --vary num_sms": "MODEL is missing",
    "codesign gpt2 --vary num_sms=100": "give num_sms=LOW:HIGH",
    "codesign gpt2 --vary num_sms,,tdp": "is 'num_sms,,tdp'; give names, such as",
    "codesign gpt2 --vary tiles=1:2": "`--vary` is 'tiles=1:2'; tiles take no bounds",
    "codesign gpt2 --vary num_sms,memory=HBM4,Q7,tdp": "`memory` is 'Q7'",
    "codesign gpt2 --vary num_sms --weight 2": "there is one workload",
    "codesign --workload gpt2 --vary num_sms --weight 1 --weight 2": "2 times for 1",
    "codesign --workload gpt2 --vary num_sms --batch 2": "`--batch` is given without",
    "codesign --workload 'gpt2 --gpu a10' --vary num_sms": "`--gpu` goes behind",
    "codesign gpt2 --workload 'gpt2 --phase x' --vary num_sms": "`--phase` is 'x'",
    "codesign gpt2 --vary num_sms --tune-tiles": "given beside `--tune-tiles`",
    "codesign gpt2 --tune-tiles --objective edp": "time and energy",
    **{f"serve qwen3-0.6b --rate 8 {x}": reported for x, reported in {
       "--concurrency 8": "`--rate` is given beside",
       "--input-len 999999": "positions; shorten",
       "--input-len lognormal:30000:3": "one in 16 has 236803",
       "--tp 2 --num-gpus 3": "`--num-gpus` is 3",
       "--optimize energy": "no limit is given",
       "--prefill tp=2": "`--prefill` is given without `--apart`",
       "--skip-too-long": "`--skip-too-long` is given without",
       "--apart auto": "`--apart` is auto without `--search`",
       "--apart=all": "`--apart` is 'all'; allowed are no, auto",
       "--search energy --apart --prefill tp=2": "`--search` is given beside",
       "--apart --trace x": "`--apart` is given beside"}.items()},
    "serve bert-base --rate 8": "makes no tokens",
    "serve x.jsonl --rate 8": "listing",
    # logs of a service
    "import p.csv p.csv": "2 files are given",
    "import p.csv --tp 2": "`--tp` is given",
    "import m.json --passes 2": "`--passes` is given",
    "fit p.csv --tp 2 --out x.json": "no file is a log of a service",
    "evaluate p.csv m.json": "add `--service`",
    "evaluate runs.csv --tp 2": "`--tp` is given without `--service`",
    "evaluate --service p.csv m.json --by gpu --model gpt2": "`--by` is given beside",
    # quoted flags
    "compare gpt2": "Missing argument",
    "compare gpt2 --gpu l4": f"--gpu .. `diffenergy compare {HELP}",
    "compare 'gpt2 --batch' gpt2": f"A: .. '--batch' .. `diffenergy estimate {HELP}",
    "compare \"gpt2 'open\" gpt2": "A: .. cannot be split into flags",
    "compare 'gpt2 --sm-clock 900,1000' gpt2": "A: `compare` takes no lists",
    "compare gpt2 'gpt2 --dtype fp8 --dtype bf16'": "B: `--dtype` is given twice",
    "compare gpt2 gpt2 'gpt2 --gpu a11x'": "C: `--gpu` is 'a11x'",
    "compare 'gpt2 --json' gpt2": "A: `--json` goes behind `compare`",
    **{f"compare 'gpt2 {x}' gpt2": f"A: `{x.split()[0]}` is of `estimate` alone; leave"
       for x in ("--detail", "--sensitivity", "--plot a.png", "--trace a.json")},
    "codesign --workload 'gpt2 --plot a.png' --vary num_sms": "goes behind `codesign`",
    "compare no-such-file.json gpt2": "A: 'no-such-file.json' cannot be read",
    **{f"compare {i}.json gpt2": f"A: .. {i}.json" for i in range(7)},
}  # fmt: skip
"""Command lines, and parts of the sentence in their order."""
BROKEN = (
    "{", "[]", "{}", '{"points": []}', '{"time_s": 0}', '{"time_s": true}',
    '{"schema": 2, "time_s": 1, "energy_j": 1, "avg_power_w": 1}',
)  # fmt: skip
"""JSON that is no estimate: 0.json, 1.json, ..."""
LISTING = {"name": "one", "kernels": [{"op": "softmax", "rows": 8, "cols": 8}]}
GPU, POWER, SERVED = gpu_toml(read_gpu("a10")), smi(), matrix(metrics())
RUNS = "gpu,op,rows,cols,dtype,time_us\na10,softmax,1024,1024,fp16,10\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The files that the lines name, in the folder where they run."""
    texts = {f"{i}.json": text for i, text in enumerate(BROKEN)}
    texts |= {
        "one.jsonl": json.dumps(LISTING).replace("}]", ', "dtype": "fp32"}]'),
        "given.png": RUNS,
        "model.html": "mine",
        "spec.toml": '[axes]\nbatch = [1]\n[fixed]\nmodel = "gpt2"',
        "a10.toml": GPU,
        "p.csv": POWER,
        "m.json": SERVED,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "folder.json").mkdir()
    monkeypatch.chdir(tmp_path)
    return texts


@pytest.mark.parametrize("line", ROWS)
def test_one_line_says_what_to_do(run, tmp_path: Path, files, line: str):
    words = shlex.split(line)
    outcome = run(*words)
    assert (outcome.code, outcome.out) == (2, ""), outcome
    (reported,) = outcome.err.splitlines()
    assert reported.startswith("diffenergy: ") and "fault of diffenergy" not in reported
    rest = reported
    for part in ROWS[line].split(" .. "):
        assert part in rest, reported
        rest = rest.partition(part)[2]
    if words[0] in commands() and "--json" not in words:
        program = run(words[0], "--json", *words[1:])
        assert (program.code, program.out) == (2, "")
        error = json.loads(program.err)["error"]
        assert f"diffenergy: {error['message']}" == reported
        assert error["kind"] == "bad_input"
    assert {x.name for x in tmp_path.iterdir()} == {*files, "folder.json"}
    assert all((tmp_path / name).read_text() == text for name, text in files.items())


HELPED = "`diffenergy estimate --help` shows what is allowed."
SENTENCES = [
    # ours: field, value, remedy
    ("`--batch` is '0'; allowed is a whole number from 1 to 9.", "--batch", "0",
     "allowed is a whole number from 1 to 9."),
    ("`--input-len` + `--output-len` is 1025, but gpt2 has 1024; shorten it.",
     "--input-len", "1025", "shorten it."),
    ("`--plan` has ep=2, but gpt2 has no experts; leave ep out.", "--plan", "ep=2",
     "leave ep out."),
    ("`--set num_sms` is given twice; give it once.", "--set num_sms", None,
     "give it once."),
    ("`accept` is missing: give the share, 0 to 1.", "accept", None,
     "give the share, 0 to 1."),
    ("There is no model or file 'gpt5'; near are gpt2, gpt3-xl.", None, "gpt5",
     "near are gpt2, gpt3-xl."),
    ("A: 'gpt2 'open' cannot be split into flags (No closing quotation).", None,
     "gpt2 'open", None),
    ("one.csv, line 3: `time_s` is -1 s; allowed are times above 0.", "time_s", "-1 s",
     "allowed are times above 0."),
    # infeasible
    ("`max_power` is 100 W, which no plan of 8 GPUs keeps; the least is 2133 W.",
     "max_power", "100 W", "the least is 2133 W."),
    ("`rate` is 90 requests a second, but the server sustains less than 4; give less.",
     "rate", "90", "give less."),
    # the parser's
    (f"No such option: --bach (Possible options: --batch); {HELPED}", "--bach", None,
     f"(Possible options: --batch); {HELPED}"),
    ("Missing argument 'FLEET.toml'; see `--help`.", "FLEET.toml", None,
     "see `--help`."),
    ("Invalid value for '--max-steps': 'x' is not a valid integer; see `--help`.",
     "--max-steps", "x", "see `--help`."),
    ("Got unexpected extra argument(s) (again); see `--help`.", None, "again",
     "see `--help`."),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "field", "value", "remedy"), SENTENCES)
def test_a_sentence_has_field_value_and_remedy(sentence, field, value, remedy):
    parts = {"field": field, "value": value, "remedy": remedy}
    wanted = {"kind": "infeasible", "message": sentence, **parts}
    assert to_json(sentence, 3) == {"error": wanted}


def test_a_fault_and_an_interruption_name_no_field():
    for status, kind in ((1, "fault"), (130, "interrupted")):
        error = to_json("this is a fault (KeyError: `x` is 'y'; z)", status)["error"]
        assert error["kind"] == kind
        assert error["field"] is error["value"] is error["remedy"] is None


def test_infeasible_as_json(run):
    words = ("estimate", "llama-3.1-70b", "--gpu", "l4", "--require-fit", "--json")
    outcome = run(*words)
    assert (outcome.code, outcome.out) == (3, "")
    error = json.loads(outcome.err.splitlines()[-1])["error"]
    assert (error["kind"], error["field"]) == ("infeasible", "--require-fit")
    assert "weights 141.1 GB" in error["message"]  # 70.55e9 of 2 B


def test_the_side_that_cannot_be_met_is_named(run):
    line = " ".join(GPT2[1:])  # compiled already
    outcome = run("compare", line, f"{line} --power-limit 50 --set power_limit_min=50")
    assert (outcome.code, outcome.out) == (3, "")
    assert outcome.err.startswith("diffenergy: B: `--power-limit`")
    assert outcome.err.count("\n") == 1
    least = float(outcome.err.split("draws ")[1].split(" W")[0])
    assert 50 < least < 100  # idle is 60 W at the lowest clock


def test_rows_that_nothing_predicts_write_no_file(run, tmp_path: Path):
    """The GPU is not known; a chart that is not there is found before `--out` too."""
    runs, out = tmp_path / "runs.csv", tmp_path / "rows.csv"
    runs.write_text(RUNS.replace("a10,", "nonesuch,"))
    outcome = run("evaluate", runs, "--out", out, "--plot", tmp_path / "a.png")
    assert outcome.code == 2 and not out.exists()
    runs.write_text(RUNS)
    outcome = run("evaluate", runs, "--out", out, "--plot", f"b={tmp_path}/b.svg")
    assert outcome.code == 2 and not out.exists()
    assert outcome.err == "diffenergy: `--plot` is 'b'; allowed are accuracy.\n"
