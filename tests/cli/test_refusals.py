"""With `--json` a refusal is one JSON object on stderr, made of the sentence that is
printed without it."""

import json

import pytest

from diffenergy.cli.refusal import to_json

from .test_bad_input import CASES, refused

SENTENCES = {
    # ours: field, value, remedy
    "`--batch` is '0'; allowed is a whole number from 1 to 9.": (
        "--batch", "0", "allowed is a whole number from 1 to 9."
    ),
    "`--batch` is '1;2'; allowed is a whole number.": (
        "--batch", "1;2", "allowed is a whole number."
    ),
    "`--power-limit` is 9999 W; l4 allows 40 to 72 W; if that is mW, give 10.": (
        "--power-limit", "9999 W", "l4 allows 40 to 72 W; if that is mW, give 10."
    ),
    "`--temperature` is 333; allowed are 0 to 95 C, above which boards throttle.": (
        "--temperature", "333", "allowed are 0 to 95 C, above which boards throttle."
    ),
    "`--sm-clock` is 1.41e+09 MHz, not the clock of a GPU; if that is Hz, give 1410.": (
        "--sm-clock", "1.41e+09 MHz", "if that is Hz, give 1410."
    ),
    "`--output-len` is 4, but the phase prefill generates nothing; leave it out.": (
        "--output-len", "4", "leave it out."
    ),
    "`--input-len` + `--output-len` is 1025, but gpt2 has 1024; shorten it.": (
        "--input-len", "1025", "shorten it."
    ),
    "`--plan` has ep=2, but gpt2 has no experts; leave ep out.": (
        "--plan", "ep=2", "leave ep out."
    ),
    "`--plan` has the unknown key 'np'; allowed are tp, pp.": (
        "--plan", "np", "allowed are tp, pp."
    ),
    "`--set num_sms` is given twice; give it once.": (
        "--set num_sms", None, "give it once."
    ),
    "`--size` is missing; give the output buffer of a GPU, such as 1GB.": (
        "--size", None, "give the output buffer of a GPU, such as 1GB."
    ),
    "`accept` is missing: give the share of drafted tokens, 0 to 1.": (
        "accept", None, "give the share of drafted tokens, 0 to 1."
    ),
    "MODEL is missing; name one, or give a measured `--table`.": (
        "MODEL", None, "name one, or give a measured `--table`."
    ),
    "There is no model or file 'gpt5'; near are gpt2, gpt3-xl.": (
        None, "gpt5", "near are gpt2, gpt3-xl."
    ),
    "A: 'gpt2 'open' cannot be split into flags (No closing quotation).": (
        None, "gpt2 'open", None
    ),
    "A: `--batch` is '0'; give more.": ("--batch", "0", "give more."),
    "one.csv, row 3: `time_s` is -1 s; allowed are times above 0.": (
        "time_s", "-1 s", "allowed are times above 0."
    ),
    "no-such-file.csv: no such file; check the path.": (None, None, "check the path."),
    # infeasible
    "`max_power` is 100 W, which no plan of 8 GPUs keeps; the least is 2133 W.": (
        "max_power", "100 W", "the least is 2133 W."
    ),
    "`max_slowdown`: no schedule keeps a slowdown of -9 %; the least is -2.1 %.": (
        "max_slowdown", "-9 %", "the least is -2.1 %."
    ),
    "`rate` is 90 requests a second, but the server sustains less than 4; give a lower "
    "one.": ("rate", "90", "give a lower one."),
    # the parser's
    "No such option: --bach (Possible options: --batch); `diffenergy estimate --help` "
    "shows what is allowed.": (
        "--bach",
        None,
        "(Possible options: --batch); `diffenergy estimate --help` shows what is "
        "allowed.",
    ),
    "No such command 'estimates'. Did you mean 'estimate'?; `diffenergy --help` shows "
    "what is allowed.": (
        None,
        "estimates",
        "Did you mean 'estimate'?; `diffenergy --help` shows what is allowed.",
    ),
    "Missing argument 'FLEET.toml'; see `--help`.": (
        "FLEET.toml", None, "see `--help`."
    ),
    "Missing option '--out'; see `--help`.": ("--out", None, "see `--help`."),
    "Option '--batch' requires an argument; see `--help`.": (
        "--batch", None, "see `--help`."
    ),
    "Invalid value for '--max-steps': 'x' is not a valid integer; see `--help`.": (
        "--max-steps", "x", "see `--help`."
    ),
    "Got unexpected extra argument(s) (again); see `--help`.": (
        None, "again", "see `--help`."
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_has_field_value_and_remedy(sentence):
    field, value, remedy = SENTENCES[sentence]
    assert to_json(sentence, 3) == {
        "error": {
            "kind": "infeasible",
            "field": field,
            "value": value,
            "message": sentence,
            "remedy": remedy,
        }
    }


def test_a_fault_and_an_interruption_name_no_field():
    for status, kind in ((1, "fault"), (130, "interrupted")):
        error = to_json("this is a fault (KeyError: `x` is 'y'; z)", status)["error"]
        assert error["kind"] == kind
        assert error["field"] is error["value"] is error["remedy"] is None


@pytest.mark.parametrize(
    "args", [x for x in CASES if "--json" not in x and "," not in x[-1]][::5]
)
def test_json_says_what_people_read(run, tmp_path, monkeypatch, args):
    monkeypatch.chdir(tmp_path)
    people, program = run(*args), run(args[0], "--json", *args[1:])
    refused(people)
    assert (program.code, program.out) == (2, "")
    (line,) = program.err.splitlines()
    error = json.loads(line)["error"]
    assert f"diffenergy: {error['message']}\n" == people.err
    assert error["kind"] == "bad_input"
    given = [x for x in args if x.startswith("--")]
    assert error["field"] is None or error["field"] in error["message"]
    if len(given) == 1 and f"`{given[0]}` is '" in error["message"]:
        assert (error["field"], error["value"]) == (given[0], args[-1].strip())


def test_infeasible_is_told_as_json(run):
    words = ("estimate", "llama-3.1-70b", "--gpu", "l4", "--require-fit", "--json")
    outcome = run(*words)
    assert (outcome.code, outcome.out) == (3, "")
    error = json.loads(outcome.err.splitlines()[-1])["error"]
    assert (error["kind"], error["field"]) == ("infeasible", "--require-fit")
    assert "weights 141.1 GB" in error["message"]  # 70.55e9 of 2 B
