"""What the options about listeners amount to: who listens where, who is told what, and who uses which.

Works out values only, from options that are sound one by one; what contradicts is added to `problems`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from moldau.config.endpoint import Endpoint, listener_name, parse_endpoint, parse_protocol_map
from moldau.config.option import InvalidValue, Problem
from moldau.config.sections.network import Network
from moldau.config.sections.node import Node
from moldau.config.sections.replication import Replication

_SECURED = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Listeners(NamedTuple):
    """The listeners of a node."""

    protocols: dict[str, str]
    """The security protocol of each listener name."""
    broker: tuple[Endpoint, ...]
    """Where the broker listens."""
    controller: tuple[Endpoint, ...]
    """Where the controller listens."""
    advertised: tuple[Endpoint, ...]
    """What clients of the broker are told; a host of None means this machine's own name."""
    advertised_controller: tuple[Endpoint, ...]
    """What the quorum is told of this controller."""
    inter_broker: str
    """The name of the listener that brokers use among themselves."""


def resolve_listeners(
    node: Node, network: Network, replication: Replication, given: Iterable[str], problems: list[Problem]
) -> Listeners:
    """The listeners that the options describe; `given` holds the names of those that were set."""
    given = set(given)
    controller_names = [name.upper() for name in node.controller_listener_names]
    protocols = _protocols(network, controller_names, "listener.security.protocol.map" in given)

    endpoints = _endpoints("listeners", network.listeners, protocols, problems)
    _check_distinct_ports(endpoints, problems)
    if network.advertised_listeners is None:
        advertised = endpoints
    else:
        advertised = _endpoints("advertised.listeners", network.advertised_listeners, protocols, problems)
    return Listeners(
        protocols=protocols,
        broker=tuple(endpoint for endpoint in endpoints if endpoint.name not in controller_names),
        controller=tuple(endpoint for endpoint in endpoints if endpoint.name in controller_names),
        advertised=tuple(endpoint for endpoint in advertised if endpoint.name not in controller_names),
        advertised_controller=tuple(
            endpoint
            for name in controller_names
            for endpoint in [_first(name, advertised) or _first(name, endpoints)]
            if endpoint is not None
        ),
        inter_broker=_inter_broker(replication, protocols, given, problems),
    )


def _protocols(network: Network, controller_names: list[str], explicit: bool) -> dict[str, str]:
    """The map as set; or the default, with controllers as PLAINTEXT while nothing secured is in use."""
    protocols = parse_protocol_map(network.listener_security_protocol_map)
    if not explicit:
        names = [*controller_names, *map(listener_name, network.listeners)]
        if not any(name in _SECURED for name in names):
            protocols.update((name, "PLAINTEXT") for name in controller_names)
    return protocols


def _endpoints(
    option: str, texts: tuple[str, ...], protocols: dict[str, str], problems: list[Problem]
) -> tuple[Endpoint, ...]:
    endpoints: list[Endpoint] = []
    for text in texts:
        try:
            endpoints.append(parse_endpoint(text, protocols))
        except InvalidValue as error:
            problems.append(Problem(option, f"Error creating broker listeners from {option}: {error.reason}"))
    names = [endpoint.name for endpoint in endpoints]
    if len(set(names)) < len(names):
        shown = ",".join(map(str, endpoints))
        problems.append(Problem(option, f"Each listener must have a different name, {option}: {shown}"))
    return tuple(endpoints)


def _check_distinct_ports(endpoints: tuple[Endpoint, ...], problems: list[Problem]) -> None:
    """Two listeners share a port only as one IPv4 and one IPv6 address. Port 0 is any free port."""
    families_by_port: dict[int, list[str]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            families_by_port.setdefault(endpoint.port, []).append(_family(endpoint.host))
    for port, families in families_by_port.items():
        if len(families) > 1 and sorted(families) != ["4", "6"]:
            shown = ",".join(map(str, endpoints))
            message = f"Each listener must have a different port, listeners: {shown}, port: {port}"
            problems.append(Problem("listeners", message))


def _family(host: str | None) -> str:
    if host is None:
        return "any"
    if ":" in host:
        return "6"
    octets = host.split(".")
    return "4" if len(octets) == 4 and all(octet.isdigit() for octet in octets) else "name"


def _first(name: str, endpoints: tuple[Endpoint, ...]) -> Endpoint | None:
    return next((endpoint for endpoint in endpoints if endpoint.name == name), None)


def _inter_broker(
    replication: Replication, protocols: dict[str, str], given: set[str], problems: list[Problem]
) -> str:
    name = replication.inter_broker_listener_name
    if name is None:
        return replication.security_inter_broker_protocol
    if "security.inter.broker.protocol" in given:
        message = "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
        problems.append(Problem("inter.broker.listener.name", message))
    elif name.upper() not in protocols:
        message = (
            f"Listener with name {name.upper()} defined in inter.broker.listener.name "
            "not found in listener.security.protocol.map."
        )
        problems.append(Problem("inter.broker.listener.name", message))
    return name.upper()
