"""What logs of a service refuse."""

import json
from typing import Any

import pytest
from refusals import File, Refusal, row

from diffenergy.results import Infeasible
from diffenergy.service import evaluate, read

from .builders import bench, dcgm, genai, matrix, metrics, smi


def logs(sentence: str, text: str, name: str = "log.json", **more: Any) -> Any:
    fields: dict[str, Any] = {"model": "qwen3-0.6b", "gpu": "h100-sxm"} | more
    return row(sentence, _read, File(text, name), **fields)


def _read(path: str, **more: Any):
    read(path, **more)


def prom(**data: Any) -> str:
    return json.dumps({"status": "success", "data": data})


def result(**changes: Any) -> str:
    return json.dumps(bench(**changes))


def beside(*series: Any) -> str:
    return matrix([*metrics(), *series])


GRAFANA = "Time,vllm:generation_tokens_total\n"
REFUSED = [
    row("`logs` is empty", read, []),
    logs("is no log of a known tool; give a log of nvidia-smi", "a,b\n1,2\n"),
    row("is no file; give", read, "nowhere.json"),
    logs("no log has tokens", smi(), "p.csv"),
    logs("is cut short or no JSON", matrix(metrics())[:-20]),
    logs("`resultType` is 'vector' in .. export a range", prom(resultType="vector")),
    logs("is an error of Prometheus",
         json.dumps({"status": "error", "error": "x", "data": {"resultType": 1}})),
    logs("a series without pairs of time and value",
         prom(resultType="matrix", result=[{"metric": {}, "value": [1, "2"]}])),
    logs("has no metric of a server or GPU", prom(resultType="matrix", result=[])),
    logs("no output tokens; export vllm:generation_tokens_total",
         matrix(metrics(drop=("generation_tokens_total",)))),
    logs("a single time", matrix(metrics(at=[0.0]))),
    logs("are of 2 models", beside(*metrics(labels={"model_name": "b"}))),
    logs("no window has requests with known lengths",
         matrix(metrics(drop=("prompt_tokens_total",)))),
    logs("`num_gpus` is 2, but the power of 1 GPUs", beside(dcgm()), tp=2),
    logs("`gpu` is 'a10', but the logs are of h100-sxm", beside(dcgm()), gpu="a10"),
    logs("`gpu` is missing, and no log names it", matrix(metrics()), gpu=None),
    logs("`gpu` is missing, and logs name a10, h100-sxm",
         beside(dcgm(), dcgm("1", name="NVIDIA A10")), gpu=None),
    logs("`model` is missing", matrix(metrics()), model=None),
    logs("`time_zone` is 'CET'; allowed is", matrix(metrics()), time_zone="CET"),
    logs("line 3: `vllm:generation_tokens_total` is '3 K'; allowed is a number without",
         GRAFANA + "1767225600,1\n1767225610,3 K\n", "g.csv"),
    logs("line 2: `Time` is 'noon'", GRAFANA + "noon,1\n", "g.csv"),
    logs("is a function of `vllm:generation_tokens_total`",
         "Time,rate(vllm:generation_tokens_total[5m])\n1,1\n", "g.csv"),
    logs("no column `Value`", "Time,__name__\n1,vllm:generation_tokens_total\n",
         "g.csv"),
    logs("`duration` is missing", result(duration=None)),
    logs("`completed` is 0", result(completed=0)),
    logs("`mean_ttft_ms` is 'fast'", result(mean_ttft_ms="fast")),
    logs("`input_sequence_length` is missing",
         json.dumps(genai(input_sequence_length=1))),
    row("same tokens; give one", lambda a, b: read([a, b], model="gpt2", gpu="a10"),
        File(result(), "b.json"), File(matrix(metrics()), "m.json")),
    row("power is in logs of nvidia_smi and prometheus",
        lambda a, b: read([a, b], model="gpt2"),
        File(smi(), "p.csv"), File(beside(dcgm()), "m.json")),
    row("two logs have different readings of `power` at one time",
        lambda a, b: read([a, b], model="gpt2"),
        File(smi(), "a.csv"), File(smi(ahead=0.5).replace(".000,", ".500,"), "b.csv")),
    row("not one request of llama-3.1-405b fits h100-sxm", evaluate,
        File(result(), "b.json"), model="llama-3.1-405b", gpu="h100-sxm",
        kind=Infeasible),
    row("`model` is missing", lambda path: evaluate(path, gpu="a10"), File(result())),
]  # fmt: skip


@pytest.mark.parametrize("refusal", REFUSED)
def test_refused(refusal: Refusal, tmp_path):
    refusal.check(tmp_path)
