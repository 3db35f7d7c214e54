"""Addresses as options spell them: listeners, voters of the quorum, counts per address.

Listener names are compared in upper case, as Kafka normalises them. A host is None where the text leaves it
empty, which stands for every interface.
"""

import re
from typing import Final, NamedTuple

from moldau.config.option import Bound, InvalidValue

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_ENDPOINT = r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]{1,9})\Z"
_HOST_PORT = r"\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]{1,9})\Z"
_HOST = r"[0-9a-zA-Z\-%._:]*\Z"
_VOTER_FORM = "each entry should be in the form {id}@{host}:{port}"
_ADDRESS_FORM = "each entry should be in the form {host}:{port}"
_PORT_MAX = 65535


class Endpoint(NamedTuple):
    """A listener: its name in upper case, where it is, and the protocol spoken there."""

    name: str
    host: str | None
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = self.host or ""
        return f"{self.name}://{f'[{host}]' if ':' in host else host}:{self.port}"


class Voter(NamedTuple):
    """A fixed member of the metadata quorum."""

    id: int
    host: str
    port: int


def listener_name(text: str) -> str:
    """The name in `NAME://host:port`, without looking at the rest; empty if there is none."""
    name, found, _ = text.partition("://")
    return name.upper() if found else ""


def parse_endpoint(text: str, protocols: dict[str, str]) -> Endpoint:
    """The listener that `text` describes, its protocol taken from `protocols`. Raises InvalidValue."""
    match = re.match(_ENDPOINT, text)
    if match is None or not match[1]:
        raise InvalidValue(f"Unable to parse {text} to a broker endpoint", text)
    name = match[1].upper()
    if name not in protocols:
        raise InvalidValue(f"No security protocol defined for listener {name}", text)
    port = int(match[3])
    # Kafka fails to bind -1 or 70000 much later; nothing is lost by saying so here.
    if not 0 <= port <= _PORT_MAX:
        raise InvalidValue(f"Port {port} is not between 0 and {_PORT_MAX}", text)
    return Endpoint(name, match[2] or None, port, protocols[name])


def parse_address(text: str) -> tuple[str, int]:
    """The host and port in `host:port`. Raises InvalidValue."""
    match = re.match(_HOST_PORT, text)
    if match is None or not match[1] or int(match[2]) > _PORT_MAX:
        raise InvalidValue(f"Cannot be parsed: {_ADDRESS_FORM}", text)
    return match[1], int(match[2])


def parse_voter(text: str) -> Voter:
    """The voter in `id@host:port`. Raises InvalidValue."""
    number, _, address = text.partition("@")
    if not re.match(r"[0-9]{1,10}\Z", number) or int(number) >= 1 << 31:
        raise InvalidValue(f"No voter id: {_VOTER_FORM}", text)
    try:
        return Voter(int(number), *parse_address(address))
    except InvalidValue:
        raise InvalidValue(f"No address: {_VOTER_FORM}", text) from None


def parse_protocol_map(text: str) -> dict[str, str]:
    """Listener names and their protocols in `NAME:PROTOCOL,…`. Raises InvalidValue."""
    protocols: dict[str, str] = {}
    for entry in _entries(text):
        name, found, protocol = entry.rpartition(":")
        if not found or not name:
            raise InvalidValue("Each entry should be in the form {listener}:{protocol}", entry)
        if protocol not in SECURITY_PROTOCOLS:
            raise InvalidValue("Security protocol must be one of: " + ", ".join(SECURITY_PROTOCOLS), protocol)
        protocols[name.strip().upper()] = protocol
    return protocols


def parse_address_counts(text: str) -> dict[str, int]:
    """The limits in `host:count,…`. Raises InvalidValue."""
    counts: dict[str, int] = {}
    for entry in _entries(text):
        host, found, count = entry.rpartition(":")
        if not found or not host or not re.match(_HOST, host):
            raise InvalidValue("Each entry should be in the form {host}:{count}", entry)
        if not re.match(r"[0-9]{1,9}\Z", count):
            raise InvalidValue(f"The limit of {host} is not a number", count)
        counts[host] = int(count)
    return counts


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _check_voters(values: tuple[str, ...]) -> None:
    voters = [parse_voter(value) for value in values]
    if len({voter.id for voter in voters}) < len(voters):
        raise InvalidValue("Each voter must have a different id")


def _check_addresses(values: tuple[str, ...]) -> None:
    for value in values:
        parse_address(value)


def _check_protocol_map(value: str) -> None:
    parse_protocol_map(value)


def _check_address_counts(value: str) -> None:
    parse_address_counts(value)


VOTERS: Final = Bound("id@host:port of each voter", _check_voters)
ADDRESSES: Final = Bound("host:port of each", _check_addresses)
PROTOCOL_MAP: Final = Bound("LISTENER:PROTOCOL of each listener", _check_protocol_map)
ADDRESS_COUNTS: Final = Bound("host:count of each", _check_address_counts)
