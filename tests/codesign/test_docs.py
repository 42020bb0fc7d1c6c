"""The Python example of docs/how-to/codesign.md runs."""

from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "codesign.md"


@pytest.mark.slow
def test_the_example_finds_a_design(capsys: pytest.CaptureFixture[str]):
    code = PAGE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    names: dict = {}
    exec(code, names)
    result = names["result"]
    assert result.best.objective < result.start.objective
    assert not result.best.violation
    assert "num_sms" in capsys.readouterr().out
