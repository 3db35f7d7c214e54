"""The options of a client metrics subscription (KIP-714): which clients push which metrics, and how often."""

import re
from collections.abc import Mapping
from typing import Any, Final, Self

from moldau.config.option import (
    PARTS_FILLED,
    Bound,
    ConfigError,
    InvalidValue,
    Option,
    Problem,
    Section,
    between,
    integer,
    strings,
)

SELECTORS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What a subscription may match clients by."""


def parse_match(text: str) -> tuple[str, re.Pattern[str]]:
    """The selector and the pattern of one `selector=pattern`. Raises InvalidValue."""
    # Java splits at every "=", and drops what is empty at the end.
    parts = [part.strip() for part in text.rstrip("=").split("=")]
    if len(parts) != 2 or parts[0] not in SELECTORS:
        raise InvalidValue("Must be a regular expression for one of: " + ", ".join(SELECTORS), text)
    try:
        return parts[0], re.compile(parts[1])
    except re.error:
        raise InvalidValue("Not a regular expression", text) from None


def _check_matches(values: tuple[str, ...]) -> None:
    for value in values:
        parse_match(value)


MATCHES: Final = Bound("selector=pattern of each", _check_matches)


class ClientMetricsConfig(Section):
    """Values of a subscription's options."""

    TITLE = "Client metrics subscriptions"

    metrics = strings(
        "metrics",
        (),
        PARTS_FILLED,
        doc="Prefixes of the metrics that matching clients push; empty for none, * for all. "
        "What they push is checked, counted and dropped.",
    )
    interval_ms = integer(
        "interval.ms",
        300_000,
        between(100, 3_600_000),
        doc="Time between two pushes of a client.",
    )
    match = strings(
        "match",
        (),
        MATCHES,
        doc="Which clients push, as name=regular expression; all if empty.",
    )

    @classmethod
    def from_overrides(cls, overrides: Mapping[str, str]) -> Self:
        """The subscription that `overrides` describe. Raises ConfigError for unknown and wrong ones."""
        problems = [
            Problem(name, f"Unknown client metrics configuration: {name}")
            for name in overrides
            if name not in CLIENT_METRICS_OPTIONS
        ]
        config = cls.parse(overrides, problems)
        if problems:
            raise ConfigError(tuple(problems))
        return config


CLIENT_METRICS_OPTIONS: Final[dict[str, Option[Any]]] = {
    option.name: option for option in ClientMetricsConfig.OPTIONS
}
"""Every option of a subscription by its name."""
