"""The options of a node, their values, and the layers that the values come from.

A value comes from the first layer that has one: what was set for this broker while it runs, what was set
for all brokers while they run, the properties it was started with, the option's default. `BrokerConfig` is
one such state; a change of a dynamic option makes another one (`with_dynamic`), and who holds the current
one is not its business.

Invariant: a BrokerConfig is sound, each value by itself and all together. What is not is reported whole, in
one ConfigError.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Self, TypeVar

from moldau.config.endpoint import Voter, parse_voter
from moldau.config.group import GroupConfig
from moldau.config.listeners import Listeners, resolve_listeners
from moldau.config.option import ConfigError, Frozen, Mode, Option, Problem, Section
from moldau.config.relations import check_change, check_relations
from moldau.config.sections.groups import Groups, Offsets, Streams
from moldau.config.sections.log import Cleaner, Log
from moldau.config.sections.metrics import Metrics
from moldau.config.sections.network import Network
from moldau.config.sections.node import Node
from moldau.config.sections.quorum import MetadataLog, Quorum
from moldau.config.sections.quotas import Quotas
from moldau.config.sections.remote import Remote
from moldau.config.sections.replication import Replication
from moldau.config.sections.sasl import Sasl
from moldau.config.sections.security import Security
from moldau.config.sections.share import ShareCoordinator, ShareGroups
from moldau.config.sections.tls import Ssl
from moldau.config.sections.transactions import Transactions
from moldau.config.topic import TopicConfig

S = TypeVar("S", bound=Section)

SECTIONS: Final[dict[str, type[Section]]] = {
    "node": Node,
    "network": Network,
    "log": Log,
    "cleaner": Cleaner,
    "quorum": Quorum,
    "metadata_log": MetadataLog,
    "replication": Replication,
    "groups": Groups,
    "streams": Streams,
    "offsets": Offsets,
    "share_groups": ShareGroups,
    "share_coordinator": ShareCoordinator,
    "transactions": Transactions,
    "quotas": Quotas,
    "metrics": Metrics,
    "remote": Remote,
    "security": Security,
    "ssl": Ssl,
    "sasl": Sasl,
}
"""Every section by the attribute that BrokerConfig keeps it in, in the order people should read them."""

BROKER_OPTIONS: Final[dict[str, Option[Any]]] = {
    option.name: option for section in SECTIONS.values() for option in section.OPTIONS
}
"""Every broker option by its name."""

SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    name: tuple(synonym for synonym, _ in option.synonyms)
    for option in TopicConfig.OPTIONS
    if len(option.synonyms) > 1
    for name, _ in option.synonyms
}
"""Broker options that say the same in several units, such as log.retention.ms: the first one set counts."""

PLUGIN_NAMES: Final = frozenset({"super.users", "allow.everyone.if.no.acl.found"})
PLUGIN_PREFIXES: Final = ("config.providers.", "metrics.context.", "metrics.jmx.")
"""Properties of Kafka's own plug-ins, which no option declares; kept as they are."""

_LISTENER = r"listener\.name\.([^.]*)\.(.+)\Z"
_LISTENER_MECHANISM_OPTIONS = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
_CLUSTER_LEVEL_LISTENER_OPTIONS = ("max.connections", "max.connection.creation.rate", "num.network.threads")
# SSL stores can be replaced on a running broker, but only listener by listener.
_ONLY_BY_LISTENER = frozenset(
    name for name in BROKER_OPTIONS if name.startswith(("ssl.keystore.", "ssl.truststore.", "ssl.key."))
)

_REMOVED_NAMES = frozenset(
    [
        "inter.broker.protocol.version",
        "log.message.format.version",
        "log.message.downconversion.enable",
        "log.message.timestamp.difference.max.ms",
        "control.plane.listener.name",
        "broker.id.generation.enable",
        "reserved.broker.max.id",
        "auto.include.jmx.reporter",
        "group.coordinator.new.enable",
        "offsets.commit.required.acks",
        "eligible.leader.replicas.enable",
    ]
)
_REMOVED_PREFIXES = ("zookeeper.", "password.encoder.")


class BrokerConfig(Frozen):
    """One state of a node's options. Values are at `config.<section>.<attribute>`."""

    node: Node
    network: Network
    log: Log
    cleaner: Cleaner
    quorum: Quorum
    metadata_log: MetadataLog
    replication: Replication
    groups: Groups
    streams: Streams
    offsets: Offsets
    share_groups: ShareGroups
    share_coordinator: ShareCoordinator
    transactions: Transactions
    quotas: Quotas
    metrics: Metrics
    remote: Remote
    security: Security
    ssl: Ssl
    sasl: Sasl

    static: Mapping[str, str]
    """The properties that the node was started with."""
    dynamic_default: Mapping[str, str]
    """What is set for all brokers while they run."""
    dynamic_broker: Mapping[str, str]
    """What is set for this broker while it runs."""
    ignored: tuple[Problem, ...]
    """Dynamic settings that cannot be used, and why; they are left out of the values."""
    texts: Mapping[str, str]
    """The layers as one, by name, including names that are no options."""

    values: Mapping[str, Any]
    """The value of each option by its name."""

    listeners: Listeners
    topic_defaults: TopicConfig
    """What a topic without overrides has on this broker."""

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> Self:
        """The config of a node started with `properties`. Raises ConfigError with all that is wrong.

        Relations between options are looked at once every option is sound by itself.
        """
        static = dict(properties)
        # Kafka fills in whichever of the two names of the node's id is missing.
        for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
            if name not in static and other in static:
                static[name] = static[other]
        problems = [problem for name, text in static.items() for problem in _check_static(name, text, static)]
        return cls._of(static, {}, {}, problems)

    def with_dynamic(self, default: Mapping[str, str], broker: Mapping[str, str]) -> Self:
        """This config with other dynamic layers: what is set for all brokers, and for this one.

        Settings that cannot be used are ignored one by one and listed in `ignored`, since they come from the
        metadata log and have to be lived with. Raises ConfigError if what remains contradicts itself.
        """
        ignored = (
            *_check_dynamic(default, per_broker=False),
            *_check_dynamic(broker, per_broker=True),
        )
        names = {problem.name for problem in ignored}
        return self._of(
            self.static,
            {name: text for name, text in default.items() if name not in names},
            {name: text for name, text in broker.items() if name not in names},
            [],
            ignored,
        )

    def check_dynamic(self, settings: Mapping[str, str], *, per_broker: bool) -> None:
        """Raises ConfigError unless `settings` can be the dynamic layer of this broker, or of all brokers."""
        problems = _check_dynamic(settings, per_broker=per_broker)
        if problems:
            raise ConfigError(tuple(problems))
        if per_broker:
            changed = self.with_dynamic(self.dynamic_default, settings)
        else:
            changed = self.with_dynamic(settings, self.dynamic_broker)
        problems = check_change(self, changed)
        if problems:
            raise ConfigError(tuple(problems))

    @classmethod
    def _of(
        cls,
        static: Mapping[str, str],
        default: Mapping[str, str],
        broker: Mapping[str, str],
        problems: list[Problem],
        ignored: tuple[Problem, ...] = (),
    ) -> Self:
        texts = merge_layers(static, default, broker)
        config = cls()
        config.__dict__.update(
            (attribute, section.parse(texts, problems)) for attribute, section in SECTIONS.items()
        )
        if problems:
            raise ConfigError(tuple(problems))
        values = {
            option.name: value
            for attribute in SECTIONS
            for option, value in config.__dict__[attribute].items()
        }
        config.__dict__.update(
            values=MappingProxyType(values),
            static=MappingProxyType(dict(static)),
            dynamic_default=MappingProxyType(dict(default)),
            dynamic_broker=MappingProxyType(dict(broker)),
            ignored=ignored,
            texts=MappingProxyType(texts),
            listeners=resolve_listeners(config.node, config.network, config.replication, texts, problems),
            topic_defaults=_topic_defaults(values),
        )
        # Without listeners that can be read, most of what follows from them would only be noise.
        problems = problems or check_relations(config)
        if problems:
            raise ConfigError(tuple(problems))
        return config

    # What follows from the options --------------------------------------------------------------------------

    @property
    def is_broker(self) -> bool:
        return "broker" in self.node.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.node.process_roles

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The directories of the logs, without repeats."""
        return self.log.dirs if self.log.dirs is not None else self.log.dir

    @property
    def metadata_log_dir(self) -> str:
        """The directory of the metadata log."""
        return self.metadata_log.log_dir or self.log_dirs[0]

    @property
    def voters(self) -> tuple[Voter, ...]:
        """The fixed voters of the metadata quorum, if it has such."""
        return tuple(map(parse_voter, self.quorum.voters))

    def topic(self, overrides: Mapping[str, str], current: Mapping[str, str] | None = None) -> TopicConfig:
        """The config of a topic with `overrides`, which replace `current` if the topic exists.

        Raises ConfigError for overrides that a topic of this broker cannot have.
        """
        if not overrides and not current:
            return self.topic_defaults
        config = TopicConfig.from_overrides(overrides, self.topic_defaults)
        enabled = "remote.storage.enable"
        if config.remote_storage_enable and not self.remote.log_storage_system_enable:
            message = (
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            )
            raise ConfigError.of(enabled, message)
        was_enabled = current is not None and current.get(enabled, "").strip().lower() == "true"
        if was_enabled and not config.remote_storage_enable and not config.remote_log_delete_on_disable:
            message = (
                "It is invalid to disable remote storage without deleting remote data: "
                "set remote.log.delete.on.disable=true, or keep it readable by "
                "remote.log.copy.disable=true."
            )
            raise ConfigError.of(enabled, message)
        return config

    def group(self, overrides: Mapping[str, str]) -> GroupConfig:
        """The config of a group with `overrides`. Raises ConfigError for those that a group cannot have."""
        return GroupConfig.from_overrides(overrides, self.values)

    def group_in_effect(self, overrides: Mapping[str, str]) -> GroupConfig:
        """The config of a group that has `overrides`, brought within the limits that this broker sets now."""
        return GroupConfig.in_effect(overrides, self.values)

    def for_listener(self, section: type[S], listener: str, mechanism: str = "") -> S:
        """A section as one listener, and one SASL mechanism there, sees it: `listener.name.…` goes first."""
        texts = dict(self.texts)
        prefix = f"listener.name.{listener.lower()}."
        prefixes = (prefix, f"{prefix}{mechanism.lower()}.") if mechanism else (prefix,)
        for prefix in prefixes:
            texts.update(
                (name[len(prefix) :], text) for name, text in self.texts.items() if name.startswith(prefix)
            )
        return section.parse(texts, [])

    def __repr__(self) -> str:
        return f"BrokerConfig({', '.join(repr(self.__dict__[attribute]) for attribute in SECTIONS)})"


def base_name(name: str) -> str:
    """The option that `name` sets for one listener, and perhaps one SASL mechanism there; else `name`."""
    match = re.match(_LISTENER, name)
    if match is None:
        return name
    rest = match[2]
    return next((option for option in _LISTENER_MECHANISM_OPTIONS if rest.endswith(option)), rest)


def merge_layers(*layers: Mapping[str, str]) -> dict[str, str]:
    """The layers as one, the last one first: setting an option hides its synonyms in the layers below."""
    merged: dict[str, str] = {}
    for layer in layers:
        for name in layer:
            for synonym in SYNONYMS.get(name, ()):
                if synonym not in layer:
                    merged.pop(synonym, None)
        merged.update(layer)
    return merged


def _topic_defaults(values: Mapping[str, Any]) -> TopicConfig:
    changes: dict[str, Any] = {}
    for option in TopicConfig.OPTIONS:
        for name, factor in option.synonyms:
            if values[name] is not None:
                changes[option.attribute] = values[name] if factor == 1 else values[name] * factor
                break
    if changes["retention_ms"] < 0:  # the broker's options allow any negative number for "for ever"
        changes["retention_ms"] = -1
    return TopicConfig.DEFAULTS.replace(**changes)


# Checks of single properties --------------------------------------------------------------------------


def _check_static(name: str, text: str, static: Mapping[str, str]) -> list[Problem]:
    """What is wrong with a property in the file; values of options are left to their sections."""
    if name in BROKER_OPTIONS or name in PLUGIN_NAMES or name.startswith(_plugin_prefixes(static)):
        return []
    if re.match(_LISTENER, name) and (option := BROKER_OPTIONS.get(base_name(name))) is not None:
        return _check_value(option, text)
    return [Problem(name, f"Unknown property {name}{_hint(name)}")]


def _plugin_prefixes(static: Mapping[str, str]) -> tuple[str, ...]:
    remote = (
        static.get(option.name) or option.default
        for option in (Remote.log_storage_manager_impl_prefix, Remote.log_metadata_manager_impl_prefix)
    )
    return (*PLUGIN_PREFIXES, *(str(prefix) for prefix in remote))


def _hint(name: str) -> str:
    if name in _REMOVED_NAMES or name.startswith(_REMOVED_PREFIXES):
        return ": it was removed from Kafka before 4.3, take it out"
    import difflib  # Only on the way to an error: it takes as long to import as all the options.

    near = difflib.get_close_matches(name, BROKER_OPTIONS, n=1, cutoff=0.8)
    return f": did you mean {near[0]}?" if near else ""


def _check_dynamic(settings: Mapping[str, str], *, per_broker: bool) -> list[Problem]:
    """What is wrong with the settings of one dynamic layer.

    Names that no option has are let through, as by Kafka: they may be for a plug-in.
    """
    problems: list[Problem] = []
    for name, text in settings.items():
        base = base_name(name)
        option, by_listener = BROKER_OPTIONS.get(base), base != name
        mode = option.mode if option is not None and not by_listener else None
        if mode is Mode.READ_ONLY:
            message = f"Cannot update these configs dynamically: [{name}]"
        elif name in _ONLY_BY_LISTENER:
            message = (
                "These security configs can be dynamically updated only per-listener "
                f"using the listener prefix: [{name}]"
            )
        elif not per_broker and (
            mode is Mode.PER_BROKER or (by_listener and base not in _CLUSTER_LEVEL_LISTENER_OPTIONS)
        ):
            message = (
                f"Cannot update these configs at default cluster level, broker id must be specified: [{name}]"
            )
        else:
            if option is not None:
                problems.extend(_check_value(option, text))
            continue
        problems.append(Problem(name, message))
    return problems


def _check_value(option: Option[Any], text: str) -> list[Problem]:
    try:
        option.parse(text)
    except ConfigError as error:
        return list(error.problems)
    return []
