"""What leaders of partitions and group coordinators answer to transactional producers, asked of Apache Kafka
4.3 and of Moldau alike: every code and every field is the same, in every version.

Each test is a story of one transactional id with partitions of its own, told in the same order to both. The
nodes' own coordinators take part; ids of producers are each node's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bench.kafka import KafkaServer
from moldau.records.batch import ATTRIBUTES, stamp_crc
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.wire.ids import ZERO_UUID, Uuid
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from moldau.wire.messages.end_txn import EndTxnRequest
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from moldau.wire.schema import Message
from tests.support.beside import Pair, Peer, compare
from tests.support.node import KEEP, MoldauNode

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(150),
    pytest.mark.xdist_group("beside kafka"),
]

PARTITIONS = 64
TOPIC = "t"
TIMESTAMP = 1_700_000_000_000
# Ids of producers, and times of markers, are each node's own.
OWN = "producer_id last_timestamp records error_message batch_index_error_message"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, kafka_classpath: str) -> Iterator[Pair]:
    root = tmp_path_factory.mktemp("transactions-beside")
    options = {
        **KEEP,
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    kafka = KafkaServer(root / "kafka", properties=options)
    moldau = MoldauNode(root / "moldau", options)
    kafka.launch()
    try:
        with moldau:
            kafka.wait_ready()
            with Pair(Peer(kafka.bootstrap, []), Peer(moldau.bootstrap, [])) as pair:
                topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
                for peer in pair:
                    peer.ask(CreateTopicsRequest(topics=[topic]), 7)
                    TOPIC_IDS[peer] = peer.topic_id(TOPIC)
                    for key_type in (0, 1):
                        while _ask(peer, FindCoordinatorRequest(key="any", key_type=key_type), 3).error_code:
                            pass
                yield pair
    finally:
        kafka.kill()


TOPIC_IDS: dict[Peer, Uuid] = {}


def _ask(peer: Peer, request: Message, version: int) -> Any:
    answer = peer.ask(request, version)
    assert not isinstance(answer, str), f"{request!r} closed the connection"
    return answer


class Story:
    """One transactional id, two partitions and a group."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        number = next(_numbers)
        self.id, self.group = f"id-{number}", f"group-{number}"
        self.first, self.second = 2 * number, 2 * number + 1
        self._producers: dict[Peer, tuple[int, int]] = {}
        self.begin()

    def begin(self, version: int = 5) -> None:
        """The producer begins, or begins anew; nothing of an earlier transaction is left then."""
        request = InitProducerIdRequest(transactional_id=self.id, transaction_timeout_ms=60_000)
        for peer in self._pair:
            while (answer := _ask(peer, request, version)).error_code in (14, 15, 16, 51):
                pass
            assert not answer.error_code
            self._producers[peer] = answer.producer_id, answer.producer_epoch

    def ask(self, make: Callable[[int, int, Peer], Message], version: int, ignoring: str = OWN) -> None:
        """The request is made with producer id and epoch; both answer the same."""
        asked = [make(*self._producers[peer], peer) for peer in self._pair]
        answers = [peer.plain(peer.ask(each, version)) for peer, each in zip(self._pair, asked, strict=True)]
        found = compare(*answers, ignoring)
        assert found == [], f"v{version} of {asked[0]!r:.400}"
        self.told = answers[0]

    # -- The coordinator's part: the same on both, and checked elsewhere

    def add(self, *indexes: int) -> None:
        self.ask(
            lambda producer_id, epoch, _: AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[*indexes])],
            ),
            3,
        )

    def add_offsets(self) -> None:
        self.ask(
            lambda producer_id, epoch, _: AddOffsetsToTxnRequest(
                transactional_id=self.id, producer_id=producer_id, producer_epoch=epoch, group_id=self.group
            ),
            3,
        )

    def end(self, *, is_committed: bool, version: int = 4) -> None:
        """Returns when its markers are there: the producer begins anew."""
        for peer in self._pair:
            producer_id, epoch = self._producers[peer]
            request = EndTxnRequest(
                transactional_id=self.id,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=is_committed,
            )
            assert _ask(peer, request, version).error_code == 0
        self.begin()

    # -- The part of leaders and groups

    def produce(
        self,
        version: int,
        index: int,
        *,
        ignoring: str = OWN,
        transactional_id: str | None = "",
        **fields: Any,
    ) -> None:
        """`fields` as of `batch`."""

        def make(producer_id: int, epoch: int, peer: Peer) -> Message:
            records = batch(producer_id, epoch, **fields)
            return ProduceRequest(
                transactional_id=self.id if transactional_id == "" else transactional_id,
                acks=-1,
                timeout_ms=1000,
                topic_data=[
                    TopicProduceData(
                        name=TOPIC if version < 13 else "",
                        topic_id=TOPIC_IDS[peer] if version >= 13 else ZERO_UUID,
                        partition_data=[PartitionProduceData(index=index, records=records)],
                    )
                ],
            )

        self.ask(make, version)

    def commit(self, version: int, *, metadata: str = "", topic: str = TOPIC, **fields: Any) -> None:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=self.first, committed_offset=5, committed_metadata=metadata
        )

        def make(producer_id: int, epoch: int, _: Peer) -> Message:
            given = {
                "transactional_id": self.id,
                "group_id": self.group,
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "topics": [TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
                **fields,
            }
            return TxnOffsetCommitRequest(**given)

        self.ask(make, version)

    def mark(self, version: int, topic: str = TOPIC, *, add_to_epoch: int = 0, **fields: Any) -> None:
        def make(producer_id: int, epoch: int, _: Peer) -> Message:
            given: dict[str, Any] = {
                "producer_id": producer_id,
                "producer_epoch": epoch + add_to_epoch,
                "transaction_result": True,
                "topics": [WritableTxnMarkerTopic(name=topic, partition_indexes=[self.first])],
                "coordinator_epoch": 3,
                **fields,
            }
            return WriteTxnMarkersRequest(markers=[WritableTxnMarker(**given)])

        self.ask(make, version)

    def look(self) -> None:
        """What readers of both kinds find, who writes, and what the group has."""
        for isolation in (0, 1):
            partitions = [
                FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=10_000)
                for index in (self.first, self.second)
            ]
            fetch = FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                isolation_level=isolation,
                topics=[FetchTopic(topic=TOPIC, partitions=partitions)],
            )
            self.ask(lambda *_, fetch=fetch: fetch, 12, "producer_id records")
            sizes = [len(each["records"] or b"") for each in self.told["responses"][0]["partitions"]]
            self.ask(lambda *_, fetch=fetch: fetch, 12, "producer_id records")
            assert sizes == [len(each["records"] or b"") for each in self.told["responses"][0]["partitions"]]
            offsets = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                topics=[
                    ListOffsetsTopic(
                        name=TOPIC,
                        partitions=[
                            ListOffsetsPartition(partition_index=self.first, timestamp=timestamp)
                            for timestamp in (-1, -2, -3, TIMESTAMP)
                        ],
                    )
                ],
            )
            self.ask(lambda *_, offsets=offsets: offsets, 7)
        who = DescribeProducersRequest(
            topics=[TopicRequest(name=TOPIC, partition_indexes=[self.first, self.second])]
        )
        self.ask(lambda *_: who, 0)
        for require_stable in (False, True):
            group = OffsetFetchRequestGroup(
                group_id=self.group,
                topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[self.first])],
            )
            offset_fetch = OffsetFetchRequest(groups=[group], require_stable=require_stable)
            self.ask(lambda *_, request=offset_fetch: request, 8)


def batch(
    producer_id: int,
    epoch: int,
    *,
    sequence: int = 0,
    count: int = 1,
    add_to_epoch: int = 0,
    add_to_id: int = 0,
    is_transactional: bool = True,
    has_producer: bool = True,
) -> bytes:
    built = bytearray(
        build_batch(
            [Record(0, TIMESTAMP + number, b"key", b"value") for number in range(count)],
            producer_id=producer_id + add_to_id if has_producer else -1,
            producer_epoch=epoch + add_to_epoch if has_producer else -1,
            base_sequence=sequence if has_producer else -1,
            is_transactional=is_transactional and has_producer,
        )
    )
    if is_transactional and not has_producer:
        built[ATTRIBUTES + 1] |= 0x10
        stamp_crc(built, len(built))
    return bytes(built)


@pytest.fixture
def story(pair: Pair) -> Story:
    return Story(pair)


@pytest.mark.parametrize("version", [3, 8, 10, 11, 12, 13])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_transaction(story: Story, version: int, is_committed: bool) -> None:
    is_new = version >= 12
    story.produce(version, story.second, is_transactional=False, transactional_id=None)
    story.begin()
    if not is_new:
        story.add(story.first)
    story.produce(version, story.first, count=2)
    story.produce(version, story.first, sequence=2)
    story.produce(version, story.first, sequence=2)  # again
    if is_new:
        story.produce(version, story.second)
    story.look()
    story.end(is_committed=is_committed, version=5 if is_new else 4)
    story.look()


@pytest.mark.parametrize("version", [8, 10, 11, 12, 13])
def test_what_is_refused(story: Story, version: int) -> None:
    produce = story.produce
    produce(version, story.first, transactional_id=None)
    produce(version, story.first, transactional_id="nobody's")
    produce(version, story.first, add_to_epoch=1)
    produce(version, story.first, add_to_id=1)
    produce(version, story.first, sequence=3)
    produce(version, story.first, is_transactional=False, sequence=7)
    story.look()
    story.begin()
    if version < 12:
        story.add(story.first)
    produce(version, story.first)
    produce(version, story.first, sequence=1, is_transactional=False)
    produce(version, story.first, sequence=1, add_to_epoch=1)
    produce(version, story.first, sequence=5)
    produce(version, story.first, transactional_id="nobody's", sequence=1)
    story.look()


@pytest.mark.parametrize("version", [11, 12])
def test_transactional_records_of_no_producer(story: Story, version: int) -> None:
    story.produce(version, story.first, has_producer=False)
    story.produce(version, story.first, has_producer=False, transactional_id=None)
    story.look()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("transaction_version", [0, 2])
def test_markers(story: Story, version: int, transaction_version: int) -> None:
    options: dict[str, Any] = {"transaction_version": transaction_version} if version >= 2 else {}
    story.mark(version, **options)  # of a producer that nobody knows
    story.mark(version, "unknown", **options)
    story.mark(version, coordinator_epoch=2, **options)
    story.look()
    story.begin()
    story.add(story.first)
    story.produce(11, story.first, count=2)
    story.mark(version, coordinator_epoch=2, **options)
    story.mark(version, add_to_epoch=-1, **options)
    story.mark(version, **options)
    story.look()
    story.mark(version, add_to_epoch=1, transaction_result=False, **options)
    story.mark(version, add_to_epoch=1, transaction_result=False, **options)
    story.mark(version, add_to_epoch=2, coordinator_epoch=9, **options)
    story.look()


def test_markers_of_nothing(story: Story) -> None:
    story.ask(lambda *_: WriteTxnMarkersRequest(markers=[]), 2)
    story.mark(2, topics=[])


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("is_committed", [True, False])
def test_offsets_of_a_transaction(story: Story, version: int, is_committed: bool) -> None:
    if version < 5:
        story.add_offsets()
    story.commit(version)
    story.look()
    story.end(is_committed=is_committed, version=5 if version >= 5 else 4)
    story.look()


@pytest.mark.parametrize("version", range(6))
def test_offsets_that_are_refused(story: Story, version: int) -> None:
    story.commit(version, transactional_id="nobody's")
    story.commit(version, producer_epoch=99)
    story.commit(version, producer_id=999_999)
    story.commit(version, group_id="")
    story.commit(version, topics=[])
    story.commit(version, topic="unknown")
    if version < 5:
        story.commit(version)
        story.begin()
        story.add_offsets()
    story.commit(version, metadata="x" * 5000)
    if version >= 3:
        story.commit(version, generation_id=5)
        story.commit(version, generation_id=5, member_id="nobody")
        story.commit(version, member_id="nobody")
        story.commit(version, group_instance_id="nobody")
    story.look()


def test_producers_of_what_is_not_there(story: Story) -> None:
    for name in ("unknown", "a/b", "", TOPIC):
        request = DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[0, 999])])
        story.ask(lambda *_, request=request: request, 0, "producer_id last_timestamp")
