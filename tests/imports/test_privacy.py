"""Nothing but kernels, operators, shapes, types, times, streams and GPUs leaves."""

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from diffenergy.cli import main
from tests.imports import builders

SECRETS = (
    "ghp_9sEcReTtOkEn", "build-host-17.corp.example", "/home/alice/model.py",
    "AWS_SECRET_ACCESS_KEY", "alice", "10.9.8.7",
)  # fmt: skip


def planted(folder: Path) -> str:
    """A trace with secrets wherever such files have them."""
    events = [dict(x, args=dict(x["args"])) for x in builders.EVENTS]
    for event, secret in zip(events, SECRETS * 3, strict=False):
        event["args"]["Call stack"] = event["args"]["Ev Idx"] = secret
        event["args"]["Python parent id"] = secret
    events += [
        {"ph": "M", "name": "process_name", "args": {"name": SECRETS[1]}},
        {"ph": "X", "cat": "python_function", "name": SECRETS[2], "ts": 0, "dur": 9},
        {"ph": "X", "cat": "user_annotation", "name": SECRETS[0], "ts": 0, "dur": 9},
        {"ph": "X", "cat": "gpu_memcpy", "name": SECRETS[4], "ts": 0, "dur": 9,
         "args": {"device": 0, "path": SECRETS[2]}},
    ]  # fmt: skip
    about = {
        "metadata": {"environ": {SECRETS[3]: SECRETS[0], "HOME": "/home/alice"}},
        "hostName": SECRETS[1],
        "traceName": SECRETS[2],
        "distributedInfo": {"world_size": 8, "master_addr": SECRETS[5]},
        "deviceProperties": [{"id": 0, "name": builders.H100, "uuid": SECRETS[0]}],
    }
    return builders.trace(folder, events, **about)


@pytest.mark.parametrize(
    "words",
    [
        ["import", "FILE", "--json"],
        ["import", "FILE"],
        ["import", "FILE", "--out", "OUT.jsonl"],
        ["import", "FILE", "--window", "ProfilerStep#3"],
        ["estimate", "FILE", "--json", "--detail"],
        ["evaluate", "FILE", "--json", "--by", "op", "--out", "OUT.csv"],
    ],
    ids=lambda words: " ".join(words),
)
def test_no_output_tells_what_was_planted(tmp_path, capsys, words):
    folder = tmp_path / "given"
    folder.mkdir()
    path, out = planted(folder), tmp_path / "out"
    arguments = [x.replace("FILE", path).replace("OUT", str(out)) for x in words]
    main(arguments)
    printed = capsys.readouterr()
    text = printed.out + printed.err.replace(path, "")
    text += "".join(x.read_text() for x in tmp_path.glob("out*"))
    assert "gemm" in text or "window" in text
    for secret in SECRETS:
        assert secret not in text, secret


def test_no_table_of_a_report_but_those_of_kernels(tmp_path, capsys):
    path = builders.nsys(tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("create table TARGET_INFO_SYSTEM_ENV(name text, value text)")
        for row in (f"TARGET_INFO_SYSTEM_ENV values ('Hostname', '{SECRETS[1]}')",
                    f"StringIds values (900, '{SECRETS[2]}')"):  # fmt: skip
            base.execute(f"insert into {row}")
        base.commit()
    assert main(["import", path, "--json"]) == 0
    text = capsys.readouterr().out
    assert json.loads(text)["kernels"] == 2
    assert not any(secret in text for secret in SECRETS)


def test_no_column_of_counters_but_those_of_units(tmp_path, capsys):
    path = tmp_path / "ncu.csv"
    path.write_text(builders.COUNTERS)
    out = tmp_path / "rows.csv"
    assert main(["import", str(path), "--json", "--out", str(out)]) == 0
    assert "secret-host" not in capsys.readouterr().out + out.read_text()
