"""The properties of a node on its own, as `moldau up` and tests start it."""

from __future__ import annotations

from collections.abc import Iterable

# One node has nobody to replicate to, and nobody to elect.
_SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
_EVERY_ADDRESS = ("0.0.0.0", "::", "")


def node_properties(
    data_dir: str, host: str = "127.0.0.1", port: int = 9092, options: Iterable[tuple[str, str]] = ()
) -> dict[str, str]:
    """The server.properties of a node on its own, with `options` over them. Its controller listens on a port
    of the system's choice.

    Clients are told the address it listens on, or where that is every address, this machine's name.
    """
    shown = f"[{host}]" if ":" in host else host
    properties = {
        **_SINGLE_NODE,
        "log.dirs": data_dir,
        "listeners": f"PLAINTEXT://{shown}:{port},CONTROLLER://127.0.0.1:0",
    }
    if host in _EVERY_ADDRESS:
        properties["advertised.listeners"] = f"PLAINTEXT://:{port}"
    properties |= options
    properties.setdefault("controller.quorum.voters", f"{properties['node.id']}@127.0.0.1:0")
    return properties
