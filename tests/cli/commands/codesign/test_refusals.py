"""What a search of designs refuses: one line, from the command and from Python."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diffenergy.codesign import Effort, Part, search
from diffenergy.codesign._request import parts_of
from diffenergy.estimator import prepare

from ...conftest import Outcome

Run = Callable[..., Outcome]
VARY = ("--vary", "num_sms")


@pytest.mark.parametrize(
    "words, said",
    [
        (VARY, "MODEL is missing"),
        (("gpt2", "--vary", "tiles,tiles"), "`tiles` is varied twice"),
        (("gpt2", "--vary", "num_sms=100"), "give num_sms=LOW:HIGH"),
        (("gpt2", "--vary", "power_cap=1000:2000"), "allows 200 to 700 W"),
        (("gpt2", "--vary", "tiles=16:128"), "tiles take no bounds"),
        (("gpt2", "--vary", "sm_clock_max=1e8:2e8"), "a GPU file refuses 1e+08"),
        (("gpt2", "--vary", "sm_clock", "--sm-clock", "900"), "`sm_clock` is varied"),
        (("gpt2", "--vary", "sm_clock,sm_clock_max"), "`sm_clock_max` is varied"),
        (("gpt2", *VARY, "--objective", "cost"), "give `--price`"),
        (("gpt2", *VARY, "--max-cost", "5"), "give `--price`"),
        (("gpt2", *VARY, "--price", "5"), "but nothing costs"),
        (("gpt2", *VARY, "--weight", "2"), "there is one workload"),
        (
            ("--workload", "gpt2", *VARY, "--weight", "1", "--weight", "2"),
            "given 2 times for 1",
        ),
        (("--workload", "gpt2", *VARY, "--batch", "2"), "`--batch` is given without"),
        (("--workload", "gpt2 --gpu a10", *VARY), "`--gpu` goes behind `codesign`"),
        (("gpt2", "--workload", "gpt5", *VARY), "gpt5"),
        (("gpt2", "--workload", "gpt2 --phase x", *VARY), "`--phase` is 'x'"),
        (("gpt2", *VARY, "--starts", "1000"), "`--starts` is 1000"),
        (("gpt2", *VARY, "--tune-tiles"), "`--vary` is given beside `--tune-tiles`"),
        (("gpt2", "--tune-tiles", "--objective", "edp"), "time and energy"),
    ],
)
def test_bad_input_is_one_line(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    said: str,
):
    monkeypatch.chdir(tmp_path)
    done = run("codesign", *words)
    assert done.code == 2 and done.out == "", done
    assert said in done.err and done.err.count("\n") == 1
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"vary": {"tiles": (1, 2)}}, "tiles take no bounds"),
        ({"limits": {"speed": 1}}, "`limits` names 'speed'; allowed are time, power"),
        ({"goals": "cost"}, "`goals` asks for a cost.*give `price`"),
        ({"limits": {"cost": 5}}, r"`limits\['cost'\]` asks for a cost"),
        ({"vary": "power_cap", "power_limit": 300}, "`power_cap` is varied"),
        ({"bacth": 2}, "`bacth` is no argument"),
    ],
)
def test_python_refuses_in_one_sentence(given: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=said):
        search("gpt2", **{"vary": "num_sms", **given})


def test_python_takes_names_tasks_and_parts_alone():
    with pytest.raises(TypeError, match="`work` is 3; allowed are a model name"):
        parts_of(3)
    task = prepare("gpt2", phase="decode")
    with pytest.raises(TypeError, match="`batch` is given beside a Task"):
        search(task, vary="num_sms", batch=2)
    with pytest.raises(ValueError, match="`weight` is 0; allowed is a number above 0"):
        Part("gpt2", 0)
    mix = [Part("gpt2"), Part("gpt2", request={"power_limit": 300})]
    with pytest.raises(ValueError, match="gpt2: `power_limit` stands in the request"):
        search(mix, vary="num_sms")
    with pytest.raises(ValueError, match="`starts` is 1000; allowed are 1 to 256"):
        Effort(starts=1000)
