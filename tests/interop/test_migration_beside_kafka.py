"""Groups that change between the classic and the consumer protocol, on Apache Kafka 4.3 and on Moldau alike.

Members of the classic protocol get their ids from the node: here each goes by a name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bench.kafka import KafkaServer
from moldau.groups.consumer.embedded import write_assignment
from moldau.metadata.image import ClusterImage
from moldau.metadata.persistent_map import PersistentMap
from moldau.wire import codec
from moldau.wire.errors import ErrorCode
from moldau.wire.ids import Uuid
from moldau.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.wire.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from moldau.wire.messages.describe_groups import DescribeGroupsRequest
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from moldau.wire.schema import Message
from tests.interop.test_consumer_groups_beside_kafka import FOUR, OPTIONS, Life, assigned, create
from tests.support.beside import Pair, Peer
from tests.support.node import MoldauNode

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(150),
    pytest.mark.xdist_group("beside kafka"),  # one Kafka is enough
]

AGAIN = ErrorCode.REBALANCE_IN_PROGRESS
CUSTOM = b"\x00\x00" + b"\x00\x00\x00\x00" + b"\x00\x00\x00\x02ab"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, kafka_classpath: str) -> Iterator[Pair]:
    root = tmp_path_factory.mktemp("migration-beside")
    kafka = KafkaServer(root / "kafka", properties=OPTIONS)
    moldau = MoldauNode(root / "moldau", OPTIONS)
    kafka.launch()
    try:
        with moldau:
            kafka.wait_ready()
            with Pair(Peer(kafka.bootstrap, ()), Peer(moldau.bootstrap, ())) as pair:
                create(pair, "four", 4)
                yield pair
    finally:
        kafka.kill()


@pytest.fixture
def life(pair: Pair, request: pytest.FixtureRequest) -> MixedLife:
    return MixedLife(pair, request.node.name)


class MixedLife(Life):
    """`names` are those of members, by the ids that each of the nodes gave to them."""

    def __init__(self, pair: Pair, group_id: str) -> None:
        super().__init__(pair, group_id)
        self.ids: list[dict[str, str]] = [{}, {}]
        self.generations: dict[str, int] = {}

    def ask(self, request: Callable[[dict[str, str], Peer], Message], version: int, new: str = "") -> Any:
        """What both answer, with names for ids; `new` is for an id that is given."""
        answers = []
        for peer, ids in zip(self.pair, self.ids, strict=True):
            answer: Any = peer.ask(request(ids, peer), version)
            if new and getattr(answer, "member_id", ""):
                ids[new] = answer.member_id
            answers.append(_named(peer.plain(answer), {value: name for name, value in ids.items()}))
        theirs, ours = answers
        assert ours == theirs
        return ours

    def join_classic(
        self,
        name: str,
        *topics: str,
        owned: dict[str, list[int]] | None = None,
        instance_id: str | None = None,
        protocol_type: str = "consumer",
        protocol: str = "range",
        metadata: bytes | None = None,
        is_new: bool = False,
    ) -> Any:
        if metadata is None:
            metadata = _subscription(topics, owned or {})

        def request(ids: dict[str, str], peer: Peer) -> Message:
            return JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=60_000,
                member_id="" if is_new else ids.get(name, ""),
                group_instance_id=instance_id,
                protocol_type=protocol_type,
                protocols=[JoinGroupRequestProtocol(name=protocol, metadata=metadata)],
            )

        answer = self.ask(request, 9, new=name)
        if not answer["error_code"]:
            self.generations[name] = answer["generation_id"]
        return answer

    def sync(self, name: str, assignment: bytes | None = None, **fields: Any) -> Any:
        def request(ids: dict[str, str], peer: Peer) -> Message:
            asked = SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.generations[name],
                member_id=ids[name],
                protocol_type="consumer",
                protocol_name="range",
            )
            if assignment is not None:
                asked.assignments = [SyncGroupRequestAssignment(member_id=ids[name], assignment=assignment)]
            for field, value in fields.items():
                setattr(asked, field, value)
            return asked

        return self.ask(request, 5)

    def beat_classic(self, name: str, **fields: Any) -> ErrorCode:
        def request(ids: dict[str, str], peer: Peer) -> Message:
            asked = HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self.generations[name],
                member_id=ids.get(name, name),
            )
            for field, value in fields.items():
                setattr(asked, field, value)
            return asked

        return ErrorCode(self.ask(request, 4)["error_code"])

    def leave_classic(self, *names: str, instance_id: str | None = None) -> list[ErrorCode]:
        def request(ids: dict[str, str], peer: Peer) -> Message:
            return LeaveGroupRequest(
                group_id=self.group_id,
                members=[
                    MemberIdentity(member_id=ids.get(name, name), group_instance_id=instance_id)
                    for name in names
                ],
            )

        answer = self.ask(request, 5)
        assert answer["error_code"] == 0
        return [ErrorCode(member["error_code"]) for member in answer["members"]]

    def described_classic(self) -> Any:
        answer = self.ask(lambda ids, peer: DescribeGroupsRequest(groups=[self.group_id]), 6)
        return answer["groups"][0]

    def described(self, version: int = 1) -> Any:
        asked = ConsumerGroupDescribeRequest(group_ids=[self.group_id])
        return self.ask(lambda ids, peer: asked, version)["groups"][0]

    def begin_classic(self, name: str, *topics: str, assignment: bytes | None = None) -> None:
        """A group of one member, which has all partitions of the topic."""
        assert self.join_classic(name, *topics)["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
        assert self.join_classic(name, *topics)["leader"] == name
        assert self.sync(name, assignment=assignment or _assignment("four", [0, 1, 2, 3]))["error_code"] == 0


def _named(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _named(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return sorted((_named(each, names) for each in value), key=repr)
    if isinstance(value, str):
        for own, name in names.items():
            value = value.replace(own, name)
    return value


def _subscription(topics: tuple[str, ...], owned: dict[str, list[int]], version: int = 3) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in owned.items()
        ],
    )
    return bytes(codec.encode(message, version, bytearray(version.to_bytes(2, "big"))))


def _assignment(topic: str, partitions: list[int]) -> bytes:
    topic_id = Uuid(b"x" * 16)
    image = ClusterImage(topic_names=PersistentMap({topic_id: topic}))
    return write_assignment({topic_id: partitions}, 3, image)


def test_a_classic_group_becomes_a_consumer_group_and_back(life: MixedLife) -> None:
    life.begin_classic("c", "four")
    assert assigned(life.join("m", "four")) == {}
    life.described()
    assert life.described_classic()["group_state"] == "Dead"
    # The classic member is told to join again, and gives up what it is not to have before it joins.
    assert life.beat_classic("c") is AGAIN
    assert life.sync("c")["error_code"] == AGAIN
    life.join_classic("c", "four", owned={"four": [0, 1, 2, 3]})
    life.described()
    assert life.beat_classic("c") is AGAIN
    life.sync("c")
    assert life.beat_classic("c") is AGAIN
    life.join_classic("c", "four", owned={"four": [0, 1]})
    life.sync("c")
    assert life.beat_classic("c") is ErrorCode.NONE
    assert assigned(life.beat("m")) == {FOUR: [2, 3]}
    assert life.described()["group_state"] == "Stable"
    # The last member of the consumer protocol goes.
    life.beat("m", -1)
    assert life.described()["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND
    assert life.described_classic()["group_state"] == "PreparingRebalance"
    assert life.beat_classic("c") is AGAIN
    life.join_classic("c", "four", owned={"four": [0, 1]})
    life.sync("c", assignment=_assignment("four", [0, 1, 2, 3]))
    assert life.described_classic()["group_state"] == "Stable"


def test_members_of_the_classic_protocol_join_a_consumer_group(life: MixedLife) -> None:
    life.join("m", "four")
    assert life.join_classic("c", "four")["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
    assert life.join_classic("c", "four", protocol_type="connect")["error_code"] == (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    life.join_classic("c", "four")
    life.sync("c")
    assert life.beat_classic("c") is ErrorCode.NONE
    life.described()
    life.beat("m")
    life.beat("m", owned={"four": [0, 1]})
    # What it was waiting for is free.
    assert life.beat_classic("c") is AGAIN
    life.join_classic("c", "four")
    life.sync("c")
    assert life.beat_classic("c") is ErrorCode.NONE
    assert life.described()["group_state"] == "Stable"
    # One who shares no protocol with the others may not join.
    assert life.join_classic("d", "four", protocol="sticky")["error_code"] != 0
    assert life.join_classic("c", "four", protocol="sticky")["error_code"] != 0
    life.leave_classic("c")
    life.described()


def test_classic_members_are_told_what_is_wrong(life: MixedLife) -> None:
    life.join("m", "four")
    life.join_classic("c", "four")
    life.join_classic("c", "four")
    life.generations["m"] = life.epochs["m"]
    life.generations["x"] = 3
    assert life.beat_classic("x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert life.beat_classic("m") is ErrorCode.UNKNOWN_MEMBER_ID
    assert life.beat_classic("c", generation_id=9) is ErrorCode.ILLEGAL_GENERATION
    assert life.beat_classic("c", group_instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID
    for fields in (
        {"generation_id": 9},
        {"protocol_type": "connect"},
        {"protocol_name": "sticky"},
        {"member_id": "x"},
        {"member_id": "m"},
        {"group_instance_id": "i"},
    ):
        assert life.sync("c", **fields)["error_code"] != 0
    assert sorted(life.leave_classic("x", "c", "c")) == [0, 0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert life.leave_classic("", instance_id="i") == [ErrorCode.UNKNOWN_MEMBER_ID]
    # Members of the consumer protocol may be taken out in this way, too.
    assert life.leave_classic("m") == [0]
    assert life.described()["group_state"] == "Empty"


def test_commits_of_classic_members_are_by_generation(life: MixedLife) -> None:
    life.join("m", "four")
    life.join_classic("c", "four")
    life.join_classic("c", "four")
    for generation, version in ((3, 8), (3, 9), (2, 8), (4, 8)):

        def request(ids: dict[str, str], peer: Peer, generation: int = generation) -> Message:
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
            return OffsetCommitRequest(
                group_id=life.group_id,
                member_id=ids["c"],
                generation_id_or_member_epoch=generation,
                topics=[OffsetCommitRequestTopic(name="four", partitions=[partition])],
            )

        life.ask(request, version)


@pytest.mark.parametrize("kind", ["connect", "custom", "malformed"])
def test_groups_that_cannot_become_consumer_groups_stay_classic(life: MixedLife, kind: str) -> None:
    fields: dict[str, Any] = {}
    assignment = None
    match kind:
        case "connect":
            fields["protocol_type"] = "connect"
        case "custom":
            assignment = CUSTOM
        case "malformed":
            assignment = b"\x00"
    life.join_classic("c", "four", **fields)
    life.join_classic("c", "four", **fields)
    assignment = assignment or _assignment("four", [0])
    synced = life.sync("c", assignment=assignment, protocol_type=fields.get("protocol_type", "consumer"))
    assert synced["error_code"] == 0
    refused = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ["four"], "owned": {}}
    life.refused(ErrorCode.GROUP_ID_NOT_FOUND, "m", 0, **refused)
    assert life.beat_classic("c") is ErrorCode.NONE


def test_an_instance_may_come_back_with_the_other_protocol(life: MixedLife) -> None:
    one = {"instance_id": "one"}
    life.join("m", "four", **one)
    life.join("n", "four")
    life.beat("m", owned={"four": [0, 1]}, **one)
    life.beat("n")
    # From consumer to classic: it takes the place of the member that is still there.
    life.join_classic("c", "four", owned={"four": [0, 1]}, **one)
    life.described()
    life.sync("c", group_instance_id="one")
    assert life.beat_classic("c", group_instance_id="one") is ErrorCode.NONE
    # And back.
    life.join("o", "four", **one)
    life.described()


def test_the_last_instance_that_turns_classic_makes_the_group_classic(life: MixedLife) -> None:
    one = {"instance_id": "one"}
    life.join("m", "four", **one)
    life.beat("m", -2, **one)
    life.join_classic("c", "four", **one)
    assert life.described()["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND
    life.described_classic()
    life.beat_classic("c", group_instance_id="one")
    life.sync("c", group_instance_id="one")


def test_an_empty_group_may_be_of_either_kind(life: MixedLife) -> None:
    life.join("m", "four")
    life.beat("m", -1)
    life.begin_classic("c", "four")
    assert life.leave_classic("c") == [0]
    assert life.described_classic()["group_state"] == "Empty"
    life.join("m", "four")
    life.described()
