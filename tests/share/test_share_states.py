from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moldau.coordinator.record import encode_key, encode_value
from moldau.metadata import records
from moldau.metadata.delta import apply_records
from moldau.metadata.image import ClusterImage
from moldau.share.batches import StateBatch
from moldau.share.environment import ShareEnvironment
from moldau.share.records import RECORD_TYPES, ShareSnapshotKey, ShareSnapshotValue, ShareUpdateValue
from moldau.share.states import ShareKey, ShareStateShard
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid
from moldau.wire.messages import initialize_share_group_state as initialize
from moldau.wire.messages import write_share_group_state as write
from tests.share.share_samples import broker_config

TOPIC = Uuid(b"topic".rjust(16, b"\0"))
KEY = ShareKey("group", TOPIC, 0)


class StateDriver:
    """Writes and applies what a shard decides, with offsets as in a log."""

    def __init__(self, **properties: object) -> None:
        messages = [
            records.TopicRecord(name="t", topic_id=TOPIC),
            *(
                records.PartitionRecord(topic_id=TOPIC, partition_id=index, replicas=[1], isr=[1], leader=1)
                for index in range(2)
            ),
        ]
        image, _ = apply_records(ClusterImage(), messages)
        self.environment = ShareEnvironment(config=broker_config(**properties), image=image)
        self.now_ms = 1000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.shard = ShareStateShard(0, self.environment)
        self.do(lambda shard: shard.on_loaded(self.now_ms))

    def do(self, decide: Callable[[ShareStateShard], Any]) -> Any:
        decision = decide(self.shard)
        for record in decision.records:
            self.log.append((encode_key(record), encode_value(record)))
            self.apply(self.shard, len(self.log) - 1)
        return decision.reply

    def apply(self, shard: ShareStateShard, offset: int) -> None:
        record = RECORD_TYPES.decode(*self.log[offset])
        assert record is not None
        shard.applied_offset = offset
        shard.apply(record, -1)

    def replayed(self, start: int = 0) -> ShareStateShard:
        shard = ShareStateShard(0, self.environment)
        for offset in range(start, len(self.log)):
            self.apply(shard, offset)
        return shard

    def value(self, offset: int = -1) -> Any:
        record = RECORD_TYPES.decode(*self.log[offset])
        assert record is not None
        return record.value

    def initialize(self, key: ShareKey = KEY, *, epoch: int = 1, start: int = 0) -> None:
        data = initialize.PartitionData(partition=key.partition, state_epoch=epoch, start_offset=start)
        self.do(lambda shard: shard.initialize(self.now_ms, key, data))

    def write(
        self,
        *batches: StateBatch,
        key: ShareKey = KEY,
        start: int = 0,
        epoch: int = 1,
        leader_epoch: int = 0,
        complete: int = 0,
    ) -> None:
        data = write.PartitionData(
            partition=key.partition,
            state_epoch=epoch,
            leader_epoch=leader_epoch,
            start_offset=start,
            delivery_complete_count=complete,
            state_batches=[
                write.StateBatch(
                    first_offset=batch.first,
                    last_offset=batch.last,
                    delivery_state=batch.state,
                    delivery_count=batch.delivery_count,
                )
                for batch in batches
            ],
        )
        self.do(lambda shard: shard.write(self.now_ms, key, data))

    def read(self, leader_epoch: int = 0, key: ShareKey = KEY) -> Any:
        return self.do(lambda shard: shard.read(self.now_ms, key, leader_epoch))


def refusal(work: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        work()
    return caught.value.code


def test_what_was_never_initialized_is_neither_read_nor_written() -> None:
    driver = StateDriver()
    assert refusal(driver.read) is ErrorCode.INVALID_REQUEST
    assert refusal(driver.write) is ErrorCode.INVALID_REQUEST
    assert driver.log == []


def test_the_state_begins_with_a_snapshot() -> None:
    driver = StateDriver()
    driver.initialize(start=7)
    assert driver.value() == ShareSnapshotValue(
        state_epoch=1,
        start_offset=7,
        delivery_complete_count=0,
        create_timestamp=1000,
        write_timestamp=1000,
    )
    driver.initialize(epoch=2, start=-1)
    assert driver.value() == ShareSnapshotValue(
        snapshot_epoch=1,
        state_epoch=2,
        start_offset=-1,
        delivery_complete_count=-1,
        create_timestamp=1000,
        write_timestamp=1000,
    )


def test_changes_are_written_as_updates_and_read_as_a_whole() -> None:
    driver = StateDriver()
    driver.initialize()
    driver.write(StateBatch(0, 4, 2, 1), StateBatch(5, 9, 0, 1), complete=5)
    assert isinstance(driver.value(), ShareUpdateValue)
    driver.write(StateBatch(5, 6, 2, 2), start=5, complete=2)
    found = driver.read()
    assert (found.start_offset, found.state_epoch) == (5, 1)
    assert [
        (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in found.state_batches
    ] == [(5, 6, 2, 2), (7, 9, 0, 1)]


def test_after_so_many_updates_comes_a_snapshot() -> None:
    driver = StateDriver(share_coordinator_snapshot_update_records_per_snapshot=2)
    driver.initialize()
    for offset in range(4):
        driver.write(StateBatch(offset, offset, 2, 1), complete=offset + 1)
    kinds = [type(driver.value(index)) for index in range(len(driver.log))]
    assert kinds == [
        ShareSnapshotValue,
        ShareUpdateValue,
        ShareUpdateValue,
        ShareSnapshotValue,
        ShareUpdateValue,
    ]
    assert driver.value(3).snapshot_epoch == 1
    assert [(b.first_offset, b.last_offset) for b in driver.value(3).state_batches] == [(0, 2)]


def test_a_leader_keeps_those_before_it_away() -> None:
    driver = StateDriver()
    driver.initialize()
    driver.read(leader_epoch=3)
    assert driver.value().leader_epoch == 3
    before = len(driver.log)
    driver.read(leader_epoch=3)
    assert len(driver.log) == before
    assert refusal(lambda: driver.read(leader_epoch=2)) is ErrorCode.FENCED_LEADER_EPOCH
    assert refusal(lambda: driver.write(leader_epoch=2)) is ErrorCode.FENCED_LEADER_EPOCH
    driver.write(leader_epoch=3)


def test_a_state_that_is_begun_anew_keeps_changes_of_the_old_one_away() -> None:
    driver = StateDriver()
    driver.initialize(epoch=1)
    driver.write(StateBatch(0, 0, 2, 1))
    driver.initialize(epoch=2, start=10)
    assert refusal(lambda: driver.write(epoch=1)) is ErrorCode.FENCED_STATE_EPOCH
    assert refusal(lambda: driver.initialize(epoch=1)) is ErrorCode.FENCED_STATE_EPOCH
    assert driver.read().state_batches == []


def test_partitions_that_do_not_exist_have_no_state() -> None:
    driver = StateDriver()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(lambda: driver.initialize(KEY._replace(partition=2))) is unknown
    assert refusal(lambda: driver.initialize(KEY._replace(partition=-1))) is ErrorCode.INVALID_REQUEST


def test_deleting_leaves_a_tombstone_and_is_no_matter_if_nothing_is_there() -> None:
    driver = StateDriver()
    assert driver.do(lambda shard: shard.delete(KEY)).error_code == 0
    assert driver.log == []
    driver.initialize()
    driver.do(lambda shard: shard.delete(KEY))
    assert driver.value() is None
    assert driver.shard.state(KEY) is None


def test_a_summary_tells_how_far_a_group_has_come() -> None:
    driver = StateDriver()
    nothing = driver.do(lambda shard: shard.summarize(KEY))
    assert (nothing.start_offset, nothing.delivery_complete_count) == (-1, -1)
    driver.initialize(start=4)
    driver.write(StateBatch(6, 6, 2, 1), start=4, complete=1)
    found = driver.do(lambda shard: shard.summarize(KEY))
    assert (found.start_offset, found.delivery_complete_count, found.state_epoch) == (4, 1, 1)


def test_the_state_of_deleted_topics_goes() -> None:
    driver = StateDriver()
    driver.initialize()
    image, delta = apply_records(driver.environment.image, [records.RemoveTopicRecord(topic_id=TOPIC)])
    driver.environment.image = image
    driver.do(lambda shard: shard.on_image(driver.now_ms, delta))
    assert driver.shard.state(KEY) is None


def test_what_lies_before_the_oldest_snapshot_is_not_needed() -> None:
    driver = StateDriver(share_coordinator_snapshot_update_records_per_snapshot=1)
    other = KEY._replace(partition=1)
    driver.initialize()
    driver.initialize(other)
    assert driver.shard.needed_from() == 0
    for _ in range(2):
        driver.write()
    assert driver.shard.needed_from() == 1
    driver.do(lambda shard: shard.delete(other))
    assert driver.shard.needed_from() == 3
    kept = driver.replayed(driver.shard.needed_from())
    assert kept.state(KEY) == driver.shard.state(KEY)
    driver.do(lambda shard: shard.delete(KEY))
    assert driver.shard.needed_from() == len(driver.log) - 1


def test_states_that_lie_still_are_written_again_while_others_move() -> None:
    driver = StateDriver()
    driver.initialize()
    driver.now_ms += 300_000
    event = driver.shard.timers.take_due(driver.now_ms)
    driver.do(lambda shard: shard.on_timer(driver.now_ms, event))
    assert driver.value() == ShareSnapshotValue(
        snapshot_epoch=1,
        state_epoch=1,
        delivery_complete_count=0,
        create_timestamp=1000,
        write_timestamp=301_000,
    )
    driver.now_ms += 300_000
    event = driver.shard.timers.take_due(driver.now_ms)
    driver.do(lambda shard: shard.on_timer(driver.now_ms, event))
    assert len(driver.log) == 2


def test_a_replayed_shard_is_as_it_was() -> None:
    driver = StateDriver(share_coordinator_snapshot_update_records_per_snapshot=3)
    driver.initialize()
    driver.read(leader_epoch=2)
    for offset in range(10):
        driver.write(StateBatch(offset, offset, 2, 1), start=offset // 2, leader_epoch=2)
        assert driver.replayed().state(KEY) == driver.shard.state(KEY)


def test_keys_are_those_of_kafka() -> None:
    driver = StateDriver()
    driver.initialize()
    record = RECORD_TYPES.decode(*driver.log[0])
    assert record is not None
    assert record.key == ShareSnapshotKey(group_id="group", topic_id=TOPIC, partition=0)
    assert driver.log[0][0] == b"\0\0\0\5group" + TOPIC + b"\0\0\0\0"
