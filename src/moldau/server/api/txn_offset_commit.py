"""TxnOffsetCommit (key 28), versions 0-5: v2 leader epochs, v3 flexible and members of groups, v4
TRANSACTION_ABORTABLE, v5 transactions without AddOffsetsToTxn.

The offsets count when the transaction is committed. As with batches of records, the transaction coordinator
has to know that the group's partition of `__consumer_offsets` takes part, before the first of them is written
there.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.coordinator.coordinator import as_coordinator_tells
from moldau.coordinator.decision import Waiter
from moldau.records.batch import NO_SEQUENCE
from moldau.server.context import RequestContext
from moldau.server.group_coordinator import TOPIC
from moldau.server.txn_verification import Asked, Producer, Verified, committing
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

# Producers of older versions fail on it.
_LOADING_FROM = 2


def handle(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Waiter[TxnOffsetCommitResponse]:
    asked = request.topics
    refused = _take_out_unknown(context, request)
    if not request.topics:
        return TxnOffsetCommitResponse(topics=refused)
    answer: Waiter[TxnOffsetCommitResponse] = Waiter()

    def failed(failure: KafkaError) -> None:
        answer.give(_all_failed(asked, _as_client_knows(failure.code, context.version)))

    def commit() -> None:
        try:
            committed = _commit(context, request, verified)
        except KafkaError as failure:
            failed(failure)
            return
        committed.when_done(lambda: reply(committed))

    def reply(committed: Waiter[TxnOffsetCommitResponse]) -> None:
        if committed.failure is not None:
            failed(committed.failure)
        else:
            answer.give(_joined(refused, committed.result()))

    try:
        verified = _verify(context, request)
    except KafkaError as failure:
        failed(failure)
        return answer
    verified.when_done(commit)
    return answer


def _verify(context: RequestContext, request: TxnOffsetCommitRequest) -> Waiter[Verified]:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    services = context.services
    partition = services.replicas.get(TOPIC, services.groups.partition_of(request.group_id))
    if partition is None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)
    return services.txn_verification.verify(
        Producer(request.transactional_id, request.producer_id, request.producer_epoch),
        committing(context.version),
        [Asked(partition, NO_SEQUENCE)],
        retries=False,
    )


def _commit(
    context: RequestContext, request: TxnOffsetCommitRequest, verified: Waiter[Verified]
) -> Waiter[TxnOffsetCommitResponse]:
    (shown,) = verified.result().values()
    if isinstance(shown, KafkaError):
        raise as_coordinator_tells(shown)
    return context.services.groups.submit_in_transaction(
        request.group_id,
        lambda shard, now_ms, waiter: shard.commit_txn_offsets(now_ms, request, context.version),
        shown,
    )


def _as_client_knows(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.NETWORK_EXCEPTION:
        # Of the question to the transaction coordinator: to be asked again, without looking for another.
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _joined(
    refused: list[TxnOffsetCommitResponseTopic], committed: TxnOffsetCommitResponse
) -> TxnOffsetCommitResponse:
    topics = {topic.name: topic for topic in refused}
    for topic in committed.topics:
        known = topics.setdefault(topic.name, topic)
        if known is not topic:
            known.partitions += topic.partitions
    return TxnOffsetCommitResponse(topics=list(topics.values()))


def _all_failed(asked: Sequence[TxnOffsetCommitRequestTopic], code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            _failed(topic.name, code, [each.partition_index for each in topic.partitions]) for topic in asked
        ]
    )


def _failed(name: str, code: ErrorCode, indexes: Sequence[int]) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=index, error_code=code) for index in indexes
        ],
    )


def _take_out_unknown(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> list[TxnOffsetCommitResponseTopic]:
    """Leaves in the request what there is; tells of the rest."""
    image = context.services.image()
    refused: list[TxnOffsetCommitResponseTopic] = []
    kept: list[TxnOffsetCommitRequestTopic] = []
    for topic in request.topics:
        known = image.topics.get(topic.name)
        partitions = () if known is None else known.partitions
        there = [each for each in topic.partitions if each.partition_index in partitions]
        missing = [
            each.partition_index for each in topic.partitions if each.partition_index not in partitions
        ]
        if missing or known is None:
            refused.append(_failed(topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, missing))
        if there:
            kept.append(TxnOffsetCommitRequestTopic(name=topic.name, partitions=there))
    request.topics = kept
    return refused
