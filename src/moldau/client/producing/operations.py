"""What transactions are spoken of in: their states, what callers wait for, and requests on their way."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any, NamedTuple

from moldau.client.topology import TopicPartition
from moldau.wire.errors import KafkaError
from moldau.wire.schema import Message


class State(Enum):
    UNINITIALIZED = "not initialized"
    INITIALIZING = "being initialized"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    PREPARED = "in a prepared transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a transaction that can only be aborted"
    FATAL_ERROR = "finished by an error"


class Kind(IntEnum):
    """Kinds of requests, in the order in which they go."""

    FIND_COORDINATOR = 0
    INIT_PRODUCER_ID = 1
    ADD_TO_TRANSACTION = 2
    END_TRANSACTION = 3
    BUMP_EPOCH = 4


class OffsetAndMetadata(NamedTuple):
    """An offset to commit: of the next record to read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class GroupMetadata(NamedTuple):
    """Who commits: a member of a consumer group, or nobody in particular."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class PreparedTransaction(NamedTuple):
    """What tells a prepared transaction from any other; kept by whoever decides about it."""

    producer_id: int
    producer_epoch: int


class Operation:
    """What a caller waits for. `waiters` belongs to whoever performs effects."""

    __slots__ = ("error", "is_done", "name", "waiters")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_done = False
        self.error: KafkaError | None = None
        self.waiters: list[Any] = []


class Ask(NamedTuple):
    """A request to send. `node_id` None is any node. `version_max` None is the newest."""

    task: Task
    node_id: int | None
    message: Message
    response: type[Message]
    version_max: int | None


class Task:
    """A request on its way through the queue, again and again until it is answered for good."""

    __slots__ = (
        "attempts",
        "coordinator",
        "group",
        "kind",
        "message",
        "not_before_ms",
        "offsets",
        "operation",
    )

    def __init__(
        self,
        kind: Kind,
        operation: Operation,
        coordinator: int | None,
        message: Message | None = None,
        offsets: dict[TopicPartition, OffsetAndMetadata] | None = None,
        group: GroupMetadata | None = None,
    ) -> None:
        self.kind = kind
        self.operation = operation
        self.coordinator = coordinator  # which type it is for
        self.message = message
        self.offsets = offsets
        self.group = group
        self.attempts = 0
        self.not_before_ms = 0
