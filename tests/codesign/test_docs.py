"""The Python example of docs/codesign.md runs."""

from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "codesign.md"


@pytest.mark.slow
def test_the_example_finds_a_design(capsys: pytest.CaptureFixture[str]):
    code = PAGE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    names: dict = {}
    exec(code, names)
    found = names["found"]
    assert found.best.objective < found.start.objective
    assert not found.best.violation
    assert "num_sms" in capsys.readouterr().out
