"""ListTransactions (key 66), versions 0-2: v1 by how long they run (KIP-994), v2 by a pattern of their ids
(KIP-1152)."""

from __future__ import annotations

from moldau.groups.consumer.regex import compiled
from moldau.server.context import RequestContext
from moldau.txn.transaction import STATES_BY_NAME
from moldau.wire.errors import KafkaError
from moldau.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


def handle(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    pattern_text = request.transactional_id_pattern
    try:
        transactions = context.services.transactions.transactions()
        pattern = compiled(pattern_text) if pattern_text else None
    except KafkaError as failure:
        return ListTransactionsResponse(error_code=failure.code)
    producer_ids, longer_than_ms = set(request.producer_id_filters), request.duration_filter
    unknown = [name for name in request.state_filters if name not in STATES_BY_NAME]
    states = {STATES_BY_NAME[name] for name in request.state_filters if name in STATES_BY_NAME}
    now_ms = context.services.runtime.clock.now_ms()
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.told_as,
            )
            for transactional_id, each in transactions
            if (not producer_ids or each.producer_id in producer_ids)
            and (not request.state_filters or each.state in states)
            # One that was never begun counts as one that runs forever, as in Kafka.
            and (longer_than_ms < 0 or now_ms - each.started_ms > longer_than_ms)
            and (pattern is None or pattern.fullmatch(transactional_id))
        ],
    )
