"""Share groups, asked of Apache Kafka 4.3 and of Moldau alike: members that join, fetch, acknowledge and go,
what is told of their groups, and at last what both have written of all that, record by record.

Each test has a group and a topic of its own. Both nodes are sent the same in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import pytest

from bench.kafka import KafkaServer
from moldau.coordinator.record import RecordTypes
from moldau.groups.records import RECORD_TYPES as GROUP_RECORDS
from moldau.groups.records import ShareGroupStatePartitionMetadataValue
from moldau.records.batch import iterate_headers
from moldau.records.builder import build_batch
from moldau.records.record import Record, read_records
from moldau.share.partition import ACCEPT, GAP, REJECT, RELEASE, RENEW
from moldau.share.records import RECORD_TYPES as STATE_RECORDS
from moldau.wire.ids import Uuid
from moldau.wire.messages import alter_share_group_offsets as alter
from moldau.wire.messages import delete_share_group_offsets as delete_offsets
from moldau.wire.messages import delete_share_group_state as delete_state
from moldau.wire.messages import describe_share_group_offsets as describe_offsets
from moldau.wire.messages import incremental_alter_configs as alter_configs
from moldau.wire.messages import initialize_share_group_state as initialize_state
from moldau.wire.messages import read_share_group_state as read_state
from moldau.wire.messages import read_share_group_state_summary as summarize_state
from moldau.wire.messages import share_acknowledge as acks
from moldau.wire.messages import share_fetch as fetches
from moldau.wire.messages import write_share_group_state as write_state
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.delete_groups import DeleteGroupsRequest
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.list_groups import ListGroupsRequest
from moldau.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.wire.messages.share_group_describe import ShareGroupDescribeRequest
from moldau.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from moldau.wire.schema import Message
from tests.support.beside import TIMEOUT_S, Pair, Peer, compare
from tests.support.node import KEEP, MoldauNode

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(150),
    pytest.mark.xdist_group("beside kafka"),
]

OPTIONS = {
    **KEEP,
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    # No lock ends while the tests run: how many are written together when they do is a matter of time.
    "group.share.record.lock.duration.ms": "60000",
}
# When it was written, and a hash of ids.
_OF_ITS_OWN = "create_timestamp write_timestamp assignment_timestamp metadata_hash"
NOWHERE = Uuid(b"nowhere to be id")
PARTITIONS = 2
_numbers = count()

Made = Callable[["Scene", Peer], Message]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, kafka_classpath: str) -> Iterator[Pair]:
    root = tmp_path_factory.mktemp("shares-beside")
    kafka = KafkaServer(root / "kafka", properties=OPTIONS)
    moldau = MoldauNode(root / "moldau", OPTIONS)
    kafka.launch()
    try:
        with moldau:
            kafka.wait_ready()
            with Pair(Peer(kafka.bootstrap, []), Peer(moldau.bootstrap, [])) as pair:
                for key_type, key in ((0, "group"), (2, "group:AAAAAAAAAAAAAAAAAAAAAQ:0")):
                    for peer in pair:
                        until(
                            lambda peer=peer, key_type=key_type, key=key: has_coordinator(peer, key_type, key)
                        )
                yield pair
    finally:
        kafka.kill()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.05)


def has_coordinator(peer: Peer, key_type: int, key: str) -> bool:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    response: Any = peer.ask(request, 6)
    return not response.coordinators[0].error_code


class Scene:
    """A topic, and a group that starts at its beginning."""

    def __init__(self, pair: Pair, *, partitions: int = PARTITIONS, **options: str) -> None:
        self.pair = pair
        number = next(_numbers)
        self.topic = f"topic-{number}"
        self.group = f"group-{number}"
        topic = CreatableTopic(name=self.topic, num_partitions=partitions, replication_factor=1)
        self.ids: dict[Peer, Uuid] = {}
        for peer in pair:
            peer.ask(CreateTopicsRequest(topics=[topic]), 7)
            self.ids[peer] = peer.topic_id(self.topic)
            until(lambda peer=peer: self.is_led(peer, partitions))
            self.set(peer, {"share.auto.offset.reset": "earliest", **options})

    def set(self, peer: Peer, options: dict[str, str]) -> None:
        resource = alter_configs.AlterConfigsResource(
            resource_type=32,
            resource_name=self.group,
            configs=[
                alter_configs.AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
                for name, value in options.items()
            ],
        )
        response: Any = peer.ask(alter_configs.IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert [each.error_code for each in response.responses] == [0]

    def is_led(self, peer: Peer, partitions: int) -> bool:
        asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        topic = ListOffsetsTopic(name=self.topic, partitions=asked)
        response: Any = peer.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7)
        return all(not each.error_code for each in response.topics[0].partitions)

    def produce(self, number: int, index: int = 0, batches: int = 1) -> None:
        batch = build_batch([Record(0, 1000, None, b"value") for _ in range(number)])
        for peer in self.pair:
            for _ in range(batches):
                data = PartitionProduceData(index=index, records=batch)
                topic = TopicProduceData(topic_id=self.ids[peer], partition_data=[data])
                request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
                response: Any = peer.ask(request, 13)
                assert response.responses[0].partition_responses[0].error_code == 0

    # ------------------------------------------------------------ asking both

    def ask(self, made: Made | Message, version: int, by: str = "", ignoring: str = "") -> Any:
        """What Kafka answers; Moldau answers the same."""
        requests = [made if isinstance(made, Message) else made(self, peer) for peer in self.pair]
        answers = [peer.ask(request, version, by) for peer, request in zip(self.pair, requests, strict=True)]
        theirs, ours = (peer.plain(answer) for peer, answer in zip(self.pair, answers, strict=True))
        found = compare(theirs, ours, ignoring)
        assert found == [], f"v{version} of {requests[0]!r}"
        return answers[0]

    def heartbeat(self, member: str, epoch: int, topics: list[str] | None = None, **fields: Any) -> Any:
        request = ShareGroupHeartbeatRequest(
            **{
                "group_id": self.group,
                "member_id": member,
                "member_epoch": epoch,
                "subscribed_topic_names": topics,
                **fields,
            }
        )
        return self.ask(request, 1)

    def join(self, member: str) -> int:
        """Its epoch, once it has partitions on both."""
        epochs = []
        for peer in self.pair:
            request = ShareGroupHeartbeatRequest(
                group_id=self.group, member_id=member, subscribed_topic_names=[self.topic]
            )
            response: Any = peer.ask(request, 1)
            while not response.assignment.topic_partitions:
                request.member_epoch = response.member_epoch
                response = peer.ask(request, 1)
                assert response.error_code == 0
            epochs.append(response.member_epoch)
        assert epochs[0] == epochs[1]
        return epochs[0]

    def fetch(
        self,
        member: str,
        epoch: int,
        *indexes: int,
        acknowledge: Sequence[tuple[int, int, Sequence[int]]] = (),
        forget: Sequence[int] = (),
        version: int = 2,
        **fields: Any,
    ) -> Any:
        def made(scene: Scene, peer: Peer) -> fetches.ShareFetchRequest:
            batches = [
                fetches.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[*types])
                for first, last, types in acknowledge
            ]
            partitions = [
                fetches.FetchPartition(partition_index=index, acknowledgement_batches=batches)
                for index in indexes
            ]
            topic_id = scene.ids[peer]
            topics = [fetches.FetchTopic(topic_id=topic_id, partitions=partitions)] if indexes else []
            forgotten = [fetches.ForgottenTopic(topic_id=topic_id, partitions=[*forget])] if forget else []
            return fetches.ShareFetchRequest(
                **{
                    "group_id": scene.group,
                    "member_id": member,
                    "share_session_epoch": epoch,
                    "max_wait_ms": 300,
                    "min_bytes": 1,
                    "max_bytes": 1 << 20,
                    "max_records": 500,
                    "batch_size": 500,
                    "topics": topics,
                    "forgotten_topics_data": forgotten,
                    **fields,
                }
            )

        return self.ask(made, version, by=f"{member} of {self.group}")

    def acknowledge(
        self,
        member: str,
        epoch: int,
        *batches: tuple[int, int, Sequence[int]],
        index: int = 0,
        version: int = 2,
        **fields: Any,
    ) -> Any:
        def made(scene: Scene, peer: Peer) -> acks.ShareAcknowledgeRequest:
            partition = acks.AcknowledgePartition(
                partition_index=index,
                acknowledgement_batches=[
                    acks.AcknowledgementBatch(
                        first_offset=first, last_offset=last, acknowledge_types=[*types]
                    )
                    for first, last, types in batches
                ],
            )
            topic = acks.AcknowledgeTopic(topic_id=scene.ids[peer], partitions=[partition])
            return acks.ShareAcknowledgeRequest(
                **{
                    "group_id": scene.group,
                    "member_id": member,
                    "share_session_epoch": epoch,
                    "topics": [topic],
                    **fields,
                }
            )

        return self.ask(made, version, by=f"{member} of {self.group}")

    def offsets(self, indexes: Sequence[int] | None = None, topic: str = "", version: int = 1) -> Any:
        asked = describe_offsets.DescribeShareGroupOffsetsRequestTopic(
            topic_name=topic or self.topic, partitions=[*(indexes or ())]
        )
        group = describe_offsets.DescribeShareGroupOffsetsRequestGroup(
            group_id=self.group, topics=None if indexes is None else [asked]
        )
        return self.ask(describe_offsets.DescribeShareGroupOffsetsRequest(groups=[group]), version)


def test_members_join_stay_and_go(pair: Pair) -> None:
    scene = Scene(pair, partitions=1)  # who of several gets which partition is for each node to choose
    topics = [scene.topic]
    scene.heartbeat("a", 1)
    scene.heartbeat("a", -1)
    epoch = scene.join("a")
    scene.heartbeat("a", epoch)
    scene.heartbeat("a", epoch - 1)
    scene.heartbeat("a", epoch + 1)
    scene.heartbeat("a", 1)
    scene.heartbeat("a", epoch, topics)
    scene.heartbeat("b", 0, topics, rack_id="rack")
    scene.heartbeat("b", 1)
    scene.heartbeat("a", epoch)
    scene.heartbeat("c", 0, ["no such topic"])
    scene.ask(ShareGroupDescribeRequest(group_ids=[scene.group, "other", ""]), 1)
    scene.ask(ShareGroupDescribeRequest(group_ids=[scene.group], include_authorized_operations=True), 1)
    scene.ask(ListGroupsRequest(types_filter=["share"], states_filter=["Stable"]), 5)
    for member in "abc":
        scene.heartbeat(member, -1)
    scene.ask(ShareGroupDescribeRequest(group_ids=[scene.group]), 1)


def test_heartbeats_that_make_no_sense_are_refused(pair: Pair) -> None:
    scene = Scene(pair)
    topics = [scene.topic]
    scene.heartbeat("", 0, topics)
    scene.heartbeat("x" * 37, 0, topics)
    scene.heartbeat("a", 0, topics, group_id="")
    scene.heartbeat("a", 0, topics, rack_id="")
    scene.heartbeat("a", 0)
    scene.heartbeat("a", 0, [])
    scene.heartbeat("a", -2)


def test_records_are_handed_out_and_acknowledged(pair: Pair) -> None:
    scene = Scene(pair)
    scene.join("a")
    scene.produce(3, batches=3)
    first = scene.fetch("a", 0, 0)
    assert len(first.responses[0].partitions[0].acquired_records) == 1
    scene.fetch("b", 0, 0)
    scene.acknowledge("b", 1, (0, 2, [ACCEPT]))
    scene.acknowledge("a", 1, (0, 2, [ACCEPT]))
    scene.offsets([0, 1])
    scene.acknowledge("a", 2, (3, 5, [ACCEPT, RELEASE, REJECT]), (6, 8, [RELEASE]))
    scene.offsets([0, 1])
    scene.fetch("b", 2, 0)
    scene.acknowledge("b", 3, (4, 4, [ACCEPT]), (6, 8, [GAP, ACCEPT, ACCEPT]))
    scene.offsets([0])
    scene.produce(2)
    scene.fetch("a", 3, 0)
    scene.fetch("a", 4, 0, acknowledge=[(9, 10, [ACCEPT])])
    scene.offsets()
    scene.offsets(version=0)


def test_acknowledgements_that_are_wrong_change_nothing(pair: Pair) -> None:
    scene = Scene(pair)
    scene.join("a")
    scene.produce(4, batches=2)
    scene.fetch("a", 0, 0)
    epochs = count(1)
    for batches in (
        [(0, 9, [ACCEPT])],
        [(9, 9, [ACCEPT])],
        [(3, 1, [ACCEPT])],
        [(0, 3, [])],
        [(0, 3, [ACCEPT, ACCEPT])],
        [(0, 3, [5])],
        [(0, 3, [-1])],
        [(4, 7, [ACCEPT]), (0, 3, [ACCEPT])],
        [(0, 3, [RENEW])],
        [],
    ):
        scene.acknowledge("a", next(epochs), *batches)
    scene.acknowledge("a", next(epochs), (0, 3, [RENEW]), version=1)
    scene.acknowledge("a", next(epochs), (0, 3, [ACCEPT]), index=1)
    scene.acknowledge("a", next(epochs), (0, 3, [ACCEPT]), index=7)
    scene.acknowledge("a", next(epochs), (0, 3, [ACCEPT]))
    scene.acknowledge("a", next(epochs), (0, 3, [ACCEPT]))
    scene.acknowledge("a", next(epochs), (2, 5, [ACCEPT]))
    scene.acknowledge("a", next(epochs), (4, 7, [RELEASE]))
    scene.offsets([0])


def test_exact_limits_batch_sizes_and_locks(pair: Pair) -> None:
    scene = Scene(pair)
    scene.join("a")
    scene.produce(4, batches=5)
    scene.fetch("a", 0, 0, max_records=6, share_acquire_mode=1)
    scene.fetch("a", 1, max_records=6, share_acquire_mode=1)
    scene.fetch("a", 2, max_records=1)
    scene.fetch("a", 3, max_records=1, version=1)
    scene.fetch("a", 4)
    scene.fetch("a", 5, 0, acknowledge=[(0, 11, [RELEASE])])
    scene.fetch("a", 6, max_records=5, share_acquire_mode=1)
    scene.fetch("a", 7, 0, acknowledge=[(12, 13, [RENEW])], is_renew_ack=True)
    renewal = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "is_renew_ack": True}
    scene.fetch("a", 7, 0, acknowledge=[(12, 13, [RENEW])], **renewal)
    scene.acknowledge("a", 8, (12, 13, [RENEW]), is_renew_ack=True)
    scene.produce(10)
    scene.fetch("a", 9, batch_size=3, max_records=100)


def test_records_that_fail_come_alone_and_are_given_up(pair: Pair) -> None:
    scene = Scene(pair)
    scene.join("a")
    scene.produce(8)
    epochs = count(1)
    response = scene.fetch("a", 0, 0)
    for _ in range(12):
        acquired = response.responses[0].partitions[0].acquired_records
        if not acquired:
            break
        first, last = acquired[0].first_offset, acquired[-1].last_offset
        scene.acknowledge("a", next(epochs), (first, last, [RELEASE]))
        response = scene.fetch("a", next(epochs), 0)
    scene.offsets([0])


def test_sessions_are_counted_and_end(pair: Pair) -> None:
    scene = Scene(pair)
    scene.join("a")
    scene.produce(3, batches=2)
    scene.fetch("a", 1, 0)
    scene.fetch("a", -1, 0)
    scene.acknowledge("a", 1, (0, 2, [ACCEPT]))
    scene.fetch("a", 0, 0, acknowledge=[(0, 2, [ACCEPT])])
    scene.fetch("a", 0, 0, member_id="")
    scene.fetch("a", 0, 0, group_id=None)
    scene.fetch("a", 0, 0, max_records=3)
    scene.fetch("a", 2, 0)
    scene.acknowledge("a", 0, (0, 2, [ACCEPT]))
    scene.fetch("a", 1, forget=[0])
    scene.fetch("a", 2, 1)
    scene.fetch("a", 3, 9)
    scene.fetch("a", 4, forget=[9])
    scene.fetch("b", 0, 0)
    scene.acknowledge("a", -1, (0, 0, [ACCEPT]))
    scene.fetch("a", 0, 0)


def test_a_session_that_is_closed_gives_records_back(pair: Pair) -> None:
    scene = Scene(pair)
    scene.join("a")
    scene.produce(3, batches=2)
    scene.fetch("a", 0, 0)
    scene.fetch("a", 1, 0, acknowledge=[(0, 1, [ACCEPT])], share_session_epoch=-1)
    scene.fetch("b", 0, 0)
    scene.offsets([0])


def test_records_of_a_connection_that_ends_are_for_others(pair: Pair) -> None:
    scene = Scene(pair)
    scene.join("a")
    scene.produce(3)
    scene.fetch("b", 0, 0)
    scene.fetch("a", 0, 0)
    scene.acknowledge("b", 1, (0, 2, [RELEASE]))
    scene.fetch("a", 1, 0)
    for peer in pair:
        peer.disconnect(f"a of {scene.group}")
    scene.fetch("b", 2, 0, max_wait_ms=1000)  # Kafka looks again when that is over


def test_offsets_are_altered_and_deleted(pair: Pair) -> None:
    scene = Scene(pair)

    def altered(offsets: dict[int, int], topic: str = "") -> Message:
        asked = alter.AlterShareGroupOffsetsRequestTopic(
            topic_name=topic or scene.topic,
            partitions=[
                alter.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                for index, offset in offsets.items()
            ],
        )
        return alter.AlterShareGroupOffsetsRequest(group_id=scene.group, topics=[asked])

    def deleted(*topics: str) -> Message:
        asked = [delete_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
        return delete_offsets.DeleteShareGroupOffsetsRequest(group_id=scene.group, topics=asked)

    scene.offsets()
    scene.offsets([0])
    scene.offsets([0, 5], topic="no such topic")
    scene.ask(deleted(scene.topic), 0)
    scene.produce(6)
    scene.ask(altered({0: 2, 5: 1}), 0)
    scene.ask(altered({0: 1}, "no such topic"), 0)
    scene.offsets([0, 1])
    scene.offsets()
    scene.join("a")
    scene.ask(altered({0: 2}), 0)
    scene.ask(deleted(scene.topic), 0)
    scene.fetch("a", 0, 0)
    scene.acknowledge("a", 1, (3, 5, [ACCEPT]))
    scene.offsets()
    scene.ask(DeleteGroupsRequest(groups_names=[scene.group]), 2)
    scene.fetch("a", -1, 0)
    scene.heartbeat("a", -1)
    scene.ask(altered({0: 0, 1: 0}), 0)
    scene.offsets()
    scene.ask(deleted(scene.topic, "no such topic"), 0)
    scene.offsets()
    scene.ask(deleted(scene.topic), 0)
    scene.ask(DeleteGroupsRequest(groups_names=[scene.group]), 2)
    scene.ask(DeleteGroupsRequest(groups_names=[scene.group]), 2)


def test_the_share_coordinator_answers_others(pair: Pair) -> None:
    scene = Scene(pair)

    def initialized(epoch: int, start: int, *indexes: int, id: Uuid | None = None) -> Made:
        def made(scene: Scene, peer: Peer) -> Message:
            partitions = [
                initialize_state.PartitionData(partition=index, state_epoch=epoch, start_offset=start)
                for index in indexes
            ]
            data = initialize_state.InitializeStateData(topic_id=id or scene.ids[peer], partitions=partitions)
            return initialize_state.InitializeShareGroupStateRequest(group_id="elsewhere", topics=[data])

        return made

    def read(leader_epoch: int, *indexes: int, id: Uuid | None = None, summary: bool = False) -> Made:
        def made(scene: Scene, peer: Peer) -> Message:
            if summary:
                asked = [summarize_state.PartitionData(partition=index) for index in indexes]
                summed = summarize_state.ReadStateSummaryData(
                    topic_id=id or scene.ids[peer], partitions=asked
                )
                return summarize_state.ReadShareGroupStateSummaryRequest(
                    group_id="elsewhere", topics=[summed]
                )
            partitions = [
                read_state.PartitionData(partition=index, leader_epoch=leader_epoch) for index in indexes
            ]
            data = read_state.ReadStateData(topic_id=id or scene.ids[peer], partitions=partitions)
            return read_state.ReadShareGroupStateRequest(group_id="elsewhere", topics=[data])

        return made

    def written(
        *batches: tuple[int, int, int, int],
        epoch: int = 1,
        leader_epoch: int = 0,
        start: int = 0,
        complete: int = 0,
        index: int = 0,
    ) -> Made:
        def made(scene: Scene, peer: Peer) -> Message:
            partition = write_state.PartitionData(
                partition=index,
                state_epoch=epoch,
                leader_epoch=leader_epoch,
                start_offset=start,
                delivery_complete_count=complete,
                state_batches=[
                    write_state.StateBatch(
                        first_offset=first, last_offset=last, delivery_state=state, delivery_count=times
                    )
                    for first, last, state, times in batches
                ],
            )
            data = write_state.WriteStateData(topic_id=scene.ids[peer], partitions=[partition])
            return write_state.WriteShareGroupStateRequest(group_id="elsewhere", topics=[data])

        return made

    def deleted(*indexes: int) -> Made:
        def made(scene: Scene, peer: Peer) -> Message:
            partitions = [delete_state.PartitionData(partition=index) for index in indexes]
            data = delete_state.DeleteStateData(topic_id=scene.ids[peer], partitions=partitions)
            return delete_state.DeleteShareGroupStateRequest(group_id="elsewhere", topics=[data])

        return made

    scene.ask(read(0, 0, 1, 5, -1), 0)
    scene.ask(read(0, 0, 5, -1, summary=True), 1)
    scene.ask(read(0, 0, id=NOWHERE), 0)
    scene.ask(written((0, 1, 2, 1)), 1)
    scene.ask(deleted(0, 5, -1), 0)
    scene.ask(initialized(1, 0, 0, 1, 5, -1), 0)
    scene.ask(initialized(1, 0, 0, id=NOWHERE), 0)
    scene.ask(read(0, 0), 0)
    scene.ask(written((0, 4, 2, 1), (5, 9, 0, 1), complete=5), 1)
    scene.ask(written((5, 6, 2, 2), start=5, complete=2), 1)
    scene.ask(read(0, 0), 0)
    scene.ask(read(0, 0, summary=True), 0)
    scene.ask(read(0, 0, summary=True), 1)
    scene.ask(read(3, 0), 0)
    scene.ask(read(2, 0), 0)
    scene.ask(written((7, 7, 2, 2), leader_epoch=2), 1)
    for offset in range(7, 12):
        scene.ask(written((offset, offset, 4, 2), leader_epoch=3, start=7), 1)
    scene.ask(written((12, 12, 2, 1), leader_epoch=-1, epoch=-1, start=-1), 0)
    scene.ask(read(3, 0), 0)
    scene.ask(initialized(3, 20, 0), 0)
    scene.ask(initialized(2, 20, 0), 0)
    scene.ask(written((20, 20, 2, 1), epoch=2, leader_epoch=3, start=20), 1)
    scene.ask(read(3, 0), 0)
    scene.ask(deleted(0), 0)
    scene.ask(deleted(0), 0)
    scene.ask(read(3, 0, summary=True), 1)
    for request in (
        read_state.ReadShareGroupStateRequest(group_id="elsewhere"),
        write_state.WriteShareGroupStateRequest(group_id="elsewhere"),
        initialize_state.InitializeShareGroupStateRequest(group_id="elsewhere"),
        delete_state.DeleteShareGroupStateRequest(group_id="elsewhere"),
        summarize_state.ReadShareGroupStateSummaryRequest(group_id="elsewhere"),
    ):
        scene.ask(request, 0)


def test_what_was_written_is_the_same(pair: Pair) -> None:
    """The last of these tests: all that the others did is in the two topics, for each key in order."""
    for topic, types in (("__consumer_offsets", GROUP_RECORDS), ("__share_group_state", STATE_RECORDS)):
        theirs, ours = (written_by_key(peer, topic, types) for peer in pair)
        for key, values in theirs.items():
            assert compare(values, ours.pop(key, None), _OF_ITS_OWN) == [], key
        assert ours == {}


def written_by_key(peer: Peer, topic: str, types: RecordTypes) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for record in log_of(peer, topic):
        assert record.key is not None
        decoded = types.decode(record.key, record.value)
        assert decoded is not None
        value = decoded.value
        # How a state was come by is a matter of time: what counts is what came of it.
        if isinstance(value, ShareGroupStatePartitionMetadataValue) and value.initializing_topics:
            continue
        found.setdefault(repr(peer.plain(decoded.key)), []).append(
            None if value is None else peer.plain(value)
        )
    return found


def log_of(peer: Peer, topic: str) -> Iterator[Record]:
    id, offset = peer.topic_id(topic), 0
    while True:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        asked = FetchTopic(topic_id=id, partitions=[partition])
        response: Any = peer.ask(FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=[asked]), 17)
        data = memoryview(response.responses[0].partitions[0].records or b"")
        start = offset
        for position, header in iterate_headers(data):
            offset = header.next_offset
            yield from read_records(data[position : position + header.size])
        if offset == start:
            return
