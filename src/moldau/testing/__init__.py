"""Kafka inside the tests of whoever uses Moldau: real nodes, a simulated one, and what may go wrong.

Imported by pytest wherever Moldau is installed, so nothing is imported here before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.testing.client import Record as Record
    from moldau.testing.fault_controls import Fault as Fault
    from moldau.testing.nodes import Cluster as Cluster
    from moldau.testing.nodes import Node as Node
    from moldau.testing.nodes import NodeError as NodeError
    from moldau.testing.nodes import cluster as cluster
    from moldau.testing.nodes import node as node
    from moldau.testing.world import Simulated as Simulated
    from moldau.testing.world import simulated as simulated

_HOME = {
    "Cluster": "nodes",
    "Fault": "fault_controls",
    "Node": "nodes",
    "NodeError": "nodes",
    "Record": "client",
    "Simulated": "world",
    "cluster": "nodes",
    "node": "nodes",
    "simulated": "world",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
