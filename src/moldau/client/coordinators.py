"""Asking the brokers that keep groups or transactions: each key has one of them as its coordinator.

Answerable for finding coordinators, for one request to each about all that it keeps, and for one outcome per
key: what is refused for one does not fail the others. What passes by itself, such as a coordinator that is
still loading, is tried again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import IntEnum
from typing import TypeVar

from moldau.client.admin import gather_all
from moldau.client.cluster import Cluster, Node
from moldau.client.connection import Connection
from moldau.wire.api import ApiKey
from moldau.wire.errors import KafkaError, error_code
from moldau.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

T = TypeVar("T")
Outcomes = dict[str, T | KafkaError]
"""By key: the answer, or why there is none."""

_BATCHED_FROM = 4


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    def __init__(self, cluster: Cluster, key_type: KeyType) -> None:
        self._cluster = cluster
        self._key_type = key_type

    async def ask(
        self, keys: Iterable[str], ask: Callable[[Node, list[str]], Awaitable[Outcomes[T]]]
    ) -> Outcomes[T]:
        """What `ask` finds out from each coordinator about its keys, in the order of `keys`."""
        wanted = list(dict.fromkeys(keys))
        found: Outcomes[T] = {}

        def keep(outcomes: Mapping[str, T | KafkaError]) -> None:
            passing = None
            for key, outcome in outcomes.items():
                if isinstance(outcome, KafkaError) and outcome.code.retriable:
                    passing = outcome
                else:
                    found[key] = outcome
            if passing is not None:
                raise passing

        async def attempt() -> None:
            by_node: dict[int, tuple[Node, list[str]]] = {}
            for key, node in (await self._find([each for each in wanted if each not in found])).items():
                if isinstance(node, KafkaError):
                    keep({key: node})
                else:
                    by_node.setdefault(node.node_id, (node, []))[1].append(key)
            await gather_all(one(node, its_keys) for node, its_keys in by_node.values())

        async def one(node: Node, its_keys: list[str]) -> None:
            keep(await ask(node, its_keys))

        await self._cluster.retrying(attempt)
        return {key: found[key] for key in wanted}

    async def ask_one(self, key: str, ask: Callable[[Connection], Awaitable[T]]) -> T:
        """As above for one key; raises what is wrong with it."""

        async def of_one(node: Node, keys: list[str]) -> Outcomes[T]:
            return {key: await ask(await self._cluster.connection_to(node.node_id))}

        outcome = (await self.ask([key], of_one))[key]
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    async def _find(self, keys: list[str]) -> Outcomes[Node]:
        if not keys:
            return {}
        connection = await self._cluster.connection_to_any()
        if connection.version_of(ApiKey.FIND_COORDINATOR) >= _BATCHED_FROM:
            request = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=keys)
            response = await connection.request(request, FindCoordinatorResponse)
            return {found.key: _node(found) for found in response.coordinators}
        outcomes: Outcomes[Node] = {}
        for key in keys:
            one = await connection.request(
                FindCoordinatorRequest(key=key, key_type=self._key_type), FindCoordinatorResponse
            )
            outcomes[key] = _node(one)
        return outcomes


async def ask_every_node(cluster: Cluster, ask: Callable[[int, Connection], Awaitable[None]]) -> None:
    """For what nobody knows all of. `ask` is repeated for a node only until it succeeds."""
    done: set[int] = set()

    async def attempt() -> None:
        view = await cluster.refresh([])
        await gather_all(one(node_id) for node_id in view.nodes if node_id not in done)

    async def one(node_id: int) -> None:
        await ask(node_id, await cluster.connection_to(node_id))
        done.add(node_id)

    await cluster.retrying(attempt)


def _node(found: Coordinator | FindCoordinatorResponse) -> Node | KafkaError:
    if found.error_code:
        return KafkaError(error_code(found.error_code), found.error_message)
    return Node(node_id=found.node_id, host=found.host, port=found.port)
