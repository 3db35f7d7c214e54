"""EndTxn (key 26), versions 0-5: v2 PRODUCER_FENCED, v3 flexible, v4 TRANSACTION_ABORTABLE, v5 an epoch for
each transaction (KIP-890)."""

from __future__ import annotations

from moldau.coordinator.decision import Waiter
from moldau.server.context import RequestContext
from moldau.server.transaction_apis import client_transaction_version, told_code
from moldau.server.waiting import answered
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

_FENCED_FROM, _BUMPS_FROM = 2, 5


def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse | Waiter[EndTxnResponse]:
    client_version = client_transaction_version(context.version, bumps_from=_BUMPS_FROM)
    return answered(
        lambda: context.services.transactions.end(request, client_version),
        lambda response: response,
        lambda failure: EndTxnResponse(
            error_code=told_code(failure, context.version, fenced_from=_FENCED_FROM)
        ),
    )
