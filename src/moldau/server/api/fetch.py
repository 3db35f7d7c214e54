"""Fetch (key 1), versions 4-18: v7 sessions, v9 leader epochs, v11 racks, v12 flexible and diverging
epochs, v13 topic ids, v15 replica state in a tag, v16 node endpoints, v17 directory ids, v18 the follower's
high watermark.

Hot: what is sent is a range of the segment, found by an index and never decoded. A fetch that finds less
than it asked for parks in the purgatory and is read again when woken. One that finds what is no longer in the
page cache has it read in the pool, so that nobody else waits for the disk, and is read again, too."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from moldau.log.log import Slice
from moldau.net.connection import PENDING, Connection, FileRange, Part, Reply, Signal
from moldau.replica.fetch_session import FetchContext
from moldau.replica.partition import Partition
from moldau.runtime.interfaces import Runtime
from moldau.server.services import Services
from moldau.wire import fetch as wire
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.fetch import TOPIC_IDS_FROM, FetchPartition, FetchRequest, PartitionHead, read_fetch_request

logger = logging.getLogger(__name__)

_IS_READ_COMMITTED = {0: False, 1: True}
# Below this, reading into the response costs less than one more system call.
COPY_BYTES_MAX = 16 * 1024

# Its tag may be sent in any flexible version, but as in Kafka the leader is told from here on.
_LEADER_FROM = 16
# Clients of older versions may not know the code, and would not look for the partition elsewhere.
_STORAGE_ERROR_FROM = 6
_TELLS_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

# Not counted as failed, as in Kafka: they tell of clients and of the cluster's state, not of this broker.
_EXPECTED = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)


class _Answer(NamedTuple):
    asked: FetchPartition
    head: PartitionHead
    slice: Slice | None
    partition: Partition | None


def handle(
    services: Services,
    connection: Connection,
    version: int,
    correlation_id: int,
    frame: memoryview,
    position: int,
) -> Reply | Signal:
    request = read_fetch_request(version, frame, position)
    by_topic_id = version >= TOPIC_IDS_FROM
    clock = services.runtime.clock
    try:
        read_committed = _IS_READ_COMMITTED[request.isolation_level]
    except KeyError:
        return _respond_unreadable(services, version, correlation_id, request)
    try:
        context = services.fetch_sessions.open(
            request,
            connection.client_id or "",
            connection.peer_host,
            by_topic_id=by_topic_id,
            now_ms=clock.now_ms(),
        )
    except KafkaError as failure:
        services.fetch_errors[int(failure.code)] += 1
        return _respond_failed(version, correlation_id, failure.code)
    answers, missing_bytes, waits_for = _read(services, request, context, by_topic_id, read_committed)
    if missing_bytes > 0:
        # Who allows fewer bytes than it asks for cannot be given more by waiting.
        missing_bytes -= max(request.min_bytes - min(request.max_bytes, services.fetch_max_bytes), 0)
    is_ready = missing_bytes <= 0 or request.max_wait_ms <= 0 or not waits_for
    if is_ready:
        cold = [answer.slice for answer in answers if answer.slice is not None and not answer.slice.is_cached]
        if not cold:
            return _respond(services, version, correlation_id, context, answers)

    def complete() -> None:
        if connection.closed:
            return
        try:
            answers, _, _ = _read(services, request, context, by_topic_id, read_committed)
            response = _respond(services, version, correlation_id, context, answers)
        except Exception:
            # As in the dispatcher, which is not above us here: our bug ends the connection, not the node.
            logger.exception("a parked fetch of %s failed", connection.peer_host)
            connection.close()
            return
        connection.reply(response)

    if is_ready:
        services.runtime.spawn(_load(services.runtime, cold, complete), f"fetch of {connection.peer_host}")
        return PENDING
    delayed = services.fetch_purgatory.park(
        waits_for, missing_bytes, request.max_wait_ms / 1000, complete, read_committed=read_committed
    )
    connection.on_closed = delayed.cancel
    return PENDING


async def _load(runtime: Runtime, cold: list[Slice], complete: Callable[[], None]) -> None:
    """Has what is on the disk read where that may wait."""
    for found in cold:
        try:
            await runtime.run_blocking(found.file.load, found.count, found.position)
        except OSError as error:
            # Whoever sends it will meet the same, and knows what it means there.
            logger.warning("cannot read %s: %s", found.file.path, error)
    complete()


def _read(
    services: Services,
    request: FetchRequest,
    context: FetchContext,
    by_topic_id: bool,
    read_committed: bool,
) -> tuple[list[_Answer], int, list[Partition]]:
    """What there is now, how many bytes short of the minimum that is (none when there is a reason to answer
    at once), and the partitions that could bring more."""
    topics = services.replicas.by_id if by_topic_id else services.replicas.by_name
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_topic_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    bytes_left = min(request.max_bytes, services.fetch_max_bytes)
    found_bytes = 0
    answer_now = False
    answers: list[_Answer] = []
    waits_for: list[Partition] = []
    for asked in context.partitions:
        _, index, leader_epoch, offset, last_fetched_epoch, _, max_bytes = asked
        found: Slice | None = None
        aborted: list[tuple[int, int]] | None = None
        diverging: tuple[int, int] | None = None
        partition: Partition | None = None
        try:
            partitions = topics.get(asked.topic)
            if partitions is None:
                raise KafkaError(unknown)
            partition = partitions.get(index)
            if partition is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            log = partition.leader_log(leader_epoch)
            if last_fetched_epoch >= 0:
                diverging = _diverging_epoch(partition, offset, last_fetched_epoch)
            if diverging is not None:
                answer_now = True
            elif bytes_left > 0 or not found_bytes:
                found = partition.read(
                    offset,
                    min(max_bytes, bytes_left),
                    read_committed=read_committed,
                    min_one_batch=not found_bytes,
                )
                found_bytes += found.count
                bytes_left -= found.count
            elif not log.log_start_offset <= offset <= log.log_end_offset:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)  # known without reading, and worth knowing
            if read_committed:
                aborted = partition.aborted_transactions(offset, found)
            head = PartitionHead(
                index, 0, log.high_watermark, log.last_stable_offset, log.log_start_offset, aborted, diverging
            )
            waits_for.append(partition)
        except KafkaError as failure:
            answer_now = True
            head = _failed(services, index, partition, failure)
            found = None
        answers.append(_Answer(asked, head, found, partition))
    return answers, 0 if answer_now else request.min_bytes - found_bytes, waits_for


def _diverging_epoch(partition: Partition, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
    """Where the reader's log parts from ours, if it does (KIP-595): the reader goes back there by itself."""
    log = partition.leader_log()
    epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
    if epoch < 0 or end_offset < 0 or offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < last_fetched_epoch or end_offset < offset:
        return epoch, end_offset
    return None


def _failed(
    services: Services, index: int, partition: Partition | None, failure: KafkaError
) -> PartitionHead:
    services.on_storage_failure(failure)
    if partition is not None and failure.code not in _EXPECTED:
        partition.failed_fetch_requests += 1
    if partition is None:
        return PartitionHead(index, int(failure.code), aborted=[])
    if failure.code in _TELLS_LEADER:
        return PartitionHead(index, int(failure.code), leader=(partition.leader_id, partition.leader_epoch))
    return PartitionHead(index, int(failure.code))


def _respond_failed(version: int, correlation_id: int, code: ErrorCode) -> bytearray:
    out = wire.begin_response(version, correlation_id, 0, int(code), 0)
    wire.end_response(version, out)
    wire.finish_frame(out, len(out))
    return out


def _for_older_clients(version: int, head: PartitionHead) -> PartitionHead:
    if version < _STORAGE_ERROR_FROM and head.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
        return head._replace(error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    return head._replace(leader=None)


def _respond_unreadable(
    services: Services, version: int, correlation_id: int, request: FetchRequest
) -> bytearray:
    """There is no such isolation level: as in Kafka a failure of the server, told for each partition to those
    who may not look at the code of the response."""
    code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    topics: dict[bytes, list[int]] = {}
    if version < TOPIC_IDS_FROM:
        for asked in request.partitions:
            topics.setdefault(asked.topic, []).append(asked.partition)
    services.fetch_errors[code] += 1 + len(request.partitions)
    out = wire.begin_response(version, correlation_id, 0, code, len(topics))
    for topic, indexes in topics.items():
        wire.begin_topic(version, topic, len(indexes), out)
        for index in indexes:
            head = PartitionHead(index, code, aborted=[])
            wire.begin_partition(version, head, 0, out)
            wire.end_partition(version, head, out)
        wire.end_topic(version, out)
    wire.end_response(version, out)
    wire.finish_frame(out, len(out))
    return out


def _respond(
    services: Services, version: int, correlation_id: int, context: FetchContext, answers: list[_Answer]
) -> list[Part]:
    session = context.session
    if session is not None:
        news = []
        for answer in answers:
            key = (answer.asked.topic, answer.asked.partition)
            entry = session.partitions.get(key)
            size = answer.slice.count if answer.slice is not None else 0
            if entry is None or entry.is_news(answer.head, size) or not context.incremental:
                news.append(answer)
                if size and entry is not None and context.incremental:
                    session.move_to_end(key)
        answers = news
    errors = services.fetch_errors
    errors[0] += 1 + len(answers)  # the response has a code of its own
    topics: dict[bytes, list[_Answer]] = {}
    for answer in answers:
        topics.setdefault(answer.asked.topic, []).append(answer)

    parts: list[Part] = []
    total = 0
    first = out = wire.begin_response(version, correlation_id, context.session_id, 0, len(topics))
    for topic, of_topic in topics.items():
        wire.begin_topic(version, topic, len(of_topic), out)
        for _, head, found, partition in of_topic:
            if head.error_code:
                if version < _LEADER_FROM:
                    head = _for_older_clients(version, head)
                errors[0] -= 1
                errors[head.error_code] += 1
            size = found.count if found is not None else 0
            if partition is not None:
                partition.bytes_out += size
            wire.begin_partition(version, head, size, out)
            if found is None or not size:
                pass
            elif size <= COPY_BYTES_MAX:
                records = found.file.read_at(size, found.position)
                if len(records) < size:
                    raise EOFError(f"{found.file.path} ends before position {found.position + size}")
                out += records
            else:
                parts += (out, FileRange(found.file, found.position, size))
                total += len(out) + size
                out = bytearray()
            wire.end_partition(version, head, out)
        wire.end_topic(version, out)
    wire.end_response(version, out)
    parts.append(out)
    wire.finish_frame(first, total + len(out))
    return parts
