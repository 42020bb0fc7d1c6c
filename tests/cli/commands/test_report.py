"""`diffenergy report`: its charts by name, and no page of what cannot be."""

from pathlib import Path

import pytest

from ..conftest import GPT2


@pytest.mark.slow
def test_a_limit_that_cannot_be_kept_is_infeasible(run, tmp_path: Path):
    page = tmp_path / "page.html"
    limit = ("--power-limit", "40", "--phase", "prefill", "--out", page)
    limit = (*limit, "--set", "power_limit_min=40")
    outcome = run("report", "gpt2", "--gpu", "h100-sxm", *limit)
    assert outcome.code == 3 and not page.exists()


@pytest.mark.slow
def test_charts_of_a_page(run, tmp_path: Path):
    page, path = tmp_path / "a.html", tmp_path / "roof.svg"
    flags = ("report", *GPT2[1:], "--out", page)
    assert run(*flags, "--plot", f"roofline={path}").code == 0
    assert b"Roofline" in path.read_bytes() and page.exists()
    names = run(*flags, "--plot", f"none={path}").err
    for name in ("roofline", "timeline-prefill", "clocks", "energy-by-unit"):
        assert name in names
