"""`diffenergy report`: its charts by name."""

from pathlib import Path

import pytest

from ..conftest import GPT2


@pytest.mark.slow
def test_charts_of_a_page(run, tmp_path: Path):
    page, path = tmp_path / "a.html", tmp_path / "roof.svg"
    flags = ("report", *GPT2[1:], "--out", page)
    assert run(*flags, "--plot", f"roofline={path}").code == 0
    assert b"Roofline" in path.read_bytes() and page.exists()
    names = run(*flags, "--plot", f"none={path}").err
    for name in ("roofline", "timeline-prefill", "clocks", "energy-by-unit"):
        assert name in names
