"""What groups of every kind have in common: what offsets, listings and deletion ask of a group."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from moldau.coordinator.record import CoordinatorRecord
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid

CheckPartition = Callable[[str, Uuid, int], None]
"""A topic's name and id, and a partition; raises the KafkaError because of which the commit is refused."""


class GroupType(Enum):
    """Kafka's names, as ListGroups tells them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class Client(NamedTuple):
    """Who sends a request. `host` is as Kafka writes it, with a slash in front of the address."""

    id: str
    host: str


class Group(Protocol):
    """The checks raise the KafkaError that the client is told."""

    @property
    def group_id(self) -> str: ...
    @property
    def type(self) -> GroupType: ...
    @property
    def protocol_type(self) -> str:
        """What ListGroups tells: "consumer", "share", or what the members of a classic group agree on."""
        ...

    @property
    def state(self) -> str:
        """Kafka's name for it, such as "Stable" or "PreparingRebalance"."""
        ...

    def is_empty(self) -> bool: ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member consumes the topic, as far as can be known. Its offsets do not expire."""
        ...

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        is_transactional: bool,
        version: int,
    ) -> CheckPartition | None:
        """`generation` is that of a classic group, the member's epoch in others. `version` is the request's:
        of OffsetCommit, or of TxnOffsetCommit if it is transactional. What is returned, if anything, has to
        agree with each partition; one that it refuses refuses the whole commit."""
        ...

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None: ...
    def check_offset_delete(self) -> None: ...

    def check_delete(self) -> None:
        """Whether the group may be deleted as a client asks for."""
        ...

    def offset_expiration_base_ms(self, topic: str, committed_ms: int) -> int | None:
        """From when on the retention of an offset counts; None while it cannot expire."""
        ...

    def should_expire(self) -> bool:
        """Whether it goes by itself once it has neither members nor offsets."""
        ...

    def tombstones(self) -> list[CoordinatorRecord]:
        """What has to be written for the group itself to be gone; its offsets are not its own."""
        ...


class GroupStore:
    """The groups of one shard by their ids. Filled by applying records and, with classic groups, by those who
    join; the maps from topics to groups are for whoever has to know who consumes a topic."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}

    def get(self, group_id: str) -> Group | None:
        return self.groups.get(group_id)

    def find(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group
