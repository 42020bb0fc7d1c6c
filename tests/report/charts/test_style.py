"""Files of pictures, ticks with units, colours."""

from pathlib import Path

import pytest

from diffenergy.report._charts import style


def line() -> "style.Figure":  # noqa: F821
    figure = style.canvas(2.0)
    axes = figure.subplots()
    axes.plot([0, 1], [0.0, 0.02])
    style.si_ticks(axes.yaxis, "s")
    axes.set(xlabel="share, %", ylabel="time")
    return figure


@pytest.mark.parametrize("name", ["a.png", "b.SVG"])
def test_the_same_figure_is_the_same_file(tmp_path: Path, name: str):
    style.save_figure(str(tmp_path / name), line)
    first = (tmp_path / name).read_bytes()
    style.save_figure(str(tmp_path / name), line)
    assert (tmp_path / name).read_bytes() == first
    assert first.startswith(b"\x89PNG" if name == "a.png" else b"<?xml")
    assert b"dc:date" not in first and not list(tmp_path.glob(".*part"))


def test_nothing_of_the_user_s_settings(tmp_path: Path):
    import matplotlib

    style.save_figure(str(tmp_path / "a.svg"), line)
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        style.save_figure(str(tmp_path / "b.svg"), line)
        assert matplotlib.rcParams["font.size"] == 30
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.pdf", "names ending in .png, .svg"),
        ("no/a.png", "there is no folder"),
        ("folder.png", "is a folder"),
        ("given.png", "is an input"),
    ],
)
def test_what_cannot_be_written_is_found_first(tmp_path: Path, name: str, words: str):
    (tmp_path / "folder.png").mkdir()
    given = tmp_path / "given.png"
    given.write_text("measured")

    def never():
        raise AssertionError("drawn")

    with pytest.raises(ValueError, match=words):
        style.save_figure(str(tmp_path / name), never, [given])
    assert given.read_text() == "measured"
    assert sorted(x.name for x in tmp_path.iterdir()) == ["folder.png", "given.png"]


def test_a_drawing_that_fails_leaves_the_old_file(tmp_path: Path):
    old = tmp_path / "a.png"
    old.write_text("old")

    def fails():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        style.save_figure(str(old), fails)
    assert old.read_text() == "old" and list(tmp_path.iterdir()) == [old]


@pytest.mark.parametrize(
    ("limits", "scale", "values", "unit", "expected"),
    [
        ((0, 0.9), "linear", (0, 0.3, 0.0625), "s", ("0", "300 ms", "62.5 ms")),
        ((0, 1.8), "linear", (0.25, 1.5), "J", ("0.25 J", "1.5 J")),
        ((-2000, 10), "linear", (-1000,), "W", ("−1 kW",)),
        ((1e-6, 10), "log", (1e-5, 1e-3, 1, 10), "s", ("10 us", "1 ms", "1 s", "10 s")),
        ((1e3, 1e10), "log", (1e3, 1e6, 1e9), "B", ("1 kB", "1 MB", "1 GB")),
    ],
)
def test_ticks(limits, scale, values, unit, expected):
    with style.house():
        axes = style.canvas(2.0).subplots()
        axes.set(xscale=scale, xlim=limits)
        style.si_ticks(axes.xaxis, unit)
        text = axes.xaxis.get_major_formatter()
        assert tuple(text(value) for value in values) == expected


def test_logarithmic_ticks_of_short_axes():
    """About two powers of ten still get more than their ends."""
    with style.house():
        for high in (4.0, 20.0, 100.0, 1e6):
            axes = style.canvas(3.0).subplots()
            axes.set(xscale="log", xlim=(1.0, high))
            style.log_ticks(axes.xaxis)
            inside = [x for x in axes.get_xticks() if 1 <= x <= high]
            assert 2 <= len(inside) <= 8


def test_colours_differ():
    for count in (1, 8, 9, 16, 128):
        found = style.colours(count)
        assert len(set(found)) == len(found) == count


def test_names_are_cut_in_the_middle():
    assert style.shortened("short", 8) == "short"
    assert style.shortened("abcdefghij", 7) == "ab…ghij"
