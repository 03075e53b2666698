"""A figure carries its caption, its words and its data."""

import io

import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from pavlov import figures
from pavlov.montecarlo import Estimate


@pytest.fixture
def shown(monkeypatch):
    bundles = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: bundles.append(bundle))
    return bundles


def figure():
    figures.use_style()
    return plt.subplots()[0]


def test_a_figure_is_shown_once_with_caption_alt_text_and_data(shown):
    drawn = figure()
    figures.show(drawn, "a-line", caption="It rises.", alt="A line from 0 to 1.", data=pd.DataFrame({"x": [0.0, 1.0]}))
    (bundle,) = shown
    assert bundle[figures.MIME] == {
        "name": "a-line",
        "caption": "It rises.",
        "alt": "A line from 0 to 1.",
        "csv": "x\n0\n1\n",
    }
    assert bundle["text/plain"] == "A line from 0 to 1."
    assert not plt.fignum_exists(drawn.number)


def test_a_figure_is_transparent_and_the_same_bytes_each_time(shown):
    for _ in range(2):
        figures.show(figure(), "f", caption="c", alt="a", data=pd.DataFrame({"x": [1]}))
    first, second = (bundle["image/png"] for bundle in shown)
    assert first == second
    assert plt.imread(io.BytesIO(first))[0, 0, 3] == 0


@pytest.mark.parametrize("missing", ["name", "caption", "alt", "data"])
def test_what_is_missing_is_named(missing, shown):
    parts = {"name": "f", "caption": "c", "alt": "a", "data": pd.DataFrame({"x": [1]})}
    parts[missing] = pd.DataFrame() if missing == "data" else " "
    with pytest.raises(ValueError, match=f"{missing} must not be empty"):
        figures.show(figure(), parts.pop("name"), **parts)
    assert not shown


def test_points_have_error_bars_of_two_standard_errors():
    axes = plt.subplots()[1]
    figures.points(axes, [1.0], [Estimate(3.0, 0.5, 9)])
    (bar,) = axes.collections[0].get_segments()
    assert bar[:, 1].tolist() == [2.0, 4.0]
    assert figures.columns("y", [Estimate(3.0, 0.5, 9)]) == {"y": np.array([3.0]), "y_stderr": np.array([0.5])}
