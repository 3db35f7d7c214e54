"""Write the tables of options in docs/client.md from their declarations; with --check only say if they
differ."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from moldau.client.config import ConnectionConfig
from moldau.client.consuming.config import ConsumerConfig
from moldau.client.producing.config import ProducerConfig
from moldau.client.sharing.config import ShareConsumerConfig
from moldau.config.option import Section

PAGE = Path(__file__).parent.parent / "docs" / "client.md"
SECTIONS: tuple[type[Section], ...] = (ProducerConfig, ConsumerConfig, ShareConsumerConfig, ConnectionConfig)


def table(section: type[Section]) -> str:
    rows = ["| option | default | bounds | what it does |", "|---|---|---|---|"]
    for option in section.OPTIONS:
        default = "required" if option.required else option.default_text
        shown = f"`{default}`" if default not in (None, "required") else default or ""
        bounds = "" if option.bound is None else option.bound.text
        rows.append(f"| `{option.name}` | {shown} | {bounds} | {option.doc} |")
    return "\n".join(rows) + "\n"


def written(page: str) -> str:
    """The page with the tables as they should be."""
    for section in SECTIONS:
        begin, end = f"<!-- options of {section.__name__} -->\n", "<!-- end -->\n"
        pattern = re.compile(f"({re.escape(begin)}).*?({re.escape(end)})", re.DOTALL)
        found = pattern.search(page)
        count = len(pattern.findall(page))
        if count != 1:
            raise SystemExit(f"{PAGE.name} has {count} places for the options of {section.__name__}")
        assert found is not None
        page = f"{page[: found.end(1)]}{table(section)}{page[found.start(2) :]}"
    return page


def main() -> int:
    page = PAGE.read_text()
    made = written(page)
    if "--check" in sys.argv[1:]:
        return 0 if made == page else 1
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
