"""Figures: prediction as a line, measurement as points with error bars, and words for those who cannot see them.

A figure carries its caption, its alternative text and its data. The press puts the caption under it, the text on the
image, and the data beside it as CSV.
"""

import io

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pavlov.montecarlo import Estimate

MIME = "application/vnd.pavlov.figure+json"
PALETTE = sns.color_palette("colorblind")


def use_style() -> None:
    """Set the book's look: transparent, colour-blind safe, sized so that it reads on a phone."""
    sns.set_theme(
        context="notebook",
        style="ticks",
        palette=PALETTE,
        rc={
            "figure.figsize": (6.4, 4.0),
            "figure.dpi": 160,
            "savefig.transparent": True,
            "figure.constrained_layout.use": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": "medium",
            "legend.frameon": False,
            "lines.markersize": 5,
            "errorbar.capsize": 2,
            "font.size": 11,
        },
    )


def points(axes: Axes, x, estimates: list[Estimate], **style) -> None:
    """Draw estimates as points with error bars of two standard errors."""
    axes.errorbar(x, [e.mean for e in estimates], [2 * e.stderr for e in estimates], fmt="o", **style)


def columns(name: str, estimates: list[Estimate]) -> dict[str, np.ndarray]:
    """The two data columns of a list of estimates: its means, and its standard errors."""
    return {
        name: np.array([e.mean for e in estimates]),
        f"{name}_stderr": np.array([e.stderr for e in estimates]),
    }


def show(figure: Figure, name: str, *, caption: str, alt: str, data: pd.DataFrame) -> None:
    """Show a figure once, with all that belongs to it.

    Args:
        figure: a Matplotlib figure; it is closed afterwards, so that a notebook does not show it twice.
        name: its label, for ``{numref}``: lower-case words joined by hyphens.
        caption: what the figure finds, in MyST Markdown.
        alt: what a reader who cannot see it should know, with the numbers.
        data: the numbers it was drawn from.

    Raises:
        ValueError: if the name, caption, alt text or data is empty.
    """
    for what, given in [
        ("name", name.strip()),
        ("caption", caption.strip()),
        ("alt", alt.strip()),
        ("data", len(data)),
    ]:
        if not given:
            raise ValueError(f"{what} must not be empty for figure {name!r}")
    from IPython.display import display  # only a notebook shows figures, and it has IPython

    png = io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    plt.close(figure)
    record = {
        "name": name,
        "caption": caption,
        "alt": alt,
        "csv": data.to_csv(index=False, float_format="%.10g"),
    }
    display({"image/png": png.getvalue(), "text/plain": alt, MIME: record}, raw=True)
