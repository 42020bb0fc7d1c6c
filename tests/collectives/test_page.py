"""The Python example of docs/collectives.md runs."""

from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "collectives.md"


@pytest.mark.slow
def test_the_example_meets_its_bound(capsys: pytest.CaptureFixture[str]):
    code = PAGE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    exec(code, {})
    # 64 chunks of 62.5 MB pass each link of 12.5 GB/s between the chassis
    assert capsys.readouterr().out.startswith("0.320001 s, at least 0.320001 s")
