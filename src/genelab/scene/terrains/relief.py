"""A picture of the ground."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from genelab.errors import UsageError
from genelab.scene.terrains.generator import GeneratedTerrain
from genelab.scene.terrains.ground import HeightField

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK = "#1c2429"


def draw_relief(terrain: HeightField, title: str = "") -> bytes:
    """The height field from above as a PNG: coloured by height, lit from the north-west, axes in metres.

    Of a generated terrain it also shows the cells, their levels and kinds, and where robots start.
    """
    try:
        from matplotlib import colormaps
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import SymLogNorm
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("a picture of the ground needs matplotlib: pip install 'genelab[plot]'") from error

    heights = terrain.heights.cpu().numpy().astype(np.float64)
    (length, width), scale = terrain.size, terrain.resolution
    most = max(float(np.abs(heights).max()), 1e-3)
    # Centimetres of rough ground must be seen beside metres of stairs: linear up to 0.3 m, logarithmic above.
    norm, colours = SymLogNorm(0.3, vmin=-most, vmax=most), colormaps["BrBG_r"]
    image = colours(norm(heights.T))[..., :3] * _brightness(heights, scale).T[..., None]

    map_width = 9.0
    map_height = float(np.clip(map_width * width / length, 2.0, 18.0))
    figure = Figure(figsize=(map_width + 3.4, map_height + 1.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    extent = (-length / 2, length / 2, -width / 2, width / 2)
    axes.imshow(image, origin="lower", extent=extent, interpolation="nearest")
    axes.set_xlabel("x, m")
    axes.set_ylabel("y, m")
    if isinstance(terrain, GeneratedTerrain):
        _draw_cells(axes, terrain)
    if title:
        axes.set_title(title, color=_INK, pad=12)
    figure.colorbar(ScalarMappable(norm, colours), ax=axes, label="height, m", shrink=0.6, pad=0.02, format="%g")
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _brightness(heights: np.ndarray, scale: float) -> np.ndarray:
    """How much of the light from the upper left falls on each point, 0.85 on level ground."""
    rise_x, rise_y = np.gradient(heights, scale)
    facing = (1.0 + rise_x - rise_y) / np.sqrt(1.0 + rise_x**2 + rise_y**2)
    return np.clip(0.85 * facing, 0.15, 1.0)


def _draw_cells(axes: Axes, terrain: GeneratedTerrain) -> None:
    origins, size = terrain.origins.cpu().numpy(), terrain.cfg.cell_size
    xs, ys = origins[:, 0, 0], origins[0, :, 1]
    low_x, high_x, low_y, high_y = xs[0] - size / 2, xs[-1] + size / 2, ys[0] - size / 2, ys[-1] + size / 2
    axes.vlines(np.arange(low_x, high_x + size / 2, size), low_y, high_y, colors=_INK, linewidths=0.4, alpha=0.5)
    axes.hlines(np.arange(low_y, high_y + size / 2, size), low_x, high_x, colors=_INK, linewidths=0.4, alpha=0.5)
    axes.scatter(origins[..., 0], origins[..., 1], s=14, color="#d7301f", edgecolors="white", linewidths=0.8, zorder=3)
    top = axes.secondary_xaxis("top")
    top.set_xticks(xs, [str(row) for row in range(len(xs))])
    top.set_xlabel("level; robots start at the red dots")
    right = axes.secondary_yaxis("right")
    right.set_yticks(ys, [f"{column} {name}" for column, name in enumerate(terrain.kind_names)])
    for axis in (top, right):
        axis.tick_params(length=0)
