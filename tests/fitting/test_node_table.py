"""Readings of a server's meter give back the server that they were made from."""

import contextlib
import io
import json
from pathlib import Path

import json_keys
import pytest

from diffenergy.cli import main
from diffenergy.fitting import NodeFit, fit_node_table, is_node_table
from diffenergy.nodes import load_node

HEAD = "gpu,gpus,board_w,power_limit_w,wall_w,idle\n"
IDLE = 70.0
"""W of an idle H100."""


def wall(board: float) -> float:
    """W at the wall of a server of 8 H100 whose host idles at 1,900 W and takes 0.09 W
    more for each W of its boards, behind supplies of 16,023 W (titanium)."""
    dc = 8 * board + 1900 + 0.09 * 8 * (board - IDLE)
    return dc + 16023 * (0.00508 + 0.02792 * dc / 16023 + 0.0107 * (dc / 16023) ** 2)


def fitted(folder: Path, *rows: str) -> NodeFit:
    path = folder / "meter.csv"
    path.write_text(HEAD + "".join(f"h100-sxm,8,{row}\n" for row in rows))
    assert is_node_table(path)
    return fit_node_table([path], "dgx-h100")


def test_it_gives_the_server_back(tmp_path: Path):
    """Also through the file; a row at its limit draws 0.98 to 1 of it."""
    boards = [100, 200, 300, 400, 500, 600, 700] * 3
    rows = [f"{x},,{wall(x)}," for x in boards]
    result = fitted(tmp_path, f",,{wall(IDLE)},yes", *rows, f",700,{wall(697)},")
    constants = result.summary["constants"]
    assert constants["host_idle_w"]["value"] == pytest.approx(1900, rel=0.005)
    assert constants["gain"]["value"] == pytest.approx(0.09, abs=0.003)
    assert result.summary["after"]["wall_mape_pct"] < 0.2
    result.write(tmp_path / "mine.toml")
    node = load_node(str(tmp_path / "mine.toml"), "h100-sxm")
    assert (node.name, node.grade) == ("mine", "calibrated")
    assert node.power(550, IDLE).wall == pytest.approx(wall(550), rel=0.003)


def test_idle_readings_alone_move_the_host_alone(tmp_path: Path):
    """Prior 25 %, one reading of 1 % of the wall (1.4 % of the host): nearly it."""
    result = fitted(tmp_path, f",,{wall(IDLE)},1")
    constants, node = result.summary["constants"], load_node("dgx-h100")
    assert constants["host_idle_w"]["value"] == pytest.approx(1900, rel=0.005)
    assert constants["gain"]["value"] == pytest.approx(node.gain, abs=1e-4)
    assert result.summary["grade"] == "transferred"


def test_the_command(tmp_path: Path):
    """The file that it writes is the node of an estimate."""
    out = io.StringIO()
    words = ["fit", "docs/examples/meter.csv", "--out", str(tmp_path / "mine.toml")]
    with contextlib.redirect_stdout(out):
        assert main([*words, "--node", "dgx-h100", "--json"]) == 0
    json_keys.check("fit", out.getvalue())
    assert json.loads(out.getvalue())["rows"] == 3
    assert load_node(str(tmp_path / "mine.toml"), "h100-sxm").gpus == 8
