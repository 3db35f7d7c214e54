"""Groups of the consumer protocol, the same life led by members of Apache Kafka 4.3 and of Moldau: each
answer is the same, down to the words of a refusal.

Only what is random by nature is kept out of it: which partitions of several topics move first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest

from bench.kafka import KafkaServer
from moldau.wire.errors import ErrorCode
from moldau.wire.ids import Uuid
from moldau.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    RequestTopicPartitions,
)
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.delete_groups import DeleteGroupsRequest
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.wire.schema import Message
from tests.support.beside import TIMEOUT_S, Pair, Peer
from tests.support.node import MoldauNode

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(150),
    pytest.mark.xdist_group("beside kafka"),  # one Kafka is enough
]

OPTIONS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.max.size": "4",
    "group.initial.rebalance.delay.ms": "0",
}
REBALANCE_MS = 60_000
STATIC_LEAVE = -2


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, kafka_classpath: str) -> Iterator[Pair]:
    root = tmp_path_factory.mktemp("groups-beside")
    kafka = KafkaServer(root / "kafka", properties=OPTIONS)
    moldau = MoldauNode(root / "moldau", OPTIONS)
    kafka.launch()
    try:
        with moldau:
            kafka.wait_ready()
            with Pair(Peer(kafka.bootstrap, ()), Peer(moldau.bootstrap, ())) as pair:
                for name, partitions in (("growing", 1), ("four", 4), ("other", 2)):
                    create(pair, name, partitions)
                yield pair
    finally:
        kafka.kill()


@pytest.fixture
def life(pair: Pair, request: pytest.FixtureRequest) -> Life:
    return Life(pair, request.node.name)


def create(pair: Pair, name: str, partitions: int) -> None:
    for peer in pair:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer: Any = peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        assert answer.topics[0].error_code == 0
        peer.topic_id(name)


class Life:
    """Of one group, on both nodes."""

    def __init__(self, pair: Pair, group_id: str) -> None:
        self.pair = pair
        self.group_id = group_id
        self.epochs: dict[str, int] = {}
        until(pair, lambda _: FindCoordinatorRequest(coordinator_keys=[group_id]), 6, _is_found)
        until(pair, lambda _: ConsumerGroupDescribeRequest(group_ids=[group_id]), 1, _is_missing)

    def beat(self, member_id: str, epoch: int | None = None, *, version: int = 1, **fields: Any) -> Any:
        """The answer of both, who agree on it. The epoch is the member's last, if none is given."""
        if epoch is None:
            epoch = self.epochs[member_id]
        owned: dict[str, list[int]] | None = fields.pop("owned", None)
        answers = []
        for peer in self.pair:
            asked = ConsumerGroupHeartbeatRequest(
                group_id=fields.get("group_id", self.group_id), member_id=member_id, member_epoch=epoch
            )
            for name, value in fields.items():
                setattr(asked, name, value)
            if owned is not None:
                asked.topic_partitions = [
                    RequestTopicPartitions(topic_id=peer.topic_id(name), partitions=indexes)
                    for name, indexes in owned.items()
                ]
            answers.append(peer.plain(peer.ask(asked, version)))
        theirs, ours = answers
        assert ours == theirs
        if not ours["error_code"]:
            self.epochs[member_id] = ours["member_epoch"]
        return ours

    def join(self, member_id: str, *topics: str, **fields: Any) -> Any:
        if topics:
            fields["subscribed_topic_names"] = list(topics)
        fields.setdefault("rebalance_timeout_ms", REBALANCE_MS)
        return self.beat(member_id, 0, owned={}, **fields)

    def refused(self, code: ErrorCode, *args: Any, **fields: Any) -> str:
        answer = self.beat(*args, **fields)
        assert ErrorCode(answer["error_code"]) is code
        return str(answer["error_message"])

    def described(self, version: int = 1) -> Any:
        theirs, ours = (
            peer.plain(peer.ask(ConsumerGroupDescribeRequest(group_ids=[self.group_id]), version))
            for peer in self.pair
        )
        assert ours == theirs
        return ours["groups"][0]

    def committed(self, member_id: str, epoch: int, version: int, topic: str, *partitions: int) -> list[int]:
        """The codes for the partitions of a commit."""
        answers = []
        for peer in self.pair:
            of_topic = OffsetCommitRequestTopic(
                name=topic if version < 10 else "",
                topic_id=peer.topic_id(topic) if version >= 10 else Uuid(bytes(16)),
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=0)
                    for index in partitions
                ],
            )
            request = OffsetCommitRequest(
                group_id=self.group_id,
                member_id=member_id,
                generation_id_or_member_epoch=epoch,
                topics=[of_topic],
            )
            answers.append(peer.plain(peer.ask(request, version)))
        theirs, ours = answers
        assert ours == theirs
        return [each["error_code"] for each in ours["topics"][0]["partitions"]]

    def fetched(self, member_id: str | None, epoch: int) -> int:
        """The code of a fetch of offsets."""
        of_group = OffsetFetchRequestGroup(
            group_id=self.group_id,
            member_id=member_id,
            member_epoch=epoch,
            topics=[OffsetFetchRequestTopics(name="four", partition_indexes=[0])],
        )
        theirs, ours = (peer.plain(peer.ask(OffsetFetchRequest(groups=[of_group]), 9)) for peer in self.pair)
        assert ours == theirs
        return int(ours["groups"][0]["error_code"])


def until(
    pair: Pair, request: Callable[[Peer], Message], version: int, is_so: Callable[[Any], bool]
) -> list[Any]:
    """What both answer once it is so. Kafka does some things a little later than it is asked to."""
    answers = []
    for peer in pair:
        deadline = monotonic() + TIMEOUT_S
        while not is_so(answer := peer.ask(request(peer), version)):
            assert monotonic() < deadline, answer
        answers.append(answer)
    return answers


def _is_found(answer: Any) -> bool:
    return all(not each.error_code for each in answer.coordinators)


def _is_missing(answer: Any) -> bool:
    """Its coordinator has loaded, and knows of no such group."""
    return bool(answer.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND)


def assigned(answer: Any) -> dict[str, list[int]] | None:
    if answer["assignment"] is None:
        return None
    return {each["topic_id"]: each["partitions"] for each in answer["assignment"]["topic_partitions"]}


FOUR = "the id of four"


def test_partitions_go_from_one_member_to_another(life: Life) -> None:
    assert assigned(life.join("a", "four")) == {FOUR: [0, 1, 2, 3]}
    assert assigned(life.beat("a")) is None
    assert life.described()["group_state"] == "Stable"
    assert assigned(life.join("b", "four")) == {}
    assert life.described()["group_state"] == "Reconciling"
    assert assigned(life.beat("a")) == {FOUR: [0, 1]}
    assert assigned(life.beat("b")) is None
    # It is asked to give up the others, and has not.
    life.beat("a", owned={"four": [0, 1, 2, 3]})
    life.described()
    assert life.epochs["a"] < life.epochs["b"]
    life.beat("a", owned={"four": [0, 1]})
    assert life.epochs["a"] == life.epochs["b"]
    assert assigned(life.beat("b")) == {FOUR: [2, 3]}
    # All of it is told again to who tells all of it.
    full = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": ["four"]}
    assert assigned(life.beat("b", owned={"four": [2, 3]}, **full)) == {FOUR: [2, 3]}
    life.described(version=0)
    life.beat("a", -1)
    assert life.described()["group_state"] == "Assigning"
    assert assigned(life.beat("b")) == {FOUR: [0, 1, 2, 3]}
    life.beat("b", -1)
    assert life.described()["group_state"] == "Empty"
    assert assigned(life.join("c", "four")) == {FOUR: [0, 1, 2, 3]}


def test_members_who_have_lost_track_are_fenced(life: Life) -> None:
    life.refused(ErrorCode.GROUP_ID_NOT_FOUND, "a", 1)
    life.join("a", "four")
    life.refused(ErrorCode.UNKNOWN_MEMBER_ID, "b", 1)
    life.refused(ErrorCode.UNKNOWN_MEMBER_ID, "b", -1)
    life.refused(ErrorCode.FENCED_MEMBER_EPOCH, "a", 9)
    life.refused(ErrorCode.FENCED_MEMBER_EPOCH, "a", 1)
    life.join("b", "four")
    life.beat("a", owned={"four": [0, 1]})
    # The answer with the newer epoch may not have come.
    before = life.epochs["a"] - 1
    life.refused(ErrorCode.FENCED_MEMBER_EPOCH, "a", before)
    life.refused(ErrorCode.FENCED_MEMBER_EPOCH, "a", before, owned={"four": [0, 1, 2]})
    life.beat("a", before, owned={"four": [0]})
    life.refused(ErrorCode.FENCED_MEMBER_EPOCH, "a", before - 1, owned={})
    # Who joins again is the same member, without partitions.
    life.join("a", "four")
    life.described()


def test_requests_that_say_too_little_are_refused(life: Life) -> None:
    invalid = ErrorCode.INVALID_REQUEST
    joining: dict[str, Any] = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ["four"], "owned": {}}
    life.refused(invalid, "", 0, **joining)
    life.refused(invalid, "", 1, version=0)
    life.refused(invalid, "", -1, version=0)
    life.refused(invalid, " ", 0, **joining)
    life.refused(invalid, "a", 0, **{**joining, "rebalance_timeout_ms": -1})
    life.refused(invalid, "a", 0, **{**joining, "owned": {"four": [0]}})
    life.refused(invalid, "a", 0, **{**joining, "owned": None})
    life.refused(invalid, "a", 0, **{**joining, "subscribed_topic_names": None})
    life.refused(invalid, "a", 0, **joining, instance_id="")
    life.refused(invalid, "a", 0, **joining, rack_id=" ")
    life.refused(invalid, "a", 0, **joining, group_id="")
    life.refused(invalid, "a", 0, **joining, group_id=" ")
    life.refused(invalid, "a", -2)
    life.refused(invalid, "a", -3)
    life.refused(ErrorCode.UNSUPPORTED_ASSIGNOR, "a", 0, **joining, server_assignor="theirs")
    life.refused(ErrorCode.UNSUPPORTED_ASSIGNOR, "a", 0, **joining, server_assignor="")
    assert life.described()["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    "regex",
    ["[a", "(a", "a)", "a\\", "*", "a**", "a{1001}", "(?P<n", "[z-a]", "\\q", "(?i", "(?=a)", "[[:foo:]]"],
)
def test_patterns_that_are_none_are_refused(life: Life, regex: str) -> None:
    fields = {"rebalance_timeout_ms": 1000, "subscribed_topic_regex": regex, "owned": {}}
    life.refused(ErrorCode.INVALID_REGULAR_EXPRESSION, "a", 0, **fields)


def test_a_group_is_full_at_some_time(life: Life) -> None:
    for member_id in "abcd":
        life.join(member_id, "four")
    fields = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ["four"], "owned": {}}
    life.refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "e", 0, **fields)
    life.join("d", "four")


def test_instances_come_back_for_what_they_had(life: Life) -> None:
    one = {"instance_id": "one"}
    assert assigned(life.join("a", "four", **one)) == {FOUR: [0, 1, 2, 3]}
    life.described()
    joining: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": ["four"]}
    life.refused(ErrorCode.UNRELEASED_INSTANCE_ID, "b", 0, owned={}, **one, **joining)
    life.refused(ErrorCode.FENCED_INSTANCE_ID, "b", 2, **one)
    life.refused(ErrorCode.UNKNOWN_MEMBER_ID, "b", 2, instance_id="two")
    life.refused(ErrorCode.FENCED_INSTANCE_ID, "b", STATIC_LEAVE, **one)
    life.refused(ErrorCode.UNKNOWN_MEMBER_ID, "b", STATIC_LEAVE, instance_id="two")
    life.beat("a", STATIC_LEAVE, **one)
    life.described()
    assert assigned(life.join("b", "four", **one)) == {FOUR: [0, 1, 2, 3]}
    life.refused(ErrorCode.FENCED_INSTANCE_ID, "a", 2, **one)
    life.refused(ErrorCode.UNKNOWN_MEMBER_ID, "a", 2)
    life.described()
    life.beat("b", **one)
    life.beat("b", -1, **one)
    life.described()


def test_a_subscription_that_shrinks_takes_partitions_back_at_once(life: Life) -> None:
    life.join("a", "four", "other")
    life.beat("a", subscribed_topic_names=["four"])
    life.described()
    life.beat("a", owned={"four": [0, 1, 2, 3]})
    life.described()
    life.beat("a", subscribed_topic_names=[])
    life.described()
    life.beat("a", owned={})
    life.described()


def test_assignors_are_chosen_by_most_members(life: Life) -> None:
    life.join("b", "four")
    life.join("a", "four", server_assignor="range")
    assert life.described()["assignor_name"] == "range"
    life.beat("b", server_assignor="uniform")
    life.beat("a", server_assignor="uniform")
    assert life.described()["assignor_name"] == "uniform"


def test_topics_that_grow_are_handed_out(life: Life) -> None:
    assert assigned(life.join("a", "growing", "later")) == {"the id of growing": [0]}
    for peer in life.pair:
        grown = CreatePartitionsTopic(name="growing", count=2, assignments=None)
        peer.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=30_000), 3)
    beat = ConsumerGroupHeartbeatRequest(group_id=life.group_id, member_id="a", member_epoch=2)
    until(life.pair, lambda _: beat, 1, lambda answer: answer.assignment is not None or answer.error_code)
    life.described()


def test_patterns_are_matched_with_topics(life: Life) -> None:
    joined = life.join("a", subscribed_topic_regex="fo[u-x]r|oth")
    assert assigned(joined) == {}
    wait_assigned(life, "a", joined["member_epoch"])
    life.described()
    # A pattern that is known is assigned at once.
    joined = life.join("b", subscribed_topic_regex="fo[u-x]r|oth")
    life.described()


def wait_assigned(life: Life, member_id: str, epoch: int) -> None:
    beat = ConsumerGroupHeartbeatRequest(group_id=life.group_id, member_id=member_id, member_epoch=epoch)
    theirs, ours = until(life.pair, lambda _: beat, 1, lambda answer: answer.assignment is not None)
    assert ours.member_epoch == theirs.member_epoch


def test_commits_are_those_of_members(life: Life) -> None:
    unknown, stale = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH
    life.join("a", "four")
    assert life.committed("a", 2, 8, "four", 0) == [ErrorCode.UNSUPPORTED_VERSION]
    assert life.committed("a", 2, 9, "four", 0, 1) == [0, 0]
    assert life.committed("a", 2, 10, "four", 0, 1) == [0, 0]
    assert life.committed("a", 1, 9, "four", 0) == [stale]
    assert life.committed("a", 3, 9, "four", 0) == [stale]
    assert life.committed("x", 2, 9, "four", 0) == [unknown]
    assert life.committed("", -1, 9, "four", 0) == [unknown]
    assert life.fetched("a", 2) == 0
    assert life.fetched("a", 1) == stale
    assert life.fetched("x", 2) == unknown
    assert life.fetched(None, -1) == 0
    life.join("b", "four")
    life.beat("a", owned={"four": [0, 1]})
    life.beat("b")
    # A member may commit what it has had since an earlier epoch, and nothing that came to it later.
    for version in (9, 10):
        assert life.committed("a", 2, version, "four", 0) == [0]
        assert life.committed("a", 2, version, "four", 2) == [stale]
        assert life.committed("a", 2, version, "four", 0, 2) == [stale, stale]
        assert life.committed("a", 2, version, "other", 0) == [stale]
        assert life.committed("b", 2, version, "four", 2) == [stale]
        assert life.committed("b", 3, version, "four", 2) == [0]


def test_groups_without_members_may_be_deleted(life: Life) -> None:
    life.join("a", "four")
    request = DeleteGroupsRequest(groups_names=[life.group_id])
    assert life.pair.differences(request, [2]) == []
    life.beat("a", -1)
    assert life.committed("", -1, 9, "four", 0) == [0]
    assert life.pair.differences(request, [2]) == []
    assert life.described()["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND
