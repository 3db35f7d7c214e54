"""The node's own loggers, as the BROKER_LOGGER resource shows and sets them while the node runs.

Kafka's levels are log4j's; Python's logging has no TRACE, FATAL or OFF, so they have
numbers of their own here.
"""

from __future__ import annotations

import logging

ROOT = "root"
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
# Kafka shows a logger that is off, but lets no one turn it off.
SETTABLE_LEVELS = tuple(sorted(LEVELS.keys() - {"OFF"}))


class Loggers:
    def levels(self) -> dict[str, str]:
        """Every logger that exists, with the level it goes by."""
        names = [
            name for name, made in logging.root.manager.loggerDict.items() if isinstance(made, logging.Logger)
        ]
        found = {name: _level_name(logging.getLogger(name).getEffectiveLevel()) for name in sorted(names)}
        return {ROOT: _level_name(logging.root.level), **found}

    def exists(self, name: str) -> bool:
        return name == ROOT or isinstance(logging.root.manager.loggerDict.get(name), logging.Logger)

    def set_level(self, name: str, level: str) -> None:
        """Raises KeyError for a level that is none."""
        _logger(name).setLevel(LEVELS[level])

    def unset_level(self, name: str) -> None:
        """The logger goes by its parent's level again; the root, which has none, by INFO."""
        _logger(name).setLevel(logging.INFO if name == ROOT else logging.NOTSET)


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _level_name(number: int) -> str:
    return max(
        (name for name, level in LEVELS.items() if level <= max(number, 5)), key=lambda name: LEVELS[name]
    )
