"""The Prometheus text format, version 0.0.4: samples in any order in, a page in the catalog's order out."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.server.metrics.catalog import FAMILIES, Family

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_DOC_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})


def labels_text(names: Sequence[str], values: Sequence[str]) -> str:
    """`{name="value",…}`, or nothing when there are no labels."""
    if not names:
        return ""
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


class Page:
    def __init__(self) -> None:
        self._lines: dict[Family, list[bytes]] = {}

    def add_lines(self, family: Family, lines: str) -> None:
        """Samples of whoever has thousands of them, each a whole line."""
        self._lines.setdefault(family, []).append(lines.encode())

    def add(self, family: Family, value: float, *labels: str) -> None:
        """A sample; without any label also of a family that has labels: the sum over all of them."""
        names = family.labels if labels else ()
        self.add_lines(family, f"{family.name}{labels_text(names, labels)} {value}\n")

    def add_summary(
        self, family: Family, count: int, total: float, quantiles: Sequence[tuple[float, float]], *labels: str
    ) -> None:
        lines = []
        for quantile, value in quantiles:
            text = labels_text((*family.labels, "quantile"), (*labels, str(quantile)))
            lines.append(f"{family.name}{text} {value}\n")
        text = labels_text(family.labels, labels)
        lines.append(f"{family.name}_sum{text} {total}\n")
        lines.append(f"{family.name}_count{text} {count}\n")
        self.add_lines(family, "".join(lines))

    def render(self) -> bytes:
        """A family without samples is left out."""
        parts: list[bytes] = []
        for family in FAMILIES:
            lines = self._lines.get(family)
            if lines:
                doc = family.doc.translate(_DOC_ESCAPES)
                parts.append(f"# HELP {family.name} {doc}\n# TYPE {family.name} {family.type}\n".encode())
                parts += lines
        return b"".join(parts)
