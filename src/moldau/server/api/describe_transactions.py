"""DescribeTransactions (key 65), version 0: the state of transactional ids that are kept here."""

from __future__ import annotations

from moldau.server.context import RequestContext
from moldau.server.waiting import result_of
from moldau.txn.transaction import by_topic
from moldau.wire.errors import KafkaError
from moldau.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


async def handle(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[await _described(context, each) for each in request.transactional_ids]
    )


async def _described(context: RequestContext, transactional_id: str) -> TransactionState:
    try:
        found = await result_of(context.services.transactions.describe(transactional_id))
    except KafkaError as failure:
        return TransactionState(transactional_id=transactional_id, error_code=failure.code)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.told_as,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(found.partitions).items()
        ],
    )
