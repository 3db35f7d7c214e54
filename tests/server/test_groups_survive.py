"""Committed offsets while a node is killed, and while its power is cut."""

from __future__ import annotations

from random import Random

import pytest

from moldau.wire.messages import find_coordinator, offset_commit, offset_fetch
from tests.server.sim_node import SimNode

GROUPS = [f"g{number}" for number in range(5)]
PARTITIONS = range(3)
Offsets = dict[tuple[str, int], int]


def started(seed: int) -> SimNode:
    node = SimNode(seed, offsets_topic_num_partitions="4", offsets_topic_replication_factor="1")
    node.create_topic("t", partitions=len(PARTITIONS))
    node.call(find_coordinator.FindCoordinatorRequest(coordinator_keys=["g0"]), 6)
    node.simulation.advance(1)
    return node


def commit(node: SimNode, group: str, partition: int, offset: int) -> int:
    topic = offset_commit.OffsetCommitRequestTopic(
        name="t",
        partitions=[
            offset_commit.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        ],
    )
    response = node.call(offset_commit.OffsetCommitRequest(group_id=group, topics=[topic]), 9)
    return int(response.topics[0].partitions[0].error_code)


def fetched(node: SimNode) -> Offsets:
    groups = [offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None) for group in GROUPS]
    response = node.call(offset_fetch.OffsetFetchRequest(groups=groups), 9)
    assert {group.error_code for group in response.groups} == {0}
    return {
        (group.group_id, each.partition_index): each.committed_offset
        for group in response.groups
        for topic in group.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("seed", range(4))
def test_no_acknowledged_commit_is_lost_when_a_node_is_killed(seed: int) -> None:
    random, acknowledged = Random(seed), Offsets()
    with started(seed) as node:
        for number in range(150):
            place = random.choice(GROUPS), random.choice(PARTITIONS)
            assert commit(node, *place, number) == 0
            acknowledged[place] = number
            if random.random() < 0.05:
                node.simulation.kill("localhost")
                node.start(node.simulation.restart("localhost"))
                node.simulation.advance(1)
                assert fetched(node) == acknowledged


@pytest.mark.parametrize("seed", range(6))
def test_what_a_power_cut_leaves_of_commits_is_what_was_once_true(seed: int) -> None:
    """Nothing is synced for a commit, as nothing is for a produced record: the last ones may be lost, in the
    order of the log of their group, and no others."""
    random = Random(seed)
    with started(seed) as node:
        node.simulation.advance(120)  # what the topics are made of is on disk
        histories: dict[str, list[Offsets]] = {group: [{}] for group in GROUPS}
        for number in range(120):
            group, partition = random.choice(GROUPS), random.choice(PARTITIONS)
            assert commit(node, group, partition, number) == 0
            histories[group].append({**histories[group][-1], (group, partition): number})
            if random.random() < 0.04:
                node.crash()
                node.simulation.advance(1)
                found = fetched(node)
                for each, history in histories.items():
                    of_group = {place: offset for place, offset in found.items() if place[0] == each}
                    assert of_group in history
                    history[:] = history[: history.index(of_group) + 1]
