"""Offsets of groups: commits, transactions, deletion, expiry; and that a replay comes to the same."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.config.broker import BrokerConfig
from moldau.coordinator.decision import Decision
from moldau.coordinator.record import CoordinatorRecord
from moldau.groups.environment import GroupEnvironment
from moldau.groups.offset_commit import CommittedOffset, OffsetCommit, OffsetRecord
from moldau.groups.offsets import GROUPS_AT_ONCE
from moldau.groups.records import (
    RECORD_TYPES,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from moldau.groups.shard import GroupShard
from moldau.metadata.delta import apply_records
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import ZERO_UUID, Uuid
from moldau.wire.messages import offset_delete, offset_fetch

MINUTE_MS = 60_000
RETENTION_MS = 10_080 * MINUTE_MS
CHECK_MS = 600_000


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"."))


class Groups:
    """A shard whose decisions are carried out at once, and kept as the log would keep them."""

    def __init__(self, *topics: str, **options: str) -> None:
        config = BrokerConfig.parse(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": "1@127.0.0.1:9093",
                "log.dirs": "/data",
                **{name.replace("_", "."): value for name, value in options.items()},
            }
        )
        self.environment = GroupEnvironment(config=config, image=ClusterImage(), random=Random(1))
        for name in topics or ("t",):
            self.create(name)
        self.log: list[tuple[bytes, bytes | None, int] | tuple[int, bool]] = []
        self.now_ms = 1_000_000
        self.shard = GroupShard(0, self.environment)
        self.carry_out(self.shard.on_loaded(self.now_ms))

    def create(self, name: str) -> None:
        partitions = [
            PartitionRecord(partition_id=index, topic_id=topic_id(name), replicas=[1], isr=[1], leader=1)
            for index in range(3)
        ]
        records = [TopicRecord(name=name, topic_id=topic_id(name)), *partitions]
        self.environment.image, _ = apply_records(self.environment.image, records)

    def remove(self, name: str) -> None:
        self.environment.image, delta = apply_records(
            self.environment.image, [RemoveTopicRecord(topic_id=topic_id(name))]
        )
        self.carry_out(self.shard.on_image(self.now_ms, delta))

    def carry_out(self, decision: Decision[Any]) -> Any:
        producer_id = decision.producer[0]
        for record in decision.records:
            self.log.append((*record.encode(), producer_id))
            self.shard.apply(record, producer_id)
        return decision.reply

    def write(self, record: CoordinatorRecord, producer_id: int = -1) -> None:
        self.carry_out(Decision(records=[record], producer=(producer_id, 0)))

    def end(self, producer_id: int, *, is_committed: bool) -> None:
        self.log.append((producer_id, is_committed))
        self.shard.apply_marker(producer_id, is_committed=is_committed)

    def commit(
        self,
        offsets: dict[int, int],
        *,
        group: str = "g",
        topic: str = "t",
        metadata: str = "",
        generation: int = -1,
        member: str = "",
        version: int = 9,
        retention_ms: int = -1,
    ) -> dict[int, int]:
        asked = OffsetCommit(
            group,
            generation,
            member,
            None,
            retention_ms,
            version,
            [(topic, topic_id(topic), index, offset, -1, metadata) for index, offset in offsets.items()],
        )
        codes = self.carry_out(self.shard.commit_offsets(self.now_ms, asked))
        return dict(zip(offsets, codes, strict=True))

    def fetch(
        self, *indexes: int, group: str = "g", topic: str = "t", id: Uuid = ZERO_UUID, stable: bool = False
    ) -> dict[int, tuple[int, int]]:
        """Offset and error code by partition."""
        asked = offset_fetch.OffsetFetchRequestGroup(
            group_id=group,
            topics=[
                offset_fetch.OffsetFetchRequestTopics(
                    name=topic, topic_id=id, partition_indexes=list(indexes)
                )
            ],
        )
        response = self.carry_out(self.shard.fetch_offsets(asked, require_stable=stable))
        return {
            each.partition_index: (each.committed_offset, each.error_code)
            for each in response.topics[0].partitions
        }

    def fetch_all(self, group: str = "g") -> dict[str, dict[int, int]]:
        asked = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None)
        response = self.carry_out(self.shard.fetch_offsets(asked, require_stable=False))
        return {
            topic.name: {each.partition_index: each.committed_offset for each in topic.partitions}
            for topic in response.topics
        }

    def pass_time(self, milliseconds: int) -> None:
        end_ms = self.now_ms + milliseconds
        while (next_ms := self.shard.timers.next_ms()) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            while (event := self.shard.timers.take_due(self.now_ms)) is not None:
                self.carry_out(self.shard.on_timer(self.now_ms, event))
        self.now_ms = end_ms

    def replay(self) -> Groups:
        """Another shard, of the same log."""
        other = Groups.__new__(Groups)
        other.environment, other.now_ms, other.log = self.environment, self.now_ms, list(self.log)
        other.shard = GroupShard(0, self.environment)
        for entry in self.log:
            if len(entry) == 2:
                other.shard.apply_marker(entry[0], is_committed=bool(entry[1]))
                continue
            record = RECORD_TYPES.decode(entry[0], entry[1])
            assert record is not None
            other.shard.apply(record, entry[2])
        other.carry_out(other.shard.on_loaded(self.now_ms))
        return other

    def kept(self) -> dict[str, Any]:
        """What there is of offsets, but for the order in which it came."""
        return {
            group: {
                topic: {index: each._replace(sequence=0) for index, each in partitions.items()}
                for topic, partitions in self.shard.offsets.of_group(group).items()
            }
            for group in self.shard.groups.groups
            if self.shard.offsets.of_group(group)
        }


def offset_record(
    offset: int, *, group: str = "g", topic: str = "t", partition: int = 0
) -> CoordinatorRecord:
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    return CoordinatorRecord(key, OffsetCommitValue(offset=offset, topic_id=topic_id(topic)), 4)


def stable_group(
    *names_of_topics: str,
    protocol_type: str = "consumer",
    topics: Iterable[str] = (),
    session_timeout_ms: int = 2**31 - 1,
) -> Groups:
    """A classic group with one member, as the log tells of it."""
    groups = Groups(*names_of_topics)
    names = list(topics)
    subscription = b"\0\0" + len(names).to_bytes(4, "big")
    for name in names:
        subscription += len(name).to_bytes(2, "big") + name.encode()
    member = MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/h",
        rebalance_timeout=10_000,
        session_timeout=session_timeout_ms,
        subscription=subscription + b"\xff\xff\xff\xff",
        assignment=b"",
    )
    value = GroupMetadataValue(
        protocol_type=protocol_type, generation=3, protocol="range", leader="m", members=[member]
    )
    return loaded_with(groups, value)


def loaded_with(groups: Groups, value: GroupMetadataValue) -> Groups:
    record = CoordinatorRecord(GroupMetadataKey(group="g"), value, 3)
    groups.log.append((*record.encode(), -1))
    return groups.replay()


def empty_group(groups: Groups) -> Groups:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol=None,
        leader=None,
        current_state_timestamp=groups.now_ms,
        members=[],
    )
    return loaded_with(groups, value)


def code_of(raised: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return raised.value.code


# ---------------------------------------------------------------- commit and fetch


def test_what_was_committed_is_fetched() -> None:
    groups = Groups()
    assert groups.commit({0: 5, 2: 7}) == {0: 0, 2: 0}
    assert groups.fetch(0, 1, 2) == {0: (5, 0), 1: (-1, 0), 2: (7, 0)}
    assert groups.fetch_all() == {"t": {0: 5, 2: 7}}


def test_a_group_that_is_not_known_has_no_offsets() -> None:
    groups = Groups()
    assert groups.fetch(0) == {0: (-1, 0)}
    assert groups.fetch_all() == {}


def test_an_offset_is_written_as_kafka_writes_it() -> None:
    groups = Groups()
    groups.commit({0: 1000}, group="gold", topic="plain", metadata="")
    groups.create("plain")
    key, value, _ = groups.log[-1]
    assert key == b"\x00\x01\x00\x04gold\x00\x05plain\x00\x00\x00\x00"
    assert value == (
        b"\x00\x04" + (1000).to_bytes(8, "big") + b"\xff\xff\xff\xff\x01"
        b"" + groups.now_ms.to_bytes(8, "big") + b"\x01\x00\x10" + topic_id("plain")
    )


def test_a_retention_of_one_s_own_takes_the_layout_that_has_room_for_it() -> None:
    groups = Groups()
    groups.commit({0: 5}, version=3, retention_ms=1000)
    assert groups.log[-1][1][:2] == b"\0\1"
    assert groups.replay().kept() == {
        "g": {"t": {0: CommittedOffset(5, -1, "", groups.now_ms, groups.now_ms + 1000, ZERO_UUID, 0)}}
    }


@given(
    texts=st.tuples(st.text(max_size=50), st.text(max_size=50), st.text(max_size=150)),
    numbers=st.tuples(st.integers(-1, 2**31 - 1), st.integers(-1, 2**63 - 1), st.integers(-1, 2**31 - 1)),
    times=st.tuples(st.integers(0, 2**62), st.just(-1) | st.integers(0, 2**62)),
    id=st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16).map(Uuid),
)
def test_the_record_of_an_offset_is_what_the_declared_messages_are(texts, numbers, times, id) -> None:
    group, topic, metadata = texts
    partition, offset, leader_epoch = numbers
    record = OffsetRecord(group, topic, partition, offset, leader_epoch, metadata, *times, id)
    assert record.encode() == record.declared().encode()
    decoded = RECORD_TYPES.decode(*record.encode())
    if times[1] == -1:
        assert decoded == record.declared()
    by_hand, by_replay = Groups(), Groups()
    by_hand.shard.apply(record, -1)
    by_replay.shard.apply(record.declared(), -1)
    assert by_hand.kept() == by_replay.kept()


def test_metadata_that_is_too_long_is_refused_for_its_partition() -> None:
    groups = Groups(offset_metadata_max_bytes="10")
    assert groups.commit({0: 5}, metadata="x" * 10) == {0: 0}
    assert groups.commit({0: 6}, metadata="x" * 11) == {0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert groups.fetch(0) == {0: (5, 0)}


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_generation_of_a_group_that_is_not_there_is_refused(version: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        Groups().commit({0: 5}, generation=1, member="m", version=version)
    assert code_of(raised) == code


def test_a_group_with_members_takes_commits_of_its_members_only() -> None:
    groups = stable_group()
    with pytest.raises(KafkaError) as raised:
        groups.commit({0: 5})
    assert code_of(raised) == ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(KafkaError) as raised:
        groups.commit({0: 5}, generation=2, member="m")
    assert code_of(raised) == ErrorCode.ILLEGAL_GENERATION
    assert groups.commit({0: 5}, generation=3, member="m") == {0: 0}


def test_a_member_that_commits_is_alive() -> None:
    groups = stable_group(session_timeout_ms=1_000_000)
    for _ in range(5):
        groups.pass_time(900_000)
        groups.commit({0: 5}, generation=3, member="m")
    groups.pass_time(1_100_000)
    with pytest.raises(KafkaError):
        groups.commit({0: 5}, generation=3, member="m")


def test_an_offset_of_a_topic_of_the_same_name_does_not_count() -> None:
    groups = Groups()
    groups.commit({0: 5})
    assert groups.fetch(0, id=topic_id("t")) == {0: (5, 0)}
    assert groups.fetch(0, id=topic_id("another")) == {0: (-1, 0)}


def test_the_oldest_layout_is_read() -> None:
    groups = Groups()
    groups.write(
        CoordinatorRecord(
            LegacyOffsetCommitKey(group="g", topic="t", partition=1),
            LegacyOffsetCommitValue(offset=3, metadata="old", commit_timestamp=groups.now_ms),
        )
    )
    assert groups.fetch(1) == {1: (3, 0)}


# ---------------------------------------------------------------- transactions


def test_what_a_transaction_commits_counts_from_its_end_on() -> None:
    groups = Groups()
    groups.commit({0: 1})
    groups.write(offset_record(9), producer_id=7)
    assert groups.fetch(0) == {0: (1, 0)}
    assert groups.fetch(0, 1, stable=True) == {0: (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT), 1: (-1, 0)}
    groups.end(7, is_committed=True)
    assert groups.fetch(0, stable=True) == {0: (9, 0)}


def test_what_an_aborted_transaction_committed_is_gone() -> None:
    groups = Groups()
    groups.write(offset_record(9), producer_id=7)
    groups.end(7, is_committed=False)
    assert groups.fetch(0, stable=True) == {0: (-1, 0)}


def test_a_commit_that_came_later_than_that_of_a_transaction_stays() -> None:
    groups = Groups()
    groups.write(offset_record(9), producer_id=7)
    groups.commit({0: 20})
    groups.end(7, is_committed=True)
    assert groups.fetch(0) == {0: (20, 0)}


def test_a_marker_of_a_producer_without_offsets_is_nothing() -> None:
    groups = Groups()
    groups.end(7, is_committed=True)
    assert groups.kept() == {}


# ---------------------------------------------------------------- deletion


def delete(groups: Groups, *indexes: int) -> dict[int, int]:
    request = offset_delete.OffsetDeleteRequest(
        group_id="g",
        topics=[
            offset_delete.OffsetDeleteRequestTopic(
                name="t",
                partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=i) for i in indexes],
            )
        ],
    )
    response = groups.carry_out(groups.shard.delete_offsets(request))
    return {each.partition_index: each.error_code for each in response.topics[0].partitions}


def test_deleted_offsets_are_gone_and_the_others_stay() -> None:
    groups = Groups()
    groups.commit({0: 5, 1: 6})
    assert delete(groups, 0, 2) == {0: 0, 2: 0}
    assert groups.fetch_all() == {"t": {1: 6}}
    assert groups.replay().kept() == groups.kept()


def test_offsets_of_a_topic_that_is_consumed_are_not_deleted() -> None:
    groups = stable_group(topics=["t"])
    groups.commit({0: 5}, generation=3, member="m")
    assert delete(groups, 0) == {0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert groups.fetch(0) == {0: (5, 0)}


def test_offsets_of_no_group_cannot_be_deleted() -> None:
    with pytest.raises(KafkaError) as raised:
        delete(Groups(), 0)
    assert code_of(raised) == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deleted_group_leaves_nothing_behind() -> None:
    groups = Groups()
    groups.commit({0: 5})
    groups.write(offset_record(9, partition=1), producer_id=7)
    groups.carry_out(groups.shard.delete_group("g"))
    groups.end(7, is_committed=True)
    assert groups.kept() == {}
    assert groups.replay().kept() == {}


def test_a_group_with_members_is_not_deleted() -> None:
    groups = stable_group()
    with pytest.raises(KafkaError) as raised:
        groups.shard.delete_group("g")
    assert code_of(raised) == ErrorCode.NON_EMPTY_GROUP


def test_offsets_go_with_their_topic() -> None:
    groups = Groups("t", "u")
    groups.commit({0: 5})
    groups.commit({0: 6}, topic="u")
    groups.write(offset_record(9, partition=1), producer_id=7)
    groups.remove("t")
    groups.end(7, is_committed=True)
    assert groups.fetch_all() == {"u": {0: 6}}


def test_offsets_of_a_topic_that_went_while_nobody_led_go_at_the_load() -> None:
    groups = Groups("t", "u")
    groups.commit({0: 5})
    groups.commit({0: 6}, topic="u")
    groups.environment.image, _ = apply_records(
        groups.environment.image, [RemoveTopicRecord(topic_id=topic_id("t"))]
    )
    assert groups.replay().fetch_all() == {"u": {0: 6}}


# ---------------------------------------------------------------- expiry


def test_offsets_without_a_group_expire_after_their_commit() -> None:
    groups = Groups()
    groups.commit({0: 5})
    groups.pass_time(RETENTION_MS - 2 * CHECK_MS)
    groups.commit({1: 6})
    groups.pass_time(3 * CHECK_MS)
    assert groups.fetch_all() == {"t": {1: 6}}
    groups.pass_time(RETENTION_MS)
    assert groups.fetch_all() == {}
    assert groups.shard.groups.get("g") is None
    assert groups.shard.offsets.expirations == 2


def test_offsets_of_a_group_that_lost_its_members_expire_from_then_on() -> None:
    groups = Groups()
    groups.commit({0: 5})
    groups.pass_time(RETENTION_MS - 2 * CHECK_MS)
    groups = empty_group(groups)
    groups.pass_time(RETENTION_MS - 2 * CHECK_MS)
    assert groups.fetch_all() == {"t": {0: 5}}
    groups.pass_time(3 * CHECK_MS)
    assert groups.fetch_all() == {}
    assert groups.shard.groups.get("g") is None


def test_of_a_group_with_members_only_what_it_does_not_consume_expires() -> None:
    groups = stable_group("t", "u", topics=["t"])
    groups.commit({0: 5}, generation=3, member="m")
    groups.commit({0: 6}, topic="u", generation=3, member="m")
    groups.pass_time(RETENTION_MS + 2 * CHECK_MS)
    assert groups.fetch_all() == {"t": {0: 5}}


def test_offsets_of_members_that_tell_nothing_of_their_topics_do_not_expire() -> None:
    groups = stable_group(protocol_type="connect")
    groups.commit({0: 5}, generation=3, member="m")
    groups.pass_time(2 * RETENTION_MS)
    assert groups.fetch_all() == {"t": {0: 5}}


def test_an_expiry_of_one_s_own_counts_instead() -> None:
    groups = Groups()
    groups.commit({0: 5}, version=3, retention_ms=1000)
    groups.commit({1: 5})
    groups.pass_time(2 * CHECK_MS)
    assert groups.fetch_all() == {"t": {1: 5}}


def test_what_a_transaction_is_about_to_change_does_not_expire() -> None:
    groups = Groups()
    groups.commit({0: 5})
    groups.write(offset_record(9), producer_id=7)
    groups.pass_time(2 * RETENTION_MS)
    assert groups.fetch_all() == {"t": {0: 5}}
    assert groups.shard.groups.get("g") is not None


def test_many_groups_expire_in_turns() -> None:
    groups = Groups()
    count = 2 * GROUPS_AT_ONCE + 7
    for number in range(count):
        groups.commit({0: 5}, group=f"g{number}")
    groups.pass_time(RETENTION_MS - 1)
    assert len(groups.shard.groups.groups) == count
    groups.pass_time(2 * CHECK_MS)
    assert groups.shard.groups.groups == {}
    assert groups.shard.offsets.count() == 0


# ---------------------------------------------------------------- replay

PLACES = st.tuples(st.sampled_from("gh"), st.sampled_from("tu"), st.integers(0, 2))
STEPS = st.one_of(
    st.tuples(st.just("commit"), PLACES, st.integers(0, 99)),
    st.tuples(st.just("in transaction"), PLACES, st.integers(7, 9)),
    st.tuples(st.just("tombstone"), PLACES, st.just(0)),
    st.tuples(st.just("end"), st.booleans(), st.integers(7, 9)),
    st.tuples(st.just("delete"), st.sampled_from("gh"), st.just(0)),
    st.tuples(st.just("time"), st.just(""), st.sampled_from([1, RETENTION_MS])),
)


@given(st.lists(STEPS, max_size=30))
def test_a_replay_comes_to_the_same(steps: list[tuple[str, Any, int]]) -> None:
    groups = Groups("t", "u")
    for step, what, amount in steps:
        match step:
            case "commit":
                group, topic, index = what
                groups.commit({index: amount}, group=group, topic=topic)
            case "in transaction":
                group, topic, index = what
                record = offset_record(index, group=group, topic=topic, partition=index)
                groups.write(record, producer_id=amount)
            case "tombstone":
                group, topic, index = what
                key = OffsetCommitKey(group=group, topic=topic, partition=index)
                groups.write(CoordinatorRecord(key, None))
            case "end":
                groups.end(amount, is_committed=what)
            case "delete" if groups.shard.groups.get(what) is not None:
                groups.carry_out(groups.shard.delete_group(what))
            case "time":
                groups.pass_time(amount)
    other = groups.replay()
    assert other.kept() == groups.kept()
    for producer_id in (7, 8, 9):
        groups.end(producer_id, is_committed=True)
        other.end(producer_id, is_committed=True)
    assert other.kept() == groups.kept()


def test_decisions_do_not_change_anything_by_themselves() -> None:
    groups = Groups()
    groups.commit({0: 5})
    before = groups.kept()
    groups.shard.delete_group("g")
    asked = OffsetCommit("g", -1, "", None, -1, 9, [("t", topic_id("t"), 0, 9, -1, "")])
    decision = groups.shard.commit_offsets(groups.now_ms, asked)
    assert groups.kept() == before
    assert len(decision.records) == 1
