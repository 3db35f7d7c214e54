"""Produce (key 0), versions 3-13: v9 flexible, v10 the current leader on errors, v12 transactions without
AddPartitionsToTxn, v13 topic ids.

Hot: everything that is not an error runs straight through, without a task, a future or a decoded message. A
batch that begins a transaction in its partition may have to wait for the transaction coordinator, which is
asked before (`server/txn_verification.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct

from moldau.coordinator.decision import Waiter
from moldau.log.append_rules import whole_batch
from moldau.log.errors import LogDirError, NotInTransaction, NotOneBatch
from moldau.log.producer_state import ONGOING
from moldau.net.connection import NO_REPLY, PENDING, Connection, Reply, Signal
from moldau.records.batch import HEADER_BYTES, TRANSACTIONAL_BIT, parse_header
from moldau.records.compression import Codec
from moldau.server.services import Services
from moldau.server.txn_verification import (
    Asked,
    NotVerified,
    Producer,
    Verified,
    as_producer_is_told,
    producing,
)
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.produce import (
    TOPIC_IDS_FROM,
    PartitionResult,
    ProduceRequest,
    read_one_partition,
    read_one_partition_of_transaction,
    read_produce_request,
    write_one_partition,
    write_produce_response,
)

log = logging.getLogger(__name__)

# Kafka lets its own admin client, and nobody else, write to internal topics.
_ADMIN_CLIENT_ID = "__admin_client"

_ZSTD_FROM = 7

# In the header of a batch: attributes, producer id, producer epoch and first sequence.
_PRODUCER_OF = Struct(">21xh20xqhi").unpack_from

# Not counted as failed, as in Kafka: they tell of clients and of the cluster's state, not of this broker.
_EXPECTED = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)


def handle(
    services: Services,
    connection: Connection,
    version: int,
    correlation_id: int,
    frame: memoryview,
    position: int,
) -> Reply | Signal:
    replicas = services.replicas
    one = read_one_partition(version, frame, position)
    if one is not None:
        acks, topic, index, records = one
        known = replicas.by_id.get(topic) if version >= TOPIC_IDS_FROM else replicas.by_name.get(topic)
        partition = known.get(index) if known is not None else None
        if partition is not None and not partition.is_internal and (acks == 1 or acks == -1):
            try:
                appended = partition.append(records, acks, services.runtime.clock.now_ms())
            except KafkaError as failure:
                result = _failed(services, topic, index, version, failure)
                return write_produce_response(version, correlation_id, [(topic, [result])])
            services.produce_errors[0] += 1
            return write_one_partition(
                version,
                correlation_id,
                topic,
                index,
                appended.base_offset,
                appended.log_append_time_ms,
                appended.log_start_offset,
            )
    else:
        one = read_one_partition_of_transaction(version, frame, position)
        reply = None if one is None else _go_on(services, version, correlation_id, *one)
        if reply is not None:
            return reply
    return _handle_any(services, connection, version, correlation_id, frame, position)


def _go_on(
    services: Services,
    version: int,
    correlation_id: int,
    acks: int,
    topic: bytes,
    index: int,
    records: memoryview,
) -> Reply | None:
    """Appends one more batch to a transaction that is open in its partition; None for anything else."""
    replicas = services.replicas
    known = replicas.by_id.get(topic) if version >= TOPIC_IDS_FROM else replicas.by_name.get(topic)
    partition = known.get(index) if known is not None else None
    if partition is None or partition.is_internal or (acks != 1 and acks != -1):
        return None
    of_partition = partition.log
    if of_partition is None or len(records) < HEADER_BYTES:
        return None
    attributes, producer_id, epoch, _ = _PRODUCER_OF(records)
    if not attributes & TRANSACTIONAL_BIT or not of_partition.producers.is_in_transaction(producer_id, epoch):
        return None
    try:
        appended = partition.append_transactional(records, acks, services.runtime.clock.now_ms(), ONGOING)
    except KafkaError as failure:
        result = _failed(services, topic, index, version, failure)
        return write_produce_response(version, correlation_id, [(topic, [result])])
    services.produce_errors[0] += 1
    return write_one_partition(
        version,
        correlation_id,
        topic,
        index,
        appended.base_offset,
        appended.log_append_time_ms,
        appended.log_start_offset,
    )


def _handle_any(
    services: Services,
    connection: Connection,
    version: int,
    correlation_id: int,
    frame: memoryview,
    position: int,
) -> Reply | Signal:
    """What `handle` does not take itself: several partitions, transactions, acks=0, what has to be
    refused."""
    request = read_produce_request(version, frame, position)
    if request.transactional_id is None:
        return _append(services, connection, version, correlation_id, request, None)
    verified = _verify(services, version, request)
    if not isinstance(verified, Waiter):
        return _append(services, connection, version, correlation_id, request, verified)
    # The frame belongs to the connection, and is not there any more when the answer is.
    kept = read_produce_request(version, memoryview(bytearray(frame)), position)

    def complete() -> None:
        if connection.closed:
            return
        try:
            reply = _append(services, connection, version, correlation_id, kept, verified.result())
        except Exception:
            # As in the dispatcher, which is not above us here: our bug ends the connection, not the node.
            log.exception("a produce request of %s that had to wait failed", connection.peer_host)
            connection.close()
            return
        connection.reply(reply)

    verified.when_done(complete)
    return PENDING


def _verify(
    services: Services, version: int, request: ProduceRequest
) -> Verified | NotVerified | Waiter[Verified]:
    """What is to be shown with the batches that begin a transaction in their partition, or the error of all
    partitions."""
    by_topic_id = version >= TOPIC_IDS_FROM
    topics = services.replicas.by_id if by_topic_id else services.replicas.by_name
    producers: set[tuple[int, int]] = set()
    asked: list[Asked] = []
    for topic, partitions in request.topics:
        known = topics.get(topic, {})
        for index, records in partitions:
            partition = known.get(index)
            if partition is None or records is None or len(records) < HEADER_BYTES:
                continue
            attributes, producer_id, epoch, sequence = _PRODUCER_OF(records)
            if not attributes & TRANSACTIONAL_BIT or producer_id < 0:
                continue
            producers.add((producer_id, epoch))
            of_partition = partition.log
            if of_partition is None or not of_partition.producers.is_in_transaction(producer_id, epoch):
                asked.append(Asked(partition, sequence))
    if len(producers) > 1:
        return NotVerified(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "a request is of one producer")
    if not asked:
        return {}
    assert request.transactional_id is not None
    kind = producing(version)
    producer = Producer(request.transactional_id, *producers.pop())
    waiter = services.txn_verification.verify(producer, kind, asked, retries=True)
    return waiter.result() if waiter.is_done else waiter


def _append(
    services: Services,
    connection: Connection,
    version: int,
    correlation_id: int,
    request: ProduceRequest,
    verified: Verified | NotVerified | None,
) -> Reply | Signal:
    """`verified` is None without a transaction, and the error if all partitions have the same."""
    acks = request.acks
    check: Callable[[memoryview], None] | None = None
    if not -1 <= acks <= 1:
        check = _refuse_acks
    elif version < _ZSTD_FROM:
        check = _refuse_zstd
    replicas = services.replicas
    if version >= TOPIC_IDS_FROM:
        topics_known, unknown = replicas.by_id, ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topics_known, unknown = replicas.by_name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    now_ms = services.runtime.clock.now_ms()
    failed = handled = 0
    answer = []
    for topic, partitions in request.topics:
        known = topics_known.get(topic)
        results = []
        for index, records in partitions:
            try:
                if known is None:
                    raise KafkaError(unknown)
                partition = known.get(index)
                if partition is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                if records is None or not records:
                    raise NotOneBatch(ErrorCode.INVALID_RECORD, "a partition without records")
                if check is not None:
                    check(records)
                if partition.is_internal and connection.client_id != _ADMIN_CLIENT_ID:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is internal")
                if verified is None:
                    appended = partition.append(records, acks, now_ms)
                elif isinstance(verified, NotVerified):
                    raise verified
                else:
                    shown = verified.get((partition.topic, partition.index), ONGOING)
                    if isinstance(shown, KafkaError):
                        raise as_producer_is_told(shown, producing(version))
                    appended = partition.append_transactional(records, acks, now_ms, shown)
                results.append(
                    PartitionResult(
                        index,
                        0,
                        appended.base_offset,
                        appended.log_append_time_ms,
                        appended.log_start_offset,
                    )
                )
            except KafkaError as failure:
                failed += 1
                results.append(_failed(services, topic, index, version, failure))
        handled += len(results)
        answer.append((topic, results))
    if acks == 0:
        if failed:
            # The client asked for no response; as in Kafka, losing the connection is how it learns.
            connection.close_behind_responses()
        return NO_REPLY
    services.produce_errors[0] += handled - failed
    return write_produce_response(version, correlation_id, answer)


def _refuse_acks(records: memoryview) -> None:
    whole_batch(records)
    raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)


def _refuse_zstd(records: memoryview) -> None:
    """Clients of these versions may not know it, and would meet the batch when they consume."""
    if parse_header(records).codec == Codec.ZSTD:
        raise NotOneBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd takes version 7 of Produce")


def _failed(
    services: Services,
    topic: bytes,
    index: int,
    version: int,
    failure: KafkaError,
) -> PartitionResult:
    if isinstance(failure, NotInTransaction):
        failure = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if isinstance(failure, LogDirError):
        services.on_log_dir_failure(failure)
    services.produce_errors[int(failure.code)] += 1
    leader_id = leader_epoch = log_start_offset = -1
    topics = services.replicas.by_id if version >= TOPIC_IDS_FROM else services.replicas.by_name
    partition = topics.get(topic, {}).get(index)
    if partition is not None:
        if failure.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader_id, leader_epoch = partition.leader_id, partition.leader_epoch
        if failure.code not in _EXPECTED and not isinstance(failure, NotOneBatch | NotVerified):
            partition.failed_produce_requests += 1
            if partition.log is not None:
                log_start_offset = partition.log.log_start_offset
    return PartitionResult(
        index,
        int(failure.code),
        log_start_offset=log_start_offset,
        record_errors=getattr(failure, "record_errors", ()),
        error_message=failure.message,
        leader_id=leader_id,
        leader_epoch=leader_epoch,
    )
