"""Files of pictures."""

from pathlib import Path

import pytest

from diffenergy.charts import Axis, Chart, Line, Panel, Reading, save_figure, to_figure


def line():
    marks = [Line([0.0, 1.0], [0.0, 0.02])]
    readings = [Reading(1.0, 0.02, "20 ms")]
    panel = Panel(Axis("share", "%"), Axis("time", "s"), marks, readings)
    return to_figure(Chart("Time", [panel]))


@pytest.mark.parametrize("name", ["a.png", "b.SVG"])
def test_the_same_figure_is_the_same_file(tmp_path: Path, name: str):
    save_figure(str(tmp_path / name), line)
    first = (tmp_path / name).read_bytes()
    save_figure(str(tmp_path / name), line)
    assert (tmp_path / name).read_bytes() == first
    assert first.startswith(b"\x89PNG" if name == "a.png" else b"<?xml")
    assert b"dc:date" not in first and not list(tmp_path.glob(".*part"))


def test_nothing_of_the_user_s_settings(tmp_path: Path):
    import matplotlib

    save_figure(str(tmp_path / "a.svg"), line)
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        save_figure(str(tmp_path / "b.svg"), line)
        assert matplotlib.rcParams["font.size"] == 30
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.pdf", "names ending in .png, .svg"),
        ("no/a.png", "there is no folder"),
        ("folder.png", "is a folder"),
        ("given.png", "is an input"),
        ("old.png", "cannot be drawn"),
    ],
)
def test_what_cannot_be_written_is_found_first(tmp_path: Path, name: str, words: str):
    """A drawing that fails leaves the old file, too."""
    (tmp_path / "folder.png").mkdir()
    path, old = tmp_path / "given.png", tmp_path / "old.png"
    path.write_text("measured")
    old.write_text("old")

    def fails():
        raise ValueError("cannot be drawn")

    with pytest.raises(ValueError, match=words):
        save_figure(str(tmp_path / name), fails, [path])
    assert (path.read_text(), old.read_text()) == ("measured", "old")
    names = ["folder.png", "given.png", "old.png"]
    assert sorted(x.name for x in tmp_path.iterdir()) == names
