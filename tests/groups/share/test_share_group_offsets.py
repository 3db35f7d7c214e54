from __future__ import annotations

import pytest

from moldau.coordinator.decision import Waiter
from moldau.groups.share.protocol import AlterResult, DeleteOffsetsResult
from moldau.wire.errors import ErrorCode
from moldau.wire.messages import alter_share_group_offsets as alter
from moldau.wire.messages import delete_share_group_offsets as delete
from tests.groups.share.share_members import GROUP, ShareDriver, topic_id


@pytest.fixture
def driver() -> ShareDriver:
    driver = ShareDriver(group_share_assignment_interval_ms=0)
    driver.create_topic("t", 2)
    return driver


def alter_offsets(driver: ShareDriver, offsets: dict[str, dict[int, int]]) -> Waiter[AlterResult]:
    request = alter.AlterShareGroupOffsetsRequest(
        group_id=GROUP,
        topics=[
            alter.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    alter.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in partitions.items()
                ],
            )
            for name, partitions in offsets.items()
        ],
    )
    return driver.submit(lambda shard, now_ms, waiter: shard.share.alter_offsets(now_ms, request))


def delete_offsets(driver: ShareDriver, *topics: str) -> Waiter[DeleteOffsetsResult]:
    request = delete.DeleteShareGroupOffsetsRequest(
        group_id=GROUP,
        topics=[delete.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics],
    )
    return driver.submit(lambda shard, now_ms, waiter: shard.share.delete_offsets(request))


def test_altering_offsets_makes_a_group_and_asks_for_its_state(driver: ShareDriver) -> None:
    result = alter_offsets(driver, {"t": {0: 5, 7: 1}, "unknown": {0: 0}}).result()
    assert [
        (topic.topic_name, [(each.partition_index, each.error_code) for each in topic.partitions])
        for topic in result.response.responses
    ] == [("t", [(0, 0), (7, 3)]), ("unknown", [(0, 3)])]
    [topic] = result.initialize.topics
    assert [(p.partition, p.state_epoch, p.start_offset) for p in topic.partitions] == [(0, 1, 5)]
    driver.initialized(result.initialize)
    assert driver.shard.share.states.initialized(GROUP) == {topic_id("t"): frozenset({0})}
    assert driver.shard.share.find(GROUP).is_empty()


def test_offsets_of_a_group_with_members_stay(driver: ShareDriver) -> None:
    driver.heartbeat("a", 0, ["t"])
    for work in (alter_offsets(driver, {"t": {0: 5}}), delete_offsets(driver, "t")):
        assert work.failure is not None and work.failure.code is ErrorCode.NON_EMPTY_GROUP


def test_deleting_offsets_asks_for_the_states_to_go(driver: ShareDriver) -> None:
    driver.initialized(alter_offsets(driver, {"t": {0: 5, 1: 6}}).result().initialize)
    result = delete_offsets(driver, "t", "unknown").result()
    assert [p.partition for p in result.delete.topics[0].partitions] == [0, 1]
    assert [(each.topic_name, each.error_code) for each in result.failed] == [("unknown", 3)]
    assert driver.shard.share.states.of(GROUP).deleting == {topic_id("t")}
    # Until it is known to be done, it may be asked for again.
    assert len(delete_offsets(driver, "t").result().delete.topics) == 1
    driver.submit(lambda shard, now_ms, waiter: shard.share.on_offsets_deleted(GROUP, [topic_id("t")]))
    assert driver.shard.share.states.of(GROUP).deleting == frozenset()
    [failed] = delete_offsets(driver, "t").result().failed
    assert failed.error_message == "There is no offset information to delete."


def test_offsets_of_no_group_cannot_be_deleted(driver: ShareDriver) -> None:
    failure = delete_offsets(driver, "t").failure
    assert failure is not None and failure.code is ErrorCode.GROUP_ID_NOT_FOUND
