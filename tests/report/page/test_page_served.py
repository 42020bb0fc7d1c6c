"""Pages of what is served and planned: charts end where they must, texts are right."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chart_checks import check

from diffenergy import fleet
from diffenergy.charts import Boxes
from diffenergy.report import fleet_html
from diffenergy.report._format import si

from .pages import run
from .test_page import Page

EXAMPLE = "docs/examples/fleet/fleet.toml"


def points(html: str, identity: str) -> dict[str, Any]:
    """What the script reads of a chart."""
    pattern = rf'<script type="application/json" id="{identity}-points">(.*?)</script>'
    found = re.search(pattern, html)
    assert found is not None
    return json.loads(found[1])


@pytest.fixture(scope="module")
def planned():
    return fleet.plan(EXAMPLE, objective="carbon")


def test_a_planned_fleet_is_a_page(planned):
    html = fleet_html(planned, "diffenergy fleet <here>")
    page, summary = Page(html), planned.summary
    assert not page.stack and "diffenergy fleet &lt;here&gt;" in html
    assert si(summary["value"], "g") in page.text("answer")
    for pool in planned.solved.problem.pools:
        assert f"GPUs of {pool}" in page.text("pools")
    # in every slot GPUs of models and parked ones are all of a pool
    problem = planned.solved.problem
    for pool, count in zip(problem.pools, problem.count, strict=True):
        data = points(html, f"chart-pool-{pool}")
        assert len(data["texts"]) == summary["slots"]
        for text in data["texts"]:
            assert sum(map(float, re.findall(r" (\d+)(?=,|$)", text))) == count
    assert len(points(html, "chart-power")["texts"]) == summary["slots"]


def test_areas_of_a_pool_are_its_gpus(planned):
    """In every slot the areas of the models end at the GPUs that are used."""
    charts = planned.charts()
    check(charts)
    for pool in planned.solved.problem.pools:
        (panel,) = charts[f"pool-{pool}"].panels
        tops = np.zeros(planned.summary["slots"])
        for mark in panel.marks:
            if isinstance(mark, Boxes):
                assert mark.low == pytest.approx(tops)
                tops = np.array(mark.high)
        used = np.zeros(planned.summary["slots"])
        for x in planned.summary["plan"]:
            if x["pool"] == pool:
                used[x["slot"]] += x["replicas"] * x["gpus_per_replica"]
        assert tops == pytest.approx(used)


@pytest.mark.slow
def test_a_served_model_has_a_section(tmp_path: Path):
    flags = ("qwen3-0.6b", "--input-len", "256", "--output-len", "64")
    served = ("--rate", "20", "--max-batch", "64", "--slo-tpot", "30ms")
    path = tmp_path / "page.html"
    run("report", *flags, *served, "--out", str(path))
    html = path.read_text(encoding="utf-8")
    page, found = Page(html), json.loads(run("serve", *flags, *served, "--json"))
    assert not page.stack
    section = page.text("serving")
    for key, unit in (
        ("energy_j_per_output_token", "J"),
        ("energy_j_per_request", "J"),
    ):
        assert si(found[key], unit) in section
    for key in ("ttft_s", "tpot_s"):
        assert si(found[key]["mean"], "s").replace(" us", " µs") in section
    # both curves pass the answer: the nearest rate's mean is close to it
    for key, identity in (
        ("ttft_s", "chart-serving-ttft"),
        ("tpot_s", "chart-serving-tpot"),
    ):
        data = points(html, identity)
        half = len(data["texts"]) // 2
        assert len(data["wide"]) == 2 * (2 * half + 1)  # and the answer
        rates = [float(x.split()[0]) for x in data["texts"][:half]]
        at = int(np.argmin(np.abs(np.array(rates) - 20)))
        value, prefix = data["texts"][at].split()[-2:]
        scale = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[prefix]
        assert float(value) * scale == pytest.approx(found[key]["mean"], rel=0.02)
    # the estimate's command has no flag of the server
    assert "--rate" not in html[html.index("<pre") :]


@pytest.mark.parametrize(
    "flags, word",
    [
        (("--slo-tpot", "30ms"), "no requests come"),
        (("--rate", "8", "--phase", "train"), "neither trains"),
        (("--rate", "8", "--concurrency", "8"), "one way"),
        (("--rate", "0"), "`--rate`"),
    ],
)
def test_what_cannot_be_served(flags, word, capsys):
    from diffenergy.cli import main

    code = main(("report", "gpt2", *flags, "--out", "no.html"))
    said = capsys.readouterr()
    assert code == 2 and not said.out and word in said.err
    assert said.err.count("\n") == 1 and not Path("no.html").exists()
