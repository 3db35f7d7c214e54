"""AddPartitionsToTxn (key 24), versions 0-5: v2 PRODUCER_FENCED, v3 flexible, v4 several transactions, and
verification only, for brokers; v5 TRANSACTION_ABORTABLE.

Clients ask in versions up to 3, about one transaction. A partition that is not there fails all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moldau.server.context import RequestContext
from moldau.server.transaction_apis import client_transaction_version, told_code
from moldau.server.waiting import result_of
from moldau.txn.transaction import TopicPartition
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

_FENCED_FROM, _BATCHED_FROM = 2, 4


async def handle(context: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    if context.version < _BATCHED_FROM:
        errors = await _add(
            context,
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            ),
        )
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_results(request.v3_and_below_topics, errors)
        )
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=_results(transaction.topics, await _add(context, transaction)),
            )
            for transaction in request.transactions
        ]
    )


async def _add(
    context: RequestContext, transaction: AddPartitionsToTxnTransaction
) -> Mapping[TopicPartition, ErrorCode]:
    partitions = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    image = context.services.image()
    missing = {each for each in partitions if image.partition(*each) is None}
    if missing:
        return {
            each: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if each in missing
            else ErrorCode.OPERATION_NOT_ATTEMPTED
            for each in partitions
        }
    try:
        return await result_of(
            context.services.transactions.add_partitions(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                partitions,
                verify_only=transaction.verify_only,
                transaction_version=client_transaction_version(context.version, bumps_from=_BATCHED_FROM),
            )
        )
    except KafkaError as failure:
        return dict.fromkeys(partitions, told_code(failure, context.version, fenced_from=_FENCED_FROM))


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], errors: Mapping[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=errors[topic.name, index]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
