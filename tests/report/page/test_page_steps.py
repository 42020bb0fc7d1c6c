"""The page of plans: curves are of all GPUs, a training step is shown over time."""

import json
import re

import pytest

from diffenergy.estimator import estimate_details, prepare
from diffenergy.report import page, page_html

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("plan", "request_"),
    [
        ("tp=2,pp=2", {"phase": "prefill", "batch": 2}),
        ("pp=2,dp=2", {"phase": "train", "global_batch": 8}),
    ],
)
def test_curves_pass_through_the_answer(plan: str, request_: dict):
    """The highest clock and the highest limit are those of the answer."""
    task = prepare("gpt2", "h100-sxm", input_len=64, plan=plan, **request_)
    result = task.run()
    content = page(estimate_details(task, result), None, "diffenergy estimate")
    (side,) = content.sides
    for points in (side.clocks, side.limits):
        for key in ("time_s", "energy_j"):
            assert points[-1][key] == pytest.approx(result.summary[key], rel=1e-6)
    html = page_html(content)
    if request_["phase"] == "prefill":
        assert "step-stages" not in html
        return
    assert result.step is not None and result.step.timeline is not None
    found = re.search(
        r'<script type="application/json" id="step-stages-points">(.*?)</script>', html
    )
    assert found is not None
    data = json.loads(found[1])
    assert len(data["texts"]) == len(result.step.timeline.stage)
    assert len(data["wide"]) == len(data["narrow"]) == 2 * len(data["which"])
    for words in ("communication of the mean GPU", "weights, gradients (dp)"):
        assert words in html
