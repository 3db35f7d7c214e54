"""What DescribeConfigs tells of a resource: for each option its value, and which layers have a say in it.

Synonyms are listed in the order in which they would be asked: for this broker while it runs, for all
brokers while they run, the properties file, the default; within a layer, the option itself before other
units of it. An entry's source is that of its first synonym.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from moldau.config.broker import BROKER_OPTIONS, SYNONYMS, BrokerConfig, base_name
from moldau.config.client_metrics import CLIENT_METRICS_OPTIONS
from moldau.config.group import GROUP_OPTIONS
from moldau.config.option import ConfigError, Mode, Option, Type, format_value
from moldau.config.sections.quotas import DYNAMIC_ONLY
from moldau.config.topic import TOPIC_OPTIONS


class ConfigSource(IntEnum):
    """Where a value comes from, with the protocol's codes."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    """One layer's say; the value is None where it must not be shown."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One option of a resource."""

    name: str
    value: str | None
    read_only: bool
    source: ConfigSource
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: Type
    documentation: str | None


Names = Collection[str] | None
"""The options asked for; None or an empty collection stands for all."""


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Names = None
) -> list[ConfigEntry]:
    """The options of a topic with `overrides`."""
    return _describe_resource(TOPIC_OPTIONS, overrides, ConfigSource.TOPIC_CONFIG, broker, names)


def describe_new_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """What the response to its creation tells of a topic with `overrides`: texts as they were written, and
    where any unit of an option was. DescribeConfigs tells of the same topic in plain form, and looks for the
    source of an option's first unit only."""
    entries = []
    for name, option in TOPIC_OPTIONS.items():
        if option.internal and name not in overrides:
            continue
        text, source = _written(option, overrides, broker)
        entries.append(
            ConfigEntry(
                name,
                None if option.sensitive else text,
                False,
                source,
                option.sensitive,
                (),
                option.type,
                option.doc,
            )
        )
    return sorted(entries)


def _written(
    option: Option[Any], overrides: Mapping[str, str], broker: BrokerConfig
) -> tuple[str | None, ConfigSource]:
    if option.name in overrides:
        return overrides[option.name], ConfigSource.TOPIC_CONFIG
    for layer, source in _layers(broker):
        for name, factor in option.synonyms:
            if name in layer:
                return layer[name] if factor == 1 else str(int(layer[name]) * factor), source
    return option.default_text, ConfigSource.DEFAULT_CONFIG


def describe_group(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Names = None
) -> list[ConfigEntry]:
    """The options of a group with `overrides`."""
    entries = _describe_resource(GROUP_OPTIONS, overrides, ConfigSource.GROUP_CONFIG, broker, names)
    # A group option without a broker option behind it has its default as a synonym of its own.
    return [
        entry
        if (option := GROUP_OPTIONS[entry.name]).synonyms
        else entry._replace(
            synonyms=(
                *entry.synonyms,
                ConfigSynonym(entry.name, option.default_text, ConfigSource.DEFAULT_CONFIG),
            )
        )
        for entry in entries
    ]


def describe_broker(broker: BrokerConfig, names: Names = None) -> list[ConfigEntry]:
    """The options of a running broker."""
    return list(_describe_broker(broker, names))


def describe_broker_defaults(broker: BrokerConfig, names: Names = None) -> list[ConfigEntry]:
    """What is set for all brokers while they run."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    entries = []
    for name, text in broker.dynamic_default.items():
        if not names or name in names:
            entry = _broker_entry(name, text, broker)
            synonyms = tuple(synonym for synonym in entry.synonyms if synonym.source is source)
            entries.append(entry._replace(source=source, synonyms=synonyms))
    return entries


def describe_client_metrics(overrides: Mapping[str, str], names: Names = None) -> list[ConfigEntry]:
    """The options of a client metrics subscription with `overrides`."""
    entries = []
    for name, option in CLIENT_METRICS_OPTIONS.items():
        if names and name not in names:
            continue
        text, source = option.default_text, ConfigSource.DEFAULT_CONFIG
        synonyms: tuple[ConfigSynonym, ...] = ()
        if name in overrides:
            text, source = _normal(option, overrides[name]), ConfigSource.CLIENT_METRICS_CONFIG
            synonyms = (ConfigSynonym(name, text, source),)
        entries.append(ConfigEntry(name, text, False, source, False, synonyms, option.type, option.doc))
    return entries


def describe_loggers(levels: Mapping[str, str], names: Names = None) -> list[ConfigEntry]:
    """The levels of a broker's loggers."""
    source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    return [
        ConfigEntry(name, level, False, source, False, (), Type.UNKNOWN, "")
        for name, level in levels.items()
        if not names or name in names
    ]


def _describe_resource(
    options: Mapping[str, Option[Any]],
    overrides: Mapping[str, str],
    source: ConfigSource,
    broker: BrokerConfig,
    names: Names,
) -> list[ConfigEntry]:
    entries: list[ConfigEntry] = []
    for name, option in options.items():
        if (names and name not in names) or (option.internal and name not in overrides):
            continue
        synonyms: tuple[ConfigSynonym, ...] = ()
        if option.synonyms:
            synonyms = _broker_synonyms(option.synonyms[0][0], broker, option.sensitive)
        if name in overrides:
            text = _normal(option, overrides[name])
            synonyms = (ConfigSynonym(name, text, source), *synonyms)
        else:
            text = format_value(_inherited(option, broker))
        entries.append(
            ConfigEntry(
                name,
                None if option.sensitive else text,
                False,
                synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
                option.sensitive,
                synonyms,
                option.type,
                option.doc,
            )
        )
    return entries


def _inherited(option: Option[Any], broker: BrokerConfig) -> Any:
    if option.name in TOPIC_OPTIONS:
        return broker.topic_defaults.__dict__[option.attribute]
    return broker.values[option.synonyms[0][0]] if option.synonyms else option.default


def _describe_broker(broker: BrokerConfig, names: Names) -> Iterator[ConfigEntry]:
    for name, option in BROKER_OPTIONS.items():
        if (names and name not in names) or name in DYNAMIC_ONLY:
            continue
        if not option.internal or name in broker.texts:
            yield _broker_entry(name, format_value(broker.values[name]), broker)
    for name, text in broker.texts.items():
        if (name not in BROKER_OPTIONS or name in DYNAMIC_ONLY) and (not names or name in names):
            yield _broker_entry(name, text, broker)


def _broker_entry(name: str, text: str | None, broker: BrokerConfig) -> ConfigEntry:
    option = BROKER_OPTIONS.get(name)
    typed = option or BROKER_OPTIONS.get(base_name(name))
    # Of a name that no option has, nothing is known: it may well be a secret.
    sensitive = typed is None or typed.sensitive
    synonyms = _broker_synonyms(name, broker, sensitive)
    return ConfigEntry(
        name,
        None if sensitive else text,
        option is None or option.mode is Mode.READ_ONLY,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        sensitive,
        synonyms,
        typed.type if typed is not None else Type.UNKNOWN,
        option.doc if option is not None else None,
    )


def _broker_synonyms(name: str, broker: BrokerConfig, sensitive: bool) -> tuple[ConfigSynonym, ...]:
    base = base_name(name)
    names = (name, base) if base != name else SYNONYMS.get(name, (name,))
    found = [
        ConfigSynonym(synonym, None if sensitive else layer[synonym], source)
        for layer, source in _layers(broker)
        for synonym in names
        if synonym in layer
    ]
    for synonym in names:
        text = _default_text(synonym)
        if text is not None:
            shown = None if sensitive else text
            found.append(ConfigSynonym(synonym, shown, ConfigSource.DEFAULT_CONFIG))
    # Another unit of the option, or its base, is only listed after the option itself.
    first = next((index for index, synonym in enumerate(found) if synonym.name == name), len(found))
    return tuple(found[first:])


def _layers(broker: BrokerConfig) -> tuple[tuple[Mapping[str, str], ConfigSource], ...]:
    """From the one that is asked first."""
    return (
        (broker.dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (broker.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (broker.static, ConfigSource.STATIC_BROKER_CONFIG),
    )


def _default_text(name: str) -> str | None:
    option = BROKER_OPTIONS.get(name)
    return None if option is None or name in DYNAMIC_ONLY else option.default_text


def _normal(option: Option[Any], text: str) -> str | None:
    """`text` as Kafka prints its value; unchanged if it no longer has one."""
    try:
        return format_value(option.parse(text))
    except ConfigError:
        return text
