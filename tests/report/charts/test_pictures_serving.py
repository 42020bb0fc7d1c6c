"""The picture of a server."""

import re

import pytest

import diffenergy as de

pytest.importorskip("matplotlib", reason="needs the extra plot")


@pytest.mark.slow
def test_every_tick_of_energy_has_its_prefix_and_unit():
    """Minor ticks too: they had powers of ten from 550 mJ down to 23 mJ."""
    load = de.serving.Load(rate=8)
    figure = de.serving.steady_state("qwen3-0.6b", "h100-sxm", load).figure()
    figure.canvas.draw()
    axis = figure.axes[-1].yaxis
    texts = [x.get_text() for x in axis.get_ticklabels(which="both")]
    assert len(texts) >= 3
    assert all(re.fullmatch(r"(\d+ m?J)?", text) for text in texts)
