"""`moldau config`: every option, from its declaration."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import click

from moldau.cli.output import CommandError, print_json
from moldau.config.broker import SECTIONS
from moldau.config.document import NO_EFFECT, RESOURCES, bounds_text, default_text, to_markdown
from moldau.config.option import Option, Section
from moldau.config.topic import TopicConfig

_WIDTH = 100


@click.command(
    "config",
    help="""List the options of brokers and topics.

    Without NAME all of them. A NAME may be a pattern, as in 'log.retention.*'.""",
)
@click.argument("names", metavar="[NAME...]", nargs=-1)
@click.option("--topic", "of_topic", is_flag=True, help="Only options of topics.")
@click.option("--broker", "of_broker", is_flag=True, help="Only options of brokers and controllers.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@click.option("--markdown", is_flag=True, help="Print the page docs/configuration.md.")
def command(names: Sequence[str], of_topic: bool, of_broker: bool, as_json: bool, markdown: bool) -> None:
    if of_topic and of_broker:
        raise click.UsageError("give one of --topic and --broker")
    if markdown:
        if names or of_topic or of_broker or as_json:
            raise click.UsageError("--markdown is the whole page, and goes with nothing else")
        click.echo(to_markdown(), nl=False)
        return
    sections: Iterable[type[Section]] = RESOURCES
    if of_topic:
        sections = (TopicConfig,)
    elif of_broker:
        sections = SECTIONS.values()
    found = [
        (section, option)
        for section in sections
        for option in section.OPTIONS
        if (not option.internal and not names) or any(fnmatchcase(option.name, name) for name in names)
    ]
    unknown = [name for name in names if not any(fnmatchcase(option.name, name) for _, option in found)]
    if as_json:
        print_json([_as_json(section, option) for section, option in found])
    else:
        click.echo("\n".join(_as_text(section, option) for section, option in found), nl=False)
    if unknown:
        known = [option.name for section in sections for option in section.OPTIONS]
        raise CommandError("no option is named " + ", ".join(name + _hint(name, known) for name in unknown))


def _hint(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.8)
    return f" (did you mean {near[0]}?)" if near else ""


def _as_text(section: type[Section], option: Option[Any]) -> str:
    default = default_text(option)
    facts = [section.TITLE, bounds_text(option), default if option.required else f"default {default}"]
    facts.append(_changes(section, option))
    if not option.effect:
        facts.append(NO_EFFECT)
    lines = [option.name, f"    {' · '.join(facts)}"]
    lines += textwrap.wrap(option.doc, _WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines) + "\n"


def _as_json(section: type[Section], option: Option[Any]) -> dict[str, Any]:
    return {
        "name": option.name,
        "section": section.TITLE,
        "type": option.type.name.lower(),
        "default": option.default_text,
        "required": option.required,
        "bounds": None if option.bound is None else option.bound.text,
        "changes": _changes(section, option),
        "importance": option.importance,
        "sensitive": option.sensitive,
        "has_effect": option.effect,
        "broker_options": [name for name, _ in option.synonyms],
        "doc": option.doc,
    }


def _changes(section: type[Section], option: Option[Any]) -> str:
    """Whether it can be changed while nodes run. The options of nodes say so; all others can."""
    return option.mode.value if section in SECTIONS.values() else "dynamic"
