"""Clusters by name: the profiles in the user's configuration file, and which of them a command means.

    # ~/.config/moldau/config.toml
    [profiles.staging]
    bootstrap = "kafka1.example:9092,kafka2.example:9092"

The profile called `default` is the one that is meant when nothing else is said.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

DEFAULT_PROFILE = "default"
ENVIRONMENT = "MOLDAU_PROFILE"
_FILE_BYTES_MAX = 1 << 20


class BadProfile(click.ClickException):
    """The configuration file is wrong, or has no such profile."""

    exit_code = 2


def config_path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    try:
        return Path(base).expanduser() / "moldau" / "config.toml"
    except RuntimeError:
        return Path(base) / "moldau" / "config.toml"  # no such home directory: nothing is there either


def bootstraps(path: Path) -> dict[str, str]:
    """The bootstrap list of each profile; none where there is no file. Raises BadProfile."""
    try:
        with path.open("rb") as file:
            source = file.read(_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BadProfile(f"cannot read {path}: {error.strerror}") from None
    import tomllib  # most have no such file

    try:
        document = tomllib.loads(source.decode())
    except ValueError as error:
        raise BadProfile(f"{path} is not TOML: {error}") from None
    return {
        name: _bootstrap(path, name, profile) for name, profile in _table(path, document, "profiles").items()
    }


def bootstrap_of(name: str | None) -> str | None:
    """That of the named profile, or of the default one, which need not be there. Raises BadProfile."""
    path = config_path()
    known = bootstraps(path)
    if name is None:
        return known.get(DEFAULT_PROFILE)
    if name not in known:
        there = f"it has {', '.join(sorted(known))}" if known else "it has none, or is not there"
        raise BadProfile(
            f'{path} has no profile {name!r} ({there}); add [profiles.{name}] with bootstrap = "host:port"'
        )
    return known[name]


def names() -> list[str]:
    """For completion: none where the file is wrong."""
    try:
        return sorted(bootstraps(config_path()))
    except BadProfile:
        return []


def _table(path: Path, document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    for key in document:
        if key != name:
            raise BadProfile(f"{path}: {key!r} is not known; clusters are tables called [profiles.NAME]")
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise BadProfile(f"{path}: {name!r} is no table; clusters are tables called [profiles.NAME]")
    return table


def _bootstrap(path: Path, name: str, profile: object) -> str:
    if not isinstance(profile, dict) or not isinstance(profile.get("bootstrap"), str):
        raise BadProfile(f'{path}: the profile {name!r} needs bootstrap = "host:port"')
    if unknown := sorted(set(profile) - {"bootstrap"}):
        raise BadProfile(f"{path}: the profile {name!r} has {unknown[0]!r}, which is not known")
    return str(profile["bootstrap"])
