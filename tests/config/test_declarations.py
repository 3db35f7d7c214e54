"""All declarations at once: complete, sound, explained, and equal to what Apache Kafka 4.3 declares."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from moldau.config.broker import BROKER_OPTIONS
from moldau.config.client_metrics import CLIENT_METRICS_OPTIONS
from moldau.config.document import RESOURCES, to_markdown
from moldau.config.group import GROUP_OPTIONS
from moldau.config.option import Option, Section, Type
from moldau.config.sections.quotas import DYNAMIC_ONLY
from moldau.config.topic import TOPIC_OPTIONS

FACTS = Path(__file__).parent / "data" / "kafka-4.3-options.tsv"
PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
KINDS: dict[str, dict[str, Option[Any]]] = {
    "broker": BROKER_OPTIONS,
    "topic": TOPIC_OPTIONS,
    "group": GROUP_OPTIONS,
    "clientmetrics": CLIENT_METRICS_OPTIONS,
}
ALL = [option for section in RESOURCES for option in section.OPTIONS]

# What differs from Kafka's declarations, and why.
DIFFERENCES: dict[str, str] = {}

# What Kafka does not have: it shows its metrics by JMX, which takes a JVM.
ADDITIONS = {"moldau.metrics.host", "moldau.metrics.port"}


def facts() -> dict[tuple[str, str], tuple[str, ...]]:
    rows = [line.split("\t") for line in FACTS.read_text().splitlines() if not line.startswith("# ")]
    return {(kind, name): tuple(rest) for kind, name, *rest in rows}


def ours(kind: str, option: Option[Any]) -> tuple[str, ...]:
    default = "\\R" if option.required else option.default_text
    return (
        option.type.name,
        "\\N" if default is None else default,
        option.mode.value if kind == "broker" else "-",
        "internal" if option.internal else "-",
    )


def test_names_types_defaults_and_modes_are_kafkas() -> None:
    declared = {
        (kind, name): ours(kind, option)
        for kind, options in KINDS.items()
        for name, option in options.items()
    }
    wanted = facts()
    assert {name for _, name in declared.keys() - wanted.keys()} == ADDITIONS
    assert wanted.keys() - declared.keys() == set()
    different = {key for key, row in wanted.items() if row != declared[key]}
    assert {name for _, name in different} == DIFFERENCES.keys(), different


def test_options_that_exist_only_dynamically_are_declared() -> None:
    assert BROKER_OPTIONS.keys() >= DYNAMIC_ONLY


@pytest.mark.parametrize("option", ALL, ids=lambda option: option.name)
def test_every_option_is_sound_and_explained(option: Option[Any]) -> None:
    assert option.doc[0].isupper()
    assert option.doc.endswith(".")
    assert option.importance in ("high", "medium", "low")
    if option.default_text is not None:
        assert option.parse(option.default_text) == option.default
    if option.type is Type.DOUBLE:
        assert isinstance(option.default, float)


@pytest.mark.parametrize("section", RESOURCES, ids=lambda section: section.__name__)
def test_attributes_follow_from_names(section: type[Section]) -> None:
    for option in section.OPTIONS:
        assert option.attribute == option.name.removeprefix(section.PREFIX).replace(".", "_")


def test_no_option_is_declared_twice() -> None:
    for options in KINDS.values():
        assert len(options) == len({id(option) for option in options.values()})
    counts = Counter(option.name for section in RESOURCES[:-3] for option in section.OPTIONS)
    assert [name for name, count in counts.items() if count > 1] == []


def test_synonyms_lead_to_options_of_the_broker() -> None:
    for option in ALL:
        for name, factor in option.synonyms:
            assert name in BROKER_OPTIONS
            assert factor >= 1


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == to_markdown(), "run `moldau config --markdown > docs/configuration.md`"
