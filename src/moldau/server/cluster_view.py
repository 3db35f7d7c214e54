"""The cluster as the clients of one listener see it: the brokers they can reach, the leaders that follow from
that, and the replicas that are offline to them.

A view lasts for one request, and for one image: everything in a response is of one moment.
"""

from __future__ import annotations

from moldau.metadata.image import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    BrokerImage,
    ClusterImage,
    Endpoint,
    PartitionImage,
)
from moldau.server.context import RequestContext
from moldau.wire.ids import Uuid

NO_BROKER = -1

# Without an authorizer everyone may do all that can be done to a topic, the cluster or a group. The bits are
# Kafka's codes of operations: 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster action, 10
# describe configs, 11 alter configs, 12 idempotent write.
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
GROUP_OPERATIONS = sum(1 << code for code in (3, 6, 8, 10, 11))


class _AnyButLost:
    """The directories of a broker that registered before directories had ids."""

    def __contains__(self, directory: object) -> bool:
        return directory != DIRECTORY_LOST


class ClusterView:
    __slots__ = ("_endpoints", "_me", "_online", "image", "listener")

    def __init__(self, image: ClusterImage, listener: str, me: int) -> None:
        """`me` is the broker that answers."""
        self.image = image
        self.listener = listener
        self._me = me
        self._endpoints: dict[int, Endpoint] = {}
        self._online: dict[int, frozenset[Uuid] | _AnyButLost] = {}
        for broker in image.brokers.values():
            endpoint = broker.endpoint(listener)
            if endpoint is not None:
                self._endpoints[broker.id] = endpoint
                if not broker.fenced:
                    self._online[broker.id] = _online_directories(broker)

    @classmethod
    def of(cls, context: RequestContext) -> ClusterView:
        return cls(context.services.image(), str(context.connection.state), context.services.node_id)

    def brokers(self, *, include_fenced: bool = False) -> list[tuple[BrokerImage, Endpoint]]:
        """Those with an endpoint on this listener, by id."""
        brokers = self.image.brokers
        return [
            (brokers[id], endpoint)
            for id, endpoint in sorted(self._endpoints.items())
            if include_fenced or id in self._online
        ]

    def can_reach(self, broker_id: int) -> bool:
        """Whether the broker has an endpoint on this listener, alive or not."""
        return broker_id in self._endpoints

    def is_alive(self, broker_id: int) -> bool:
        """Whether the broker can be reached and is not fenced."""
        return broker_id in self._online

    def endpoint(self, broker_id: int) -> Endpoint:
        """Of a broker that can be reached."""
        return self._endpoints[broker_id]

    @property
    def controller_id(self) -> int:
        """Whom clients should ask for changes: any broker that lives, since it hands on what is not for it.
        The active controller itself is nobody clients could reach."""
        brokers = self.image.brokers
        me = brokers.get(self._me)
        if me is not None and not me.fenced:
            return me.id
        return min((broker.id for broker in brokers.values() if not broker.fenced), default=NO_BROKER)

    def leader_id(self, partition: PartitionImage) -> int:
        return partition.leader if partition.leader in self._endpoints else NO_BROKER

    def offline_replicas(self, partition: PartitionImage) -> list[int]:
        """Replicas whose broker is fenced or cannot be reached, or whose log directory has failed."""
        online = self._online
        return [
            replica
            for replica, directory in zip(partition.replicas, partition.directories, strict=False)
            if replica not in online or directory not in online[replica]
        ]


def _online_directories(broker: BrokerImage) -> frozenset[Uuid] | _AnyButLost:
    if not broker.log_dirs:
        return _AnyButLost()
    return frozenset((*broker.log_dirs, DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING))
