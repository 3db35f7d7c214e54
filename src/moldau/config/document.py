"""The page about all options, made from their declarations."""

from collections.abc import Iterable
from typing import Any, Final

from moldau.config.broker import SECTIONS
from moldau.config.client_metrics import ClientMetricsConfig
from moldau.config.group import GroupConfig
from moldau.config.option import Mode, Option, Section
from moldau.config.topic import TopicConfig

RESOURCES: Final[tuple[type[Section], ...]] = (
    *SECTIONS.values(),
    TopicConfig,
    GroupConfig,
    ClientMetricsConfig,
)
"""Every section with options, in the order of the page: a node's first."""

NO_EFFECT: Final = "accepted, no effect yet"

_HEAD = """\
# Configuration

Every option of Apache Kafka 4.3 by its own name, for `server.properties`, topics, groups and client metrics.
This page is made from the declarations in `src/moldau/config`; `moldau config` shows the same.

*Changes* says whether a running broker takes a new value: for itself (per-broker), for all (cluster-wide), or
not (read-only). Options marked *{no_effect}* are checked and shown like the others, but nothing depends on
them in this version.
"""


def to_markdown() -> str:
    """The text of docs/configuration.md."""
    return _HEAD.format(no_effect=NO_EFFECT) + "".join(map(_section, RESOURCES))


def bounds_text(option: Option[Any]) -> str:
    """The type and bounds of an option, for people."""
    kind = option.type.name.lower()
    return f"{kind}, {option.bound.text}" if option.bound is not None else kind


def default_text(option: Option[Any]) -> str:
    """The default of an option, for people."""
    if option.required:
        return "required"
    text = option.default_text
    return "none" if text is None else text or "empty"


def _section(section: type[Section]) -> str:
    changes = any(option.mode is not Mode.READ_ONLY for option in section.OPTIONS)
    head = ("Option", "Type and bounds", "Default", *(("Changes",) if changes else ()), "What it is for")
    lines = [_row(head), _row("---" for _ in head)]
    for option in section.OPTIONS:
        doc = option.doc if option.effect else f"{option.doc} *({NO_EFFECT.capitalize()}.)*"
        mode = (option.mode.value,) if changes else ()
        lines.append(_row((f"`{option.name}`", bounds_text(option), default_text(option), *mode, doc)))
    return f"\n## {section.TITLE}\n\n" + "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
