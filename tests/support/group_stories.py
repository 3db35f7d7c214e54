"""What members of a group do, one after another, at two nodes: Kafka's and ours.

Answers for sending each member's requests over a connection of its own, under the ids that each node has
given out, for comparing every answer, and what both have written of it in the end: the records of the group
in `__consumer_offsets` are the same bytes, but for times and for what a node makes up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import ndiff
from itertools import groupby
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from moldau.coordinator.placement import partition_of
from moldau.coordinator.record import CoordinatorRecord, encode_key, encode_value
from moldau.groups.records import RECORD_TYPES
from moldau.records.batch import iterate_headers
from moldau.records.record import read_records
from moldau.wire.codec import encode
from moldau.wire.ids import ZERO_UUID, Uuid
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    RequestTopicPartitions,
)
from moldau.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.describe_groups import DescribeGroupsRequest
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.wire.messages.list_groups import ListGroupsResponse
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from moldau.wire.schema import Message
from tests.support.beside import TIMEOUT_S, Pair, Peer, compare
from tests.support.node import unique_name
from tests.support.two_nodes import kafka_and_moldau

OFFSETS_PARTITIONS = 3
OPTIONS = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.max.size": "4",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.max.size": "4",
    "group.consumer.assignment.interval.ms": "0",
}
TOPICS = ("one", "two")
PARTITIONS = 3

# Times, and a hash of what has ids of its own: it counts whether there are any.
OWN = (
    "commit_timestamp",
    "expire_timestamp",
    "current_state_timestamp",
    "timestamp",
    "assignment_timestamp",
    "metadata_hash",
    "version",  # of the metadata that a pattern was matched with
)
SHOWN_MAX = 30
# A member id that nobody has told us: Kafka's UUIDs in either of their forms.
_MADE_UP = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|(?<![\w-])[\w-]{22}(?![\w-])"
)


NOWHERE = ("nowhere", "")
"""Names of topics that there are not."""
UNKNOWN_TOPIC_ID = Uuid(b"nowhere to be id")


class Nodes(NamedTuple):
    """Both, with the options and the topics from above."""

    pair: Pair
    data_dirs: tuple[Path, Path]

    def begin(self, name: str = "group", *, ignoring: str = "") -> Story:
        story = Story(self, unique_name(name), ignoring)
        story.find_coordinator()
        return story


@contextmanager
def two_nodes(root: Path) -> Iterator[Nodes]:
    with kafka_and_moldau(root, OPTIONS) as (pair, data_dirs):
        topics = [
            CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1) for name in TOPICS
        ]
        for peer in pair:
            peer.ask(CreateTopicsRequest(topics=topics), 7)
            for name in TOPICS:
                peer.topic_id(name)
        yield Nodes(pair, data_dirs)


class Teller(NamedTuple):
    """How a story's requests are made for one of the nodes, which knows the members by ids of its own."""

    peer: Peer
    ids: dict[str, str]
    topic_ids: dict[str, Uuid]
    epochs: dict[str, int]

    def id(self, member: str) -> str:
        """The id of a member who has one; a name that nobody has is an id as it stands."""
        return self.ids.get(member, member)

    def topic_id(self, topic: str) -> Uuid:
        if topic in NOWHERE:
            return UNKNOWN_TOPIC_ID
        if topic not in self.topic_ids:
            self.topic_ids[topic] = self.peer.topic_id(topic)
        return self.topic_ids[topic]


Told = Callable[[Teller, int], Message]
"""In a version: what an older one has no place for is left out."""


Begin = Callable[..., "Story"]
"""A story of a group that nobody has heard of, whose coordinator is there."""


class Story:
    """Also a context manager: at the end of a story nothing of it may have been different."""

    def __init__(self, nodes: Nodes, group_id: str, ignoring: str) -> None:
        self.group_id = group_id
        self._tellers = [Teller(peer, {}, {}, {}) for peer in nodes.pair]
        self._data_dirs = nodes.data_dirs
        self._ignoring = ignoring
        self.seen = {group_id}
        """The groups of which a list of all groups counts."""
        self._found: list[str] = []
        self._sent: dict[str, str] = {}

    def __enter__(self) -> Story:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for teller in self._tellers:
            teller.peer.close()
        if kind is None:
            deadline = monotonic() + 1
            while (found := self._differently_written()) and monotonic() < deadline:
                pass
            self._found += found
        if self._found:
            raise AssertionError("\n".join([f"{len(self._found)} differences", *self._found[:SHOWN_MAX]]))

    # ------------------------------------------------------------ asking

    def ask(self, member: str, told: Told | Message, version: int, ignoring: str = "") -> Any:
        """Kafka's answer, as it would be on any node."""
        self.send(member, told, version)
        return self.answer(member, ignoring)

    def ask_all(self, member: str, told: Sequence[Told | Message], versions: Iterable[int]) -> None:
        for each in told:
            for version in versions:
                self.ask(member, each, version)

    def look(self, told: Told | Message, versions: Iterable[int]) -> None:
        """As someone who only looks; what is under way has a second to come to an end."""
        for version in versions:
            deadline = monotonic() + 1
            while True:
                before = len(self._found)
                self.ask("onlooker", told, version)
                if len(self._found) == before or monotonic() > deadline:
                    break
                del self._found[before:]

    def send(self, member: str, told: Told | Message, version: int) -> None:
        """To a node that does not answer yet."""
        for teller in self._tellers:
            request = told if isinstance(told, Message) else told(teller, version)
            teller.peer.send(request, version, member)
        self._sent[member] = f"v{version} of {request!r:.400}"

    def answer(self, member: str, ignoring: str = "") -> Any:
        answers = []
        for teller in self._tellers:
            answer: Any = teller.peer.receive(member)
            given = getattr(answer, "member_id", None)
            if given and given not in teller.ids.values():
                teller.ids[member] = given
                teller.peer.call(given, f"the id of {member}")
            if given:
                teller.epochs[given] = getattr(answer, "member_epoch", 0)
            if isinstance(answer, ListGroupsResponse):
                answer.groups = [group for group in answer.groups if group.group_id in self.seen]
            answers.append(_plain(teller.peer, answer))
        self._found += [
            f"{self._sent[member]}: {each}" for each in compare(*answers, f"{self._ignoring} {ignoring}")
        ]
        return answers[0]

    def ask_until(
        self, member: str, told: Told | Message, version: int, is_enough: Callable[[Any], bool]
    ) -> None:
        """Again and again, until both say what has to be so before the story goes on."""
        for teller in self._tellers:
            deadline = monotonic() + TIMEOUT_S
            request = told if isinstance(told, Message) else told(teller, version)
            while not is_enough(answer := teller.peer.ask(request, version, member)):
                assert monotonic() < deadline, f"still {answer!r}"

    def give_up(self, member: str) -> None:
        """Its connection is closed, whatever it waits for."""
        for teller in self._tellers:
            teller.peer.disconnect(member)

    def find_coordinator(self) -> None:
        request = FindCoordinatorRequest(coordinator_keys=[self.group_id])
        self.ask_until("", request, 4, lambda answer: not answer.coordinators[0].error_code)
        # What coordinates it is there once it has been loaded.
        describe = DescribeGroupsRequest(groups=[self.group_id])
        self.ask_until("", describe, 5, lambda answer: not answer.groups[0].error_code)

    # ------------------------------------------------------------ what was written

    def _differently_written(self) -> list[str]:
        theirs, ours = (
            self._written(teller.peer, directory)
            for teller, directory in zip(self._tellers, self._data_dirs, strict=True)
        )
        return [f"record {line}" for line in ndiff(theirs, ours) if line[0] in "+-"]

    def _written(self, peer: Peer, data_dir: Path) -> list[str]:
        """Records that come one after another and are of one kind may be about members in any order."""
        found = []
        for kind, records in groupby(_records(data_dir, self.group_id), lambda record: type(record.key)):
            lines = [
                f"{_plain(peer, key)}: {_own(_plain(peer, value))} in version {version}"
                for key, value, version in records
            ]
            found += [f"{kind.__name__} {line}" for line in sorted(lines)]
        return found


def _records(data_dir: Path, group_id: str) -> Iterator[CoordinatorRecord]:
    index = partition_of(group_id, OFFSETS_PARTITIONS)
    for segment in sorted((data_dir / f"__consumer_offsets-{index}").glob("*.log")):
        data = memoryview(segment.read_bytes())
        for position, header in iterate_headers(data):
            if header.is_control:
                continue
            for record in read_records(data[position : position + header.size]):
                decoded = RECORD_TYPES.decode(record.key or b"", record.value)
                assert decoded is not None
                # So that the same values in the same versions are the same bytes.
                assert encode_key(decoded) == record.key
                assert encode_value(decoded) == record.value
                key: Any = decoded.key
                if group_id in (getattr(key, "group", None), getattr(key, "group_id", None)):
                    yield decoded


def _plain(peer: Peer, value: Any) -> Any:
    """With what a node has made up and nobody has heard of yet."""
    return _without_made_up(peer.plain(value))


def _without_made_up(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_made_up(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_made_up(each) for each in value]
    return _MADE_UP.sub("a new id", value) if isinstance(value, str) else value


def _own(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: each not in (0, -1) if name in OWN else _own(each) for name, each in value.items()}
    return [_own(each) for each in value] if isinstance(value, list) else value


def state_is(state: str) -> Callable[[Any], bool]:
    """Of a description of one group."""
    return lambda answer: bool(answer.groups[0].group_state == state)


# ------------------------------------------------------------ requests


def subscription(*topics: str) -> bytes:
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


def join(
    group_id: str,
    member: str = "",
    *,
    instance: str | None = None,
    protocols: Sequence[tuple[str, bytes]] = (("range", b"\0\0\0\0\0\0\xff\xff\xff\xff"),),
    protocol_type: str = "consumer",
    session_ms: int = 10_000,
    rebalance_ms: int = 20_000,
) -> Told:
    return lambda teller, version: JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=teller.id(member),
        group_instance_id=instance if version >= 5 else None,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
    )


def sync(
    group_id: str,
    member: str,
    generation: int,
    assignments: dict[str, bytes] | None = None,
    *,
    instance: str | None = None,
    protocol_type: str | None = "consumer",
    protocol_name: str | None = "range",
) -> Told:
    return lambda teller, version: SyncGroupRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=teller.id(member),
        group_instance_id=instance if version >= 3 else None,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=teller.id(name), assignment=data)
            for name, data in (assignments or {}).items()
        ],
    )


def heartbeat(group_id: str, member: str, generation: int, *, instance: str | None = None) -> Told:
    return lambda teller, version: HeartbeatRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=teller.id(member),
        group_instance_id=instance if version >= 3 else None,
    )


def leave(group_id: str, *members: tuple[str, str | None]) -> Told:
    """Before version 3 the first alone, without its instance."""

    def request(teller: Teller, version: int) -> LeaveGroupRequest:
        if version < 3:
            return LeaveGroupRequest(group_id=group_id, member_id=teller.id(members[0][0]))
        identities = [
            MemberIdentity(member_id=teller.id(member), group_instance_id=instance)
            for member, instance in members
        ]
        return LeaveGroupRequest(group_id=group_id, members=identities)

    return request


def commit(
    group_id: str,
    member: str,
    generation: int,
    *places: tuple[str, int, int],
    metadata: str | None = "",
    instance: str | None = None,
    retention_ms: int = -1,
    leader_epoch: int = -1,
) -> Told:
    """Of topics, partitions and offsets. Since version 10 topics go by their ids."""

    def request(teller: Teller, version: int) -> OffsetCommitRequest:
        topics = [
            OffsetCommitRequestTopic(
                name=topic if version < 10 else "",
                topic_id=teller.topic_id(topic) if version >= 10 else ZERO_UUID,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        committed_metadata=metadata,
                    )
                    for name, index, offset in places
                    if name == topic
                ],
            )
            for topic in dict.fromkeys(name for name, _, _ in places)
        ]
        return OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=teller.id(member),
            group_instance_id=instance if version >= 7 else None,
            retention_time_ms=retention_ms if version <= 4 else -1,
            topics=topics,
        )

    return request


def fetch(
    group_id: str,
    *places: tuple[str, list[int]],
    everything: bool = False,
    member: str | None = None,
    epoch: int = -1,
    require_stable: bool = False,
) -> Told:
    """Since version 8 in a list of groups, since version 10 with topics by their ids."""

    def request(teller: Teller, version: int) -> OffsetFetchRequest:
        stable = require_stable and version >= 7
        if version < 8:
            named = [
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in places
            ]
            return OffsetFetchRequest(
                group_id=group_id, topics=None if everything else named, require_stable=stable
            )
        group = OffsetFetchRequestGroup(
            group_id=group_id,
            member_id=None if member is None else teller.id(member),
            member_epoch=epoch,
            topics=[
                OffsetFetchRequestTopics(
                    name=name if version < 10 else "",
                    topic_id=teller.topic_id(name) if version >= 10 else ZERO_UUID,
                    partition_indexes=indexes,
                )
                for name, indexes in places
            ],
        )
        if everything:
            group.topics = None
        return OffsetFetchRequest(groups=[group], require_stable=stable)

    return request


def forget(group_id: str, *places: tuple[str, list[int]]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in indexes]
            )
            for name, indexes in places
        ],
    )


def beat(
    group_id: str,
    member: str,
    epoch: int | None = None,
    *,
    owned: dict[str, list[int]] | None = None,
    **fields: Any,
) -> Told:
    """A heartbeat of the consumer protocol, in the epoch that the member was last told of unless another one
    is given; `owned` are partitions by topic."""

    def request(teller: Teller, version: int) -> ConsumerGroupHeartbeatRequest:
        partitions = None
        if owned is not None:
            partitions = [
                RequestTopicPartitions(topic_id=teller.topic_id(topic), partitions=indexes)
                for topic, indexes in owned.items()
            ]
        return ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=teller.id(member),
            member_epoch=teller.epochs[teller.id(member)] if epoch is None else epoch,
            topic_partitions=partitions,
            **fields,
        )

    return request
