"""The options of a group, as set on the group itself.

The broker's group.* options are their defaults and their limits.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Self

from moldau.config.option import (
    Bound,
    ConfigError,
    InvalidValue,
    Option,
    Problem,
    Section,
    at_least,
    boolean,
    integer,
    one_of,
    string,
)

# ISO 8601 as java.time reads it, which takes small letters too. Kafka's own words have to be small.
_DURATION = r"by_duration:(?i:P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{1,9})?S)?)?)\Z"


def _check_offset_reset(value: str) -> None:
    if value not in ("latest", "earliest") and not re.match(_DURATION, value):
        raise InvalidValue("Value must be latest, earliest, or by_duration: and an ISO-8601 duration")


def reset_back_ms(value: str) -> int | None:
    """How far back of an offset reset by duration; None for the others."""
    found = re.match(_DURATION, value)
    if found is None:
        return None
    days, _, hours, minutes, seconds, _ = (text or "0" for text in found.groups())
    whole_ms = ((int(days[:-1] or 0) * 24 + int(hours[:-1] or 0)) * 60 + int(minutes[:-1] or 0)) * 60_000
    return whole_ms + int(float(seconds[:-1] or 0) * 1000)


OFFSET_RESET: Final = Bound("latest, earliest or by_duration:PnDTnHnMn.nS", _check_offset_reset)


class GroupConfig(Section):
    """Values of a group's options."""

    TITLE = "Groups, each by itself"

    consumer_session_timeout_ms = integer(
        "consumer.session.timeout.ms",
        45_000,
        at_least(1),
        synonyms=(("group.consumer.session.timeout.ms", 1),),
        doc="A member of this consumer group that is silent for so long is taken out.",
    )
    consumer_heartbeat_interval_ms = integer(
        "consumer.heartbeat.interval.ms",
        5000,
        at_least(1),
        synonyms=(("group.consumer.heartbeat.interval.ms", 1),),
        doc="Time between heartbeats that members of this consumer group are told to keep.",
    )
    consumer_assignment_interval_ms = integer(
        "consumer.assignment.interval.ms",
        1000,
        at_least(0),
        synonyms=(("group.consumer.assignment.interval.ms", 1),),
        doc="The least time between new assignments of this consumer group.",
    )
    share_session_timeout_ms = integer(
        "share.session.timeout.ms",
        45_000,
        at_least(1),
        synonyms=(("group.share.session.timeout.ms", 1),),
        doc="A member of this share group that is silent for so long is taken out.",
    )
    share_heartbeat_interval_ms = integer(
        "share.heartbeat.interval.ms",
        5000,
        at_least(1),
        synonyms=(("group.share.heartbeat.interval.ms", 1),),
        doc="Time between heartbeats that members of this share group are told to keep.",
    )
    share_assignment_interval_ms = integer(
        "share.assignment.interval.ms",
        1000,
        at_least(0),
        synonyms=(("group.share.assignment.interval.ms", 1),),
        doc="The least time between new assignments of this share group.",
    )
    share_record_lock_duration_ms = integer(
        "share.record.lock.duration.ms",
        30_000,
        at_least(1000),
        synonyms=(("group.share.record.lock.duration.ms", 1),),
        doc="How long a member holds a record before it is handed to another.",
    )
    share_delivery_count_limit = integer(
        "share.delivery.count.limit",
        5,
        at_least(2),
        synonyms=(("group.share.delivery.count.limit", 1),),
        doc="How often a record is handed out before it is given up.",
    )
    share_partition_max_record_locks = integer(
        "share.partition.max.record.locks",
        2000,
        at_least(100),
        synonyms=(("group.share.partition.max.record.locks", 1),),
        doc="Records of one partition that may be out with members at one time.",
    )
    share_auto_offset_reset = string(
        "share.auto.offset.reset",
        "latest",
        OFFSET_RESET,
        doc="Where a share group that is new to a partition starts: latest, "
        "earliest, or by_duration: and an ISO-8601 duration back.",
    )
    share_isolation_level = string(
        "share.isolation.level",
        "read_uncommitted",
        one_of("read_committed", "read_uncommitted"),
        doc="Whether a share group sees records of open and aborted transactions.",
    )
    share_renew_acknowledge_enable = boolean(
        "share.renew.acknowledge.enable",
        True,
        doc="Whether members may hold on to a record by renewing its lock.",
    )
    streams_session_timeout_ms = integer(
        "streams.session.timeout.ms",
        45_000,
        at_least(1),
        effect=False,
        synonyms=(("group.streams.session.timeout.ms", 1),),
        doc="A member of this streams group that is silent for so long is taken out.",
    )
    streams_heartbeat_interval_ms = integer(
        "streams.heartbeat.interval.ms",
        5000,
        at_least(1),
        effect=False,
        synonyms=(("group.streams.heartbeat.interval.ms", 1),),
        doc="Time between heartbeats that members of this streams group are told to keep.",
    )
    streams_assignment_interval_ms = integer(
        "streams.assignment.interval.ms",
        1000,
        at_least(0),
        effect=False,
        synonyms=(("group.streams.assignment.interval.ms", 1),),
        doc="The least time between new assignments of this streams group.",
    )
    streams_num_standby_replicas = integer(
        "streams.num.standby.replicas",
        0,
        at_least(0),
        effect=False,
        synonyms=(("group.streams.num.standby.replicas", 1),),
        doc="Standby copies of each stateful task.",
    )
    streams_initial_rebalance_delay_ms = integer(
        "streams.initial.rebalance.delay.ms",
        3000,
        at_least(0),
        effect=False,
        synonyms=(("group.streams.initial.rebalance.delay.ms", 1),),
        doc="How long the first assignment of this streams group, when empty, waits for more members.",
    )

    @classmethod
    def from_overrides(cls, overrides: Mapping[str, str], broker: Mapping[str, Any]) -> Self:
        """The config of a group with `overrides`; `broker` holds the values of the broker's options, by name.

        Raises ConfigError for unknown names, and for values out of bounds or out of the broker's limits.
        """
        problems: list[Problem] = []
        values: dict[str, Any] = {}
        for option in cls.OPTIONS:
            values[option.attribute] = broker[option.synonyms[0][0]] if option.synonyms else option.default
        for name, text in overrides.items():
            known = GROUP_OPTIONS.get(name)
            if known is None:
                problems.append(Problem(name, f"Unknown group config name: {name}"))
                continue
            try:
                value = values[known.attribute] = known.parse(text)
            except ConfigError as error:
                problems.extend(error.problems)
            else:
                problems.extend(_beyond_limits(name, value, broker))
        if problems:
            raise ConfigError(tuple(problems))
        return cls(values)

    @classmethod
    def in_effect(cls, overrides: Mapping[str, str], broker: Mapping[str, Any]) -> Self:
        """As `from_overrides`, for those that were taken once: what the broker's limits have come to exclude
        since then is the limit, and what they never were is as if it was not set."""
        values: dict[str, Any] = {}
        for option in cls.OPTIONS:
            value = broker[option.synonyms[0][0]] if option.synonyms else option.default
            if option.name in overrides:
                with suppress(ConfigError):
                    value = _within_limits(option.name, option.parse(overrides[option.name]), broker)
            values[option.attribute] = value
        return cls(values)


def _limits(name: str) -> tuple[str, str]:
    """The broker's options that an option of groups must not be below, and not above."""
    kind, _, rest = name.partition(".")
    rest = rest.removeprefix("num.")  # streams.num.standby.replicas is limited by …max.standby.replicas
    return f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"


def _within_limits(name: str, value: Any, broker: Mapping[str, Any]) -> Any:
    low, high = _limits(name)
    if low in broker and value < broker[low]:
        return broker[low]
    if high in broker and value > broker[high]:
        return broker[high]
    return value


def _beyond_limits(name: str, value: Any, broker: Mapping[str, Any]) -> list[Problem]:
    low, high = _limits(name)
    if low in broker and value < broker[low]:
        return [Problem(name, f"{name} must be greater than or equal to {low}")]
    if high in broker and value > broker[high]:
        return [Problem(name, f"{name} must be less than or equal to {high}")]
    return []


GROUP_OPTIONS: Final[dict[str, Option[Any]]] = {option.name: option for option in GroupConfig.OPTIONS}
"""Every group option by its name."""
