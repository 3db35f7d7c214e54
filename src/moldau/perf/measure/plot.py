"""Bars of several quantities over the same steps, each on a scale of its own: as text, and as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_EIGHTHS = " ▏▎▍▌▋▊▉"
_COLUMNS = 3
_WIDTH, _HEIGHT = 300, 190
_COLORS = ("#4e79a7", "#59a14f", "#f28e2b", "#b07aa1", "#76b7b2", "#e15759")


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One quantity: a value for each step, which is NaN where there is none."""

    title: str
    unit: str
    values: Sequence[float]

    @property
    def caption(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def part(self, value: float) -> float:
        """Of the largest value, between 0 and 1."""
        largest = max((each for each in self.values if math.isfinite(each)), default=0.0)
        return value / largest if largest > 0 and math.isfinite(value) and value > 0 else 0.0


def text_plot(steps: Sequence[str], panels: Sequence[Panel], width: int = 40) -> list[str]:
    """Horizontal bars of up to `width` cells, finer than a cell."""
    label_width = max((len(step) for step in steps), default=0)
    lines: list[str] = []
    for panel in panels:
        lines += ["", panel.caption]
        for step, value in zip(steps, panel.values, strict=True):
            lines.append(f"  {step:<{label_width}} │{_bar(panel.part(value), width)} {number(value)}")
    return lines[1:]


def svg_plot(title: str, steps: Sequence[str], panels: Sequence[Panel]) -> str:
    """A picture of its own, with a panel of upright bars for each quantity."""
    rows = -(-len(panels) // _COLUMNS)
    width, height = _COLUMNS * _WIDTH + 20, rows * _HEIGHT + 50 + 18 * len(steps)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="20" y="24" font-size="16">{escape(title)}</text>',
    ]
    for place, panel in enumerate(panels):
        x, y = 20 + place % _COLUMNS * _WIDTH, 40 + place // _COLUMNS * _HEIGHT
        parts += _panel(panel, x, y, len(steps))
    for place, step in enumerate(steps):
        y = 52 + rows * _HEIGHT + 18 * place
        parts.append(f'<rect x="20" y="{y - 10}" width="12" height="12" fill="{_color(place)}"/>')
        parts.append(f'<text x="40" y="{y}">{place + 1}: {escape(step)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, x: int, y: int, steps: int) -> list[str]:
    room = _HEIGHT - 60
    base = y + 28 + room
    pitch = (_WIDTH - 30) / max(steps, 1)
    parts = [f'<text x="{x}" y="{y + 14}" font-weight="bold">{escape(panel.caption)}</text>']
    for place, value in enumerate(panel.values):
        tall = panel.part(value) * (room - 14)
        left = x + place * pitch
        parts.append(
            f'<rect x="{left:.1f}" y="{base - tall:.1f}" width="{pitch * 0.8:.1f}" height="{tall:.1f}" '
            f'fill="{_color(place)}"/>'
        )
        middle = left + pitch * 0.4
        parts.append(
            f'<text x="{middle:.1f}" y="{base - tall - 3:.1f}" text-anchor="middle">{number(value)}</text>'
        )
        parts.append(f'<text x="{middle:.1f}" y="{base + 14}" text-anchor="middle">{place + 1}</text>')
    parts.append(
        f'<line x1="{x}" y1="{base}" x2="{x + _WIDTH - 30}" y2="{base}" stroke="#444" stroke-width="1"/>'
    )
    return parts


def number(value: float) -> str:
    """Short, for the eye."""
    if not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.3f}"


def _bar(part: float, width: int) -> str:
    eighths = round(part * width * 8)
    if part > 0:
        eighths = max(eighths, 1)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _color(place: int) -> str:
    return _COLORS[place % len(_COLORS)]
