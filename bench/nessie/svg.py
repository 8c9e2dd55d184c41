"""A small SVG drawing with text, lines, bars and dots, readable on light and dark pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_STYLE: Final = """
text { font: 12px system-ui, sans-serif; fill: #333 }
.small { font-size: 11px; fill: #666 }
.title { font-size: 14px; font-weight: 600 }
.grid { stroke: #ddd } .axis { stroke: #888 } .goal { stroke: #111; stroke-width: 2 }
.first { stroke: #b3631c; fill: #b3631c } .last { stroke: #2266cc; fill: #2266cc }
text.first, text.last { stroke: none }
.short { stroke: #9bb8e6; fill: #9bb8e6 }
polyline { fill: none !important; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  text { fill: #ddd } .small { fill: #aaa }
  .grid { stroke: #3a3f46 } .axis { stroke: #888 } .goal { stroke: #fff }
  .first { stroke: #e59a55; fill: #e59a55 } .last { stroke: #6ea8fe; fill: #6ea8fe }
  .short { stroke: #3d5f96; fill: #3d5f96 }
}
"""


class Drawing:
    """Coordinates grow to the right and down, in pixels."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self._size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
        self._title = escape(title)
        self._parts: list[str] = []

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        self._parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'
        )

    def bar(self, x1: float, y: float, x2: float, height: float, style: str) -> None:
        left, width = min(x1, x2), abs(x2 - x1)
        self._parts.append(
            f'<rect x="{left:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:g}"'
            f' class="{style}"/>'
        )

    def dot(self, x: float, y: float, style: str, radius: float = 3.5) -> None:
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{style}"/>')

    def path(self, points: Iterable[tuple[float, float]], style: str) -> None:
        shown = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polyline points="{shown}" class="{style}"/>')

    def save(self, path: Path) -> None:
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {self._size} role="img">',
            f"<title>{self._title}</title><style>{_STYLE}</style>",
            *self._parts,
            "</svg>\n",
        ]
        path.write_text("\n".join(lines))
