"""Growth with the size of a fleet, drawn as SVG: lines over the number of nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pygal
from pygal.style import LightSolarizedStyle


@dataclass(frozen=True)
class Chart:
    """One drawing. lines: points (nodes, value) by what they show."""

    file: str
    title: str
    unit: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


def draw(charts: Sequence[Chart], folder: Path) -> None:
    """Write each chart into the folder under its name."""
    folder.mkdir(exist_ok=True)
    for chart in charts:
        # no scripts: a page of documentation shows pictures
        drawn = pygal.XY(
            title=f"{chart.title} ({chart.unit})",
            x_title="nodes",
            style=LightSolarizedStyle,
            js=(),
            legend_at_bottom=True,
            width=640,
            height=360,
            dots_size=3,
            include_x_axis=True,
            range=(0, 1.1 * max(value for line in chart.lines.values() for _, value in line)),
        )
        for label, points in chart.lines.items():
            drawn.add(label, list(points))
        drawn.x_labels = sorted({nodes for line in chart.lines.values() for nodes, _ in line})
        (folder / chart.file).write_bytes(drawn.render())
