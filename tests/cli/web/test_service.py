"""The HTTP service: what it answers is what the command prints, or its refusal."""

import contextlib
import importlib.util
import io
import json
import os
import re
import signal
import time
import tomllib
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from json_keys import check

import diffenergy
from diffenergy.cli import main
from diffenergy.cli.web.jobs import offered

from .conftest import Server, serving

GPU = "a100-sxm-80gb"
EXAMPLES = Path(__file__).parents[3] / "docs/examples"


def posted(*names: str) -> dict[str, str]:
    """Files of the examples, as a request has them."""
    return {Path(name).name: (EXAMPLES / name).read_text() for name in names}


def printed(words: list[str]) -> str:
    """What a command prints on stdout, else on stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        main([*words, "--json"])
    return out.getvalue() or err.getvalue().splitlines()[-1]


ASKED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "estimate": (
        {"model": "gpt2", "gpu": GPU, "batch": 8, "sm_clock": [900, "1.2GHz"]},
        ["gpt2", "--gpu", GPU, "--batch", "8", "--sm-clock", "900,1.2GHz"],
    ),
    "gpus": ({"action": "show", "name": "h100-sxm"}, ["show", "h100-sxm"]),
    "models": ({"action": "show", "name": "gpt2"}, ["show", "gpt2"]),
    "compare": (
        {"a": "gpt2 --gpu l40s", "b": "gpt2 --gpu a10 --batch 2"},
        ["gpt2 --gpu l40s", "gpt2 --gpu a10 --batch 2"],
    ),
    "plan": (
        {"model": "gpt2", "num_gpus": 4, "global_batch": 32},
        ["gpt2", "--num-gpus", "4", "--global-batch", "32"],
    ),
    "collective": (
        {"topology": "dgx-a100", "collective": "all_gather", "size": "1MB"},
        ["dgx-a100", "--collective", "all_gather", "--size", "1MB"],
    ),
    "dvfs": ({"model": "gpt2", "gpu": GPU}, ["gpt2", "--gpu", GPU]),
    "serve": (
        {"model": "gpt2", "gpu": GPU, "rate": 4},
        ["gpt2", "--gpu", GPU, "--rate", "4"],
    ),
    "import": (
        {"files": ["log.csv"], "posted": posted("log.csv")},
        [str(EXAMPLES / "log.csv")],
    ),
    "evaluate": (
        {"measurements": "gemm=gemm.csv", "gpu": "a10", "posted": posted("gemm.csv")},
        [f"gemm={EXAMPLES / 'gemm.csv'}", "--gpu", "a10"],
    ),
    "fleet": (
        {
            "fleet": "fleet.toml",
            "posted": posted(*(f"fleet/{x.name}" for x in EXAMPLES.glob("fleet/*"))),
        },
        [str(EXAMPLES / "fleet/fleet.toml")],
    ),
    "codesign": (
        {"model": "gpt2", "gpu": GPU, "vary": "dram_bandwidth=2.0TB/s:2.1TB/s"},
        ["gpt2", "--gpu", GPU, "--vary", "dram_bandwidth=2.0TB/s:2.1TB/s"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", ASKED)
def test_json_is_that_of_the_command(server: Server, command: str):
    fields, words = ASKED[command]
    status, text = server.post(f"/api/v1/{command}", fields)
    assert status == 200, text
    check(command, text)
    assert steady(json.loads(text)) == steady(json.loads(printed([command, *words])))


def steady(content: Any) -> Any:
    """JSON without seconds that a solver took, its numbers to 9 digits: the service
    compiles programs for many calls, which round otherwise."""
    if isinstance(content, float):
        return float(f"{content:.9g}")
    if isinstance(content, dict):
        taken = [x for x in content if "solve" in x or x in ("seconds", "wall_s")]
        return {x: steady(y) for x, y in content.items() if x not in taken}
    return [steady(x) for x in content] if isinstance(content, list) else content


@pytest.mark.parametrize(
    ("status", "fields", "words"),
    [
        (400, {"model": "gpt2", "batch": 0}, "gpt2 --batch 0"),
        (409, {"model": "llama-3.1-70b", "gpu": "l4", "require_fit": True},
         "llama-3.1-70b --gpu l4 --require-fit"),
    ],
)  # fmt: skip
def test_refusals_are_those_of_the_command(
    server: Server, status: int, fields: dict[str, Any], words: str
):
    refusal = json.loads(printed(["estimate", *words.split()]))
    assert server.ask("estimate", **fields) == (status, refusal)


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "word"),
    [
        ("estimate", b"{", {}, 400, "`body`"),
        ("estimate", b"[1]", {}, 400, "`body`"),
        ("estimate", b'{"model": NaN}', {}, 400, "`body`"),
        ("estimate", b"[" * 100_000, {}, 400, "`body`"),
        ("estimate", {"plan": {"tp": [[1]]}, "model": "gpt2"}, {}, 400, "`--plan`"),
        ("estimate", {"modle": "gpt2"}, {}, 400, "`model`"),
        ("estimate", {}, {}, 400, "`model`"),
        ("estimate", {"model": "gpt2", "detail": 1}, {}, 400, "`--detail`"),
        ("estimate", {"model": "gpt2", "out": "x.json"}, {}, 400, "`out`"),
        ("estimate", b" " * 2_000_001, {}, 413, "2,000,000"),
        ("estimate", {"model": "gpt2"}, {"Content-Type": "text/css"}, 415, "text/css"),
        ("estimate", {"model": "gpt2"}, {"Host": "evil.example"}, 400, "`Host`"),
        ("measure", {}, {}, 404, "`measure`"),
        ("sweep", {"spec": "x.toml", "target": "y.csv"}, {}, 404, "`sweep`"),
    ],
)  # fmt: skip
def test_what_no_command_sees(
    server: Server, path: str, body: Any, headers: Any, status: int, word: str
):
    got, text = server.post(f"/api/v1/{path}", body, **headers)
    assert got == status
    assert word in json.loads(text)["error"]["message"]
    assert "Traceback" not in text


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd", "../../etc/passwd", "~/x.json", "x/../../../etc/passwd",
        "\\etc\\passwd", "a=/etc/passwd", "file:/etc/passwd", '."./x', "C:\\x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("field", ["model", "gpu", "corrections", "topology"])
def test_paths_that_leave_the_folder_are_refused(server: Server, path: str, field: str):
    status, refusal = server.ask("estimate", **{"model": "gpt2", field: path})
    assert status == 400
    assert "leaves the server's folder" in refusal["error"]["message"]


def test_quoted_flags_and_posted_files_name_no_file_of_the_server(server: Server):
    status, refusal = server.ask("compare", a="gpt2 --gpu '/etc/x.toml'", b="gpt2")
    assert status == 400 and "leaves" in refusal["error"]["message"]
    posted = {"fleet.toml": '[demand]\nfile = "/etc/passwd"\n'}
    status, refusal = server.ask("fleet", fleet="fleet.toml", posted=posted)
    assert status == 400 and "'/etc/passwd'" in refusal["error"]["message"]
    status, refusal = server.ask("estimate", model="gpt2", posted={"../x": ""})
    assert status == 400 and "'../x'" in refusal["error"]["message"]


def test_health_metrics_and_headers(server: Server):
    assert server.get("/health")[0] == 200
    server.ask("estimate", model="gpt2", batch=0)
    text = server.get("/metrics")[1]
    assert 'diffenergy_requests_total{command="estimate",status="400"}' in text
    for name in ("request_seconds_total", "compilations_total", "queue_length"):
        assert f"diffenergy_{name}" in text
    assert server.get("/health", Host="127.0.0.1.evil.example:80")[0] == 400
    with urllib.request.urlopen(f"{server.url}/gpus") as answer:
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Cache-Control"] == "no-store"


def test_openapi_describes_every_command(server: Server):
    text = json.dumps(document := json.loads(server.get("/openapi.json")[1]))
    assert text.count('"$ref"') == text.count('"#/components/schemas/')
    assert {x.rpartition("/")[2] for x in document["paths"]} == set(offered(None))
    for name, (fields, _) in ASKED.items():
        body = document["paths"][f"/api/v1/{name}"]["post"]["requestBody"]
        schema = body["content"]["application/json"]["schema"]
        jsonschema.validate(fields, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**fields, "no_such_field": 1}, schema)
    references = re.findall(r'"\$ref": "#/components/schemas/([^"]*)"', text)
    assert references and {*references} <= {*document["components"]["schemas"]}


@pytest.mark.slow
def test_definitions_can_be_posted(server: Server, tmp_path: Path):
    folder = Path(diffenergy.__file__).parent / "data"
    gpu = tomllib.loads((folder / "gpus" / f"{GPU}.toml").read_text())
    config = json.loads((folder / "models/gpt2/config.json").read_text())
    gpu["name"] = "mine"
    status, mine = server.ask("estimate", model=config, gpu=gpu)
    assert status == 200, mine
    _, theirs = server.ask("estimate", model="gpt2", gpu=GPU)
    assert mine["time_s"] == pytest.approx(theirs["time_s"])


@pytest.mark.slow
def test_a_folder_can_be_opened(tmp_path: Path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link").symlink_to("/etc")
    with serving("--files", "inside", "--workers", "1", cwd=tmp_path) as server:
        status, _ = server.ask("estimate", model="gpt2", out="mine.json")
        assert status == 200 and (tmp_path / "inside" / "mine.json").is_file()
        status, _ = server.ask("compare", a="mine.json", b="gpt2 --batch 2")
        assert status == 200
        for path in ("../x.json", "link/x.json"):
            status, refusal = server.ask("estimate", model="gpt2", out=path)
            assert status == 400 and "leaves" in refusal["error"]["message"]


SEARCH = {"model": "gpt2", "vary": "num_sms"}


@pytest.mark.slow
def test_a_killed_process_is_replaced():
    with serving("--workers", "1") as server, ThreadPoolExecutor() as threads:
        assert server.ask("gpus")[0] == 200
        (worker,) = server.children()
        answer = threads.submit(server.ask, "codesign", **SEARCH)
        time.sleep(3)
        os.kill(worker, signal.SIGKILL)
        status, refusal = answer.result()
        assert (status, refusal["error"]["kind"]) == (503, "unavailable")
        assert server.ask("gpus")[0] == 200
        assert server.children() != [worker]
        assert "diffenergy_workers_replaced_total 1" in server.get("/metrics")[1]


@pytest.mark.slow
def test_sigterm_lets_work_end():
    server = Server("--workers", "1")
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(server.ask, "estimate", model="gpt2", batch=3)
        time.sleep(1.5)
        assert server.stop() == 0
        assert answer.result()[0] == 200


@pytest.mark.slow
def test_a_full_queue_and_a_slow_request_are_refused():
    words = ("--workers", "1", "--queue", "1", "--timeout", "6s")
    with serving(*words) as server, ThreadPoolExecutor() as threads:
        answers = []
        for seed in range(4):
            answers.append(threads.submit(server.ask, "codesign", **SEARCH, seed=seed))
            time.sleep(0.3)
        statuses = sorted(x.result()[0] for x in answers)
        assert statuses[:2] == [429, 429] and set(statuses[2:]) <= {429, 503}


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_without_the_extra(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda x, *y: None if x == package else find(x, *y)
    )
    assert main(["web"]) == 2
    assert "pip install 'diffenergy[web]'" in capsys.readouterr().err
