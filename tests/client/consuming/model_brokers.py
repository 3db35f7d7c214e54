"""Brokers as a fetching consumer sees them: logs, leaders that move, sessions that are lost, replicas that
are nearer, answers that do not come. They check what they are asked as a broker would."""

from __future__ import annotations

from random import Random

from moldau.client.consuming.asking import Ask, RefreshMetadata
from moldau.client.consuming.machine import Machine
from moldau.client.topology import PartitionInfo, TopicInfo, TopicPartition
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid
from moldau.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

NODES = (1, 2, 3)
TOPIC = "t"
TOPIC_ID = Uuid(b"0123456789abcdef")
FETCH_VERSION = 17


class Log:
    def __init__(self) -> None:
        self.batches: list[tuple[int, int, bytes]] = []  # base offset, leader epoch, bytes
        self.start = 0
        self.end = 0
        self.leader = 1
        self.epoch = 0

    def append(self, random: Random) -> None:
        count = random.randint(1, 5)
        numbers = range(self.end, self.end + count)
        records = [Record(0, 0, None, b"%d.%d" % (number, self.epoch)) for number in numbers]
        batch = build_batch(records, base_offset=self.end, leader_epoch=self.epoch)
        self.batches.append((self.end, self.epoch, batch))
        self.end += count

    def read(self, offset: int, max_bytes: int) -> bytes:
        data = b""
        following = [*(base for base, _, _ in self.batches[1:]), self.end]
        for (_, _, batch), end in zip(self.batches, following, strict=False):
            if end > offset:
                if data and len(data) + len(batch) > max_bytes:
                    return data + batch[: max(max_bytes - len(data), 0)]
                data += batch
        return data

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The newest epoch up to this one, and where it ends."""
        end = self.end
        for base, each, _ in reversed(self.batches):
            if each <= epoch:
                return each, end
            end = base
        return -1, self.start


class Brokers:
    def __init__(self, random: Random, machine: Machine, partitions: int) -> None:
        self.random = random
        self.machine = machine
        self.now_ms = 1_000_000
        self.logs = [Log() for _ in range(partitions)]
        self.sessions: dict[tuple[int, int], tuple[int, dict[int, FetchPartition]]] = {}
        self.in_flight: list[tuple[int, Ask | RefreshMetadata]] = []
        self.last_session = 0
        self.nearer = 0  # a replica that leaders send readers to
        self.failure_rate = 0.1
        self.incremental = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_ms += self.random.choice((0, 1, 10, 200))
            for effect in self.machine.step(self.now_ms):
                self.in_flight.append((self.now_ms + self.random.randint(0, 50), effect))
            due = [each for each in self.in_flight if each[0] <= self.now_ms]
            for each in due:
                self.in_flight.remove(each)
                self.answer(each[1])

    def answer(self, effect: Ask | RefreshMetadata) -> None:
        fails = self.random.random() < self.failure_rate
        if isinstance(effect, RefreshMetadata):
            if fails:
                self.machine.topics.on_failure(self.now_ms, KafkaError(ErrorCode.NETWORK_EXCEPTION))
            else:
                self.machine.on_metadata(self.now_ms, {TOPIC: self.topic()}, {})
            return
        assert effect.node_id is not None
        request = effect.message(FETCH_VERSION)
        # A request that failed may have been served all the same.
        response = None if fails and self.random.random() < 0.5 else self.serve(effect.node_id, request)
        if fails:
            effect.owner.on_failure(self.now_ms, effect.about, KafkaError(ErrorCode.NETWORK_EXCEPTION))
        else:
            effect.owner.on_response(self.now_ms, effect.about, response)

    def serve(self, node_id: int, request: object) -> object:
        if isinstance(request, FetchRequest):
            return self.fetch(node_id, request)
        assert isinstance(request, ListOffsetsRequest)
        return self.list_offsets(node_id, request)

    def topic(self) -> TopicInfo:
        return TopicInfo(
            name=TOPIC,
            topic_id=TOPIC_ID,
            is_internal=False,
            partitions=tuple(
                PartitionInfo(
                    index=index,
                    leader=log.leader or None,
                    leader_epoch=log.epoch,
                    replicas=NODES,
                    isr=NODES,
                    offline=(),
                )
                for index, log in enumerate(self.logs)
            ),
        )

    def list_offsets(self, node_id: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = request.topics
        answers = []
        for each in topic.partitions:
            log = self.logs[each.partition_index]
            code = ErrorCode.NONE if log.leader == node_id else ErrorCode.NOT_LEADER_OR_FOLLOWER
            offset = log.start if each.timestamp == -2 else log.end
            answers.append(
                ListOffsetsPartitionResponse(
                    partition_index=each.partition_index, error_code=code, offset=offset
                )
            )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=answers)])

    def fetch(self, node_id: int, request: FetchRequest) -> FetchResponse:
        asked = {part.partition: part for topic in request.topics for part in topic.partitions}
        for topic in request.topics:
            assert topic.topic_id == TOPIC_ID
        session_id, is_first = request.session_id, request.session_epoch == 0
        if is_first:
            self.sessions.pop((node_id, session_id), None)
            self.last_session += 1
            session_id, wanted = self.last_session, asked
            keeps = self.random.random() < 0.9
        else:
            known = self.sessions.get((node_id, session_id))
            if known is None or self.random.random() < 0.03:
                self.sessions.pop((node_id, session_id), None)
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            epoch, before = known
            if epoch != request.session_epoch:
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            forgotten = {index for topic in request.forgotten_topics_data for index in topic.partitions}
            assert forgotten <= before.keys()
            wanted = {index: part for index, part in before.items() if index not in forgotten} | asked
            keeps = True
            self.incremental += 1
        if keeps:
            self.sessions[node_id, session_id] = (request.session_epoch + 1, wanted)
        answers = []
        for index, part in wanted.items():
            data = self.partition(node_id, index, part)
            if is_first or data.error_code or data.records or data.preferred_read_replica >= 0:
                answers.append(data)
        return FetchResponse(
            session_id=session_id if keeps else 0,
            responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=answers)],
        )

    def partition(self, node_id: int, index: int, part: FetchPartition) -> PartitionData:
        log = self.logs[index]
        offset = part.fetch_offset
        data = PartitionData(partition_index=index, high_watermark=log.end, aborted_transactions=None)
        data.records = b""
        if node_id not in (log.leader, self.nearer):
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif part.current_leader_epoch < log.epoch:
            data.error_code = ErrorCode.FENCED_LEADER_EPOCH
        elif part.last_fetched_epoch >= 0 and (
            (found := log.end_of_epoch(part.last_fetched_epoch))[0] < part.last_fetched_epoch
            or found[1] < offset
        ):
            data.diverging_epoch = EpochEndOffset(epoch=found[0], end_offset=found[1])
            data.error_code = ErrorCode.NONE
            data.records = None
        elif not log.start <= offset <= log.end:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif node_id == log.leader and self.nearer not in (0, node_id):
            data.preferred_read_replica = self.nearer
        else:
            data.records = log.read(offset, part.partition_max_bytes)
        return data


def place(index: int) -> TopicPartition:
    return TopicPartition(TOPIC, index)
