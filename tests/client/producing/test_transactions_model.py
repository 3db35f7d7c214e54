"""Transactions against a coordinator that answers late, wrongly or not at all: what was committed is there as
a whole and once, what was aborted is not there, and every call ends."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from model_cluster import Faults, ModelCluster, ModelPartition

from moldau.client.errors import AbortableError, FatalError, FencedError, InvalidConfigurationError
from moldau.client.producing.batch import ProducerBatch
from moldau.client.producing.config import ProducerConfig
from moldau.client.producing.identity import Identity
from moldau.client.producing.operations import (
    Ask,
    GroupMetadata,
    OffsetAndMetadata,
    Operation,
    PreparedTransaction,
    State,
)
from moldau.client.producing.sender import Sender
from moldau.client.producing.transactions import Transactions
from moldau.client.topology import TopicPartition
from moldau.config.option import Problem
from moldau.records.batch import parse_header
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from moldau.wire.schema import Message

PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class ModelTransactions(ModelCluster):
    """And a coordinator, of a producer that has the one transactional id there is."""

    def __init__(self, sender: Sender, seed: int, *, version: int) -> None:
        super().__init__(sender, seed)
        assert sender.transactions is not None
        self.transactions = sender.transactions
        self.version = version
        self.coordinator_faults = 0.0
        self.producer_id, self.epoch = 7, -1
        self.added: set[int] = set()
        self.has_offsets = False
        self.open: list[list[int]] = [[] for _ in self.partitions]  # offsets of the transaction that is open
        self.visible: list[list[int]] = [[] for _ in self.partitions]
        self.pending_offsets: dict[TopicPartition, int] = {}
        self.offsets: dict[TopicPartition, int] = {}
        self.refusals: list[ErrorCode] = []  # the next answers, whatever is asked
        self.asked: list[Message] = []
        self.prepared: PreparedTransaction | None = None

    def on_ask(self, ask: Ask) -> None:
        self.asked.append(ask.message)
        self.transactions.on_features(self.version)

        def arrive() -> None:
            happens = self.random.random
            code = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
            if not code and happens() < self.coordinator_faults:
                if happens() < 0.3:
                    if happens() < 0.5:
                        self._answer(ask.message, ErrorCode.NONE)  # it was done, and nobody hears of it
                    error = KafkaError(ErrorCode.NETWORK_EXCEPTION, "lost")
                    self.later(lambda: self.transactions.on_failure(self.now_ms, ask.task, error))
                    return
                code = self.random.choice(PASSING)
            response = self._answer(ask.message, code)
            self.later(lambda: self.transactions.on_response(self.now_ms, ask.task, response))

        self.later(arrive)

    def _answer(self, request: Message, code: ErrorCode) -> Message:
        match request:
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(error_code=code, error_message=None, node_id=0)
            case InitProducerIdRequest():
                if code:
                    return InitProducerIdResponse(error_code=code)
                if request.keep_prepared_txn and self.prepared is not None:
                    self.epoch += 1
                    ongoing = self.prepared
                    return InitProducerIdResponse(
                        producer_id=self.producer_id,
                        producer_epoch=self.epoch,
                        ongoing_txn_producer_id=ongoing.producer_id,
                        ongoing_txn_producer_epoch=ongoing.producer_epoch,
                    )
                self._end(committed=False)
                self.epoch += 1
                return InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=self.epoch)
            case AddPartitionsToTxnRequest():
                assert self.version < 2
                topics = []
                for topic in request.v3_and_below_topics:
                    if not code:
                        self.added |= set(topic.partitions)
                    results = [
                        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                        for index in topic.partitions
                    ]
                    topics.append(
                        AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results)
                    )
                return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
            case AddOffsetsToTxnRequest():
                assert self.version < 2
                self.has_offsets = self.has_offsets or not code
                return AddOffsetsToTxnResponse(error_code=code)
            case TxnOffsetCommitRequest():
                return self._commit_offsets(request, code)
            case EndTxnRequest():
                if code:
                    return EndTxnResponse(error_code=code)
                if request.producer_epoch != self.epoch and self.version < 2:
                    return EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
                if self.version < 2:
                    self._end(committed=request.committed)
                    return EndTxnResponse()
                # Who did not hear of the end asks again with the epoch before it.
                if request.producer_epoch == self.epoch:
                    self._end(committed=request.committed)
                    self.epoch += 1
                return EndTxnResponse(producer_id=self.producer_id, producer_epoch=self.epoch)
        raise AssertionError(request)

    def _commit_offsets(self, request: TxnOffsetCommitRequest, code: ErrorCode) -> Message:
        assert self.has_offsets or self.version >= 2
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                if not code:
                    place = TopicPartition(topic.name, partition.partition_index)
                    self.pending_offsets[place] = partition.committed_offset
                partitions.append(
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                )
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        return TxnOffsetCommitResponse(topics=topics)

    def _end(self, *, committed: bool) -> None:
        for index, offsets in enumerate(self.open):
            if committed:
                self.visible[index] += offsets
            offsets.clear()
        if committed:
            self.offsets |= self.pending_offsets
        self.pending_offsets.clear()
        self.added.clear()
        self.has_offsets = False
        self.prepared = None

    def _append(self, node_id: int, index: int, data: bytes) -> Any:
        header = parse_header(data)
        assert header.is_transactional
        partition: ModelPartition = self.partitions[index]
        if partition.leader == node_id:
            if header.producer_epoch != self.epoch:
                return self._refused(index, ErrorCode.INVALID_PRODUCER_EPOCH)
            if self.version < 2 and index not in self.added:
                return self._refused(index, ErrorCode.INVALID_TXN_STATE)
        before = len(partition.values)
        result = super()._append(node_id, index, data)
        self.open[index] += range(before, len(partition.values))
        return result

    def _refused(self, index: int, code: ErrorCode) -> Any:
        from moldau.wire.produce import PartitionResult

        return PartitionResult(index, code)

    def until(self, operation: Operation) -> KafkaError | None:
        """Let it end; its error."""
        for _ in range(2000):
            if operation.is_done:
                return operation.error
            self.run(self.now_ms + 500)
        raise AssertionError(f"{operation.name} never ends")

    def committed(self) -> list[bytes]:
        return sorted(
            self.partitions[index].values[offset]
            for index, offsets in enumerate(self.visible)
            for offset in offsets
        )


def cluster_of(seed: int, version: int, *, two_phase: bool = False) -> ModelTransactions:
    problems: list[Problem] = []
    texts = {"transactional.id": "t", "batch.size": "200", "delivery.timeout.ms": "20000"}
    config = ProducerConfig.parse(texts, problems)
    identity = Identity(is_transactional=True)
    transactions = Transactions(identity, "t", 60_000, is_two_phase=two_phase)
    sender = Sender(config, Random(seed), transactions=transactions, identity=identity)
    cluster = ModelTransactions(sender, seed, version=version)
    assert cluster.until(transactions.init()) is None
    return cluster


def write(cluster: ModelTransactions, partition: int, value: bytes) -> tuple[ProducerBatch, int]:
    cluster.transactions.add_partition(TopicPartition("t", partition))
    return cluster.append(partition, value)


def end(cluster: ModelTransactions, *, commit: bool) -> bool:
    """Commit or abort, and abort if committing fails; whether it was committed."""
    transactions = cluster.transactions
    try:
        if commit and cluster.until(transactions.commit()) is None:
            return True
    except AbortableError:
        pass
    assert cluster.until(transactions.abort()) is None
    return False


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(60))
def test_what_is_committed_is_there_once_and_what_is_aborted_is_not(seed: int, version: int) -> None:
    cluster = cluster_of(seed, version)
    random = Random(seed)
    cluster.faults = random.choice(
        (
            Faults(),
            Faults(error=0.2, lost_answer=0.1),
            Faults(error_for_good=0.1, leader_change=0.1),
            Faults(latency_ms=(100, 7000), lost_request=0.2),
        )
    )
    cluster.coordinator_faults = random.choice((0.0, 0.2, 0.5))
    expected: list[bytes] = []
    offsets: dict[TopicPartition, int] = {}
    for number in range(12):
        cluster.transactions.begin()
        values: list[bytes] = []
        place, committed_offset = TopicPartition("in", number % 2), number
        has_offsets = False
        try:
            for step in range(random.randrange(12)):
                values.append(b"%03d-%03d" % (number, step))
                write(cluster, random.randrange(2), values[-1])
                if random.random() < 0.2:
                    cluster.run(cluster.now_ms + random.choice((1, 30)))
            if random.random() < 0.3:
                sent = cluster.transactions.send_offsets(
                    {place: OffsetAndMetadata(committed_offset)}, GroupMetadata("g")
                )
                has_offsets = cluster.until(sent) is None
        except AbortableError:
            pass
        if end(cluster, commit=random.random() < 0.7):
            expected += values
            if has_offsets:
                offsets[place] = committed_offset
    assert cluster.committed() == sorted(expected)
    assert cluster.offsets == offsets
    assert cluster.sender.accumulator.used == 0
    assert cluster.transactions.state is State.READY


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_asked_of_the_coordinator(version: int) -> None:
    cluster = cluster_of(1, version)
    for _ in range(2):
        cluster.transactions.begin()
        write(cluster, 0, b"x")
        assert end(cluster, commit=True)
    kinds = [type(request).__name__ for request in cluster.asked]
    first = ["FindCoordinatorRequest", "InitProducerIdRequest"]
    one = ["EndTxnRequest"] if version == 2 else ["AddPartitionsToTxnRequest", "EndTxnRequest"]
    assert kinds == first + one + one
    assert cluster.epoch == (2 if version == 2 else 0)


def test_a_transaction_with_nothing_in_it_is_nobodys_concern() -> None:
    cluster = cluster_of(1, 2)
    asked = len(cluster.asked)
    for commit in (True, False):
        cluster.transactions.begin()
        end(cluster, commit=commit)
    assert len(cluster.asked) == asked


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_is_finished(version: int, code: ErrorCode) -> None:
    cluster = cluster_of(1, version)
    cluster.transactions.begin()
    batch, _ = write(cluster, 0, b"x")
    cluster.run(cluster.now_ms + 1000)
    assert batch.error is None
    cluster.refusals = [code]
    assert isinstance(cluster.until(cluster.transactions.commit()), FencedError)
    for call in (cluster.transactions.begin, cluster.transactions.abort, cluster.transactions.commit):
        with pytest.raises(FencedError):
            call()
    with pytest.raises(FencedError):
        write(cluster, 0, b"y")


def test_a_fenced_producers_records_fail() -> None:
    cluster = cluster_of(1, 1)
    cluster.transactions.begin()
    cluster.refusals = [ErrorCode.PRODUCER_FENCED]
    batch, _ = write(cluster, 0, b"x")
    cluster.run(cluster.now_ms + 1000)
    assert isinstance(batch.error, FencedError)


@pytest.mark.parametrize("version", [1, 2])
def test_an_abortable_error_lasts_until_the_abort(version: int) -> None:
    cluster = cluster_of(1, version)
    cluster.transactions.begin()
    write(cluster, 0, b"x")
    cluster.run(cluster.now_ms + 1000)
    cluster.refusals = [ErrorCode.TRANSACTION_ABORTABLE]
    assert isinstance(cluster.until(cluster.transactions.commit()), AbortableError)
    for call in (cluster.transactions.begin, cluster.transactions.commit):
        with pytest.raises(AbortableError):
            call()
    assert cluster.until(cluster.transactions.abort()) is None
    cluster.transactions.begin()
    write(cluster, 1, b"y")
    assert end(cluster, commit=True)
    assert cluster.committed() == [b"y"]


def test_a_producer_that_is_not_allowed_may_try_again() -> None:
    identity = Identity(is_transactional=True)
    transactions = Transactions(identity, "t", 60_000)
    config = ProducerConfig.parse({"transactional.id": "t"}, [])
    cluster = ModelTransactions(
        Sender(config, Random(1), transactions=transactions, identity=identity), 1, version=2
    )
    cluster.refusals = [ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert isinstance(cluster.until(transactions.init()), InvalidConfigurationError)
    with pytest.raises(RuntimeError, match="not initialized"):
        transactions.begin()
    assert cluster.until(transactions.init()) is None
    transactions.begin()


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
@pytest.mark.parametrize("version", [1, 2])
def test_every_error_code_of_an_end_leads_to_an_outcome(version: int, code: ErrorCode) -> None:
    cluster = cluster_of(1, version)
    cluster.transactions.begin()
    write(cluster, 0, b"x")
    cluster.run(cluster.now_ms + 1000)
    cluster.refusals = [code]
    error = cluster.until(cluster.transactions.commit())
    if error is None:
        assert code.retriable and cluster.committed() == [b"x"]
    elif cluster.transactions.state is State.ABORTABLE_ERROR:
        assert isinstance(error, AbortableError)
        assert cluster.until(cluster.transactions.abort()) is None
        assert cluster.transactions.state is State.READY
        assert cluster.committed() == []
    else:
        assert cluster.transactions.state is State.FATAL_ERROR
        assert isinstance(error, FatalError)


def test_a_call_that_was_given_up_is_taken_up_by_the_same_call_only() -> None:
    cluster = cluster_of(1, 2)
    cluster.transactions.begin()
    write(cluster, 0, b"x")
    committing = cluster.transactions.commit()
    assert cluster.transactions.commit() is committing
    for call in (cluster.transactions.abort, cluster.transactions.begin):
        with pytest.raises(RuntimeError, match="has not ended yet"):
            call()
    assert cluster.until(committing) is None


def test_calls_in_the_wrong_order() -> None:
    cluster = cluster_of(1, 2)
    with pytest.raises(RuntimeError, match="ready"):
        write(cluster, 0, b"x")
    for call in (cluster.transactions.commit, cluster.transactions.abort, cluster.transactions.init):
        with pytest.raises(RuntimeError, match="ready"):
            call()
    cluster.transactions.begin()
    with pytest.raises(RuntimeError, match="in a transaction"):
        cluster.transactions.begin()
    with pytest.raises(ValueError, match=r"two\.phase"):
        cluster.transactions.prepare()


@pytest.mark.parametrize("is_decided", [True, False])
def test_a_prepared_transaction_is_kept_for_the_next_life(is_decided: bool) -> None:
    cluster = cluster_of(1, 2, two_phase=True)
    cluster.transactions.begin()
    write(cluster, 0, b"x")
    cluster.run(cluster.now_ms + 1000)
    prepared = cluster.transactions.prepare()
    with pytest.raises(RuntimeError, match="prepared"):
        write(cluster, 0, b"y")
    cluster.prepared = prepared

    identity = Identity(is_transactional=True)
    after = Transactions(identity, "t", 60_000, is_two_phase=True)
    config = ProducerConfig.parse({"transactional.id": "t"}, [])
    cluster.sender = Sender(config, Random(1), transactions=after, identity=identity)
    cluster.transactions = after
    assert cluster.until(after.init(keep_prepared=True)) is None
    assert after.state is State.PREPARED
    decided = prepared if is_decided else PreparedTransaction(0, 0)
    assert cluster.until(after.complete(decided)) is None
    assert cluster.committed() == ([b"x"] if is_decided else [])
