from __future__ import annotations

import math
import re
from xml.etree import ElementTree

from moldau.perf.measure.plot import Panel, number, svg_plot, text_plot

STEPS = ["one", "second"]
PANELS = [
    Panel(title="size", unit="bytes", values=[16_000.0, 4000.0]),
    Panel(title="a < b", unit="", values=[0.0, math.nan]),
    Panel(title="few", unit="ms", values=[1000.0, 0.001]),
]
SVG = "{http://www.w3.org/2000/svg}"


def test_bars_are_as_long_as_their_values() -> None:
    assert text_plot(STEPS, PANELS, width=8) == [
        "size (bytes)",
        "  one    │████████ 16,000",
        "  second │██ 4,000",
        "",
        "a < b",
        "  one    │ 0",
        "  second │ -",
        "",
        "few (ms)",
        "  one    │████████ 1,000",
        "  second │▏ 0.001",  # what is there is seen
    ]


def test_the_picture_has_a_bar_for_each_value_within_its_edges() -> None:
    root = ElementTree.fromstring(svg_plot("a & b", STEPS, PANELS))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    rects = [
        {name: float(rect.get(name, 0)) for name in ("x", "y", "width", "height")}
        for rect in root.iter(f"{SVG}rect")
    ]
    assert len(rects) == 1 + len(STEPS) * (len(PANELS) + 1)
    for rect in rects:
        assert 0 <= rect["x"] <= rect["x"] + rect["width"] <= width
        assert 0 <= rect["y"] <= rect["y"] + rect["height"] <= height
    tall, low = rects[1]["height"], rects[2]["height"]
    assert abs(tall - 4 * low) < 0.2 and tall > 50
    texts = " ".join(text.text or "" for text in root.iter(f"{SVG}text"))
    assert "a & b" in texts and "a < b" in texts and "2: second" in texts


def test_numbers_are_short() -> None:
    assert [number(value) for value in (1234567.8, 99.94, 1.0, 0.5, 0, math.inf)] == [
        "1,234,568",
        "99.9",
        "1.0",
        "0.500",
        "0",
        "-",
    ]
    assert not re.search("e", number(1e15))
