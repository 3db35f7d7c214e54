"""InitProducerId (key 22), versions 0-6: v2 flexible, v3 the id a producer already has, v4 PRODUCER_FENCED,
v5 TRANSACTION_ABORTABLE, v6 two-phase commit (KIP-939, where it is enabled)."""

from __future__ import annotations

from collections.abc import Awaitable

from moldau.coordinator.decision import Waiter
from moldau.server.context import RequestContext
from moldau.server.transaction_apis import told_code
from moldau.server.waiting import answered
from moldau.txn.transaction import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FENCED_FROM = 4


def handle(
    context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Waiter[InitProducerIdResponse] | Awaitable[InitProducerIdResponse]:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(context, KafkaError(ErrorCode.INVALID_REQUEST))
    if request.transactional_id is None:
        return _without_transactions(context)
    return answered(
        lambda: context.services.transactions.init_producer_id(request),
        lambda response: response,
        lambda failure: _refused(context, failure),
    )


async def _without_transactions(context: RequestContext) -> InitProducerIdResponse:
    """An id without transactions needs no fencing: who has one already just gets another."""
    try:
        producer_id = await context.services.producer_ids.next()
    except KafkaError as failure:
        return _refused(context, failure)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(context: RequestContext, failure: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=told_code(failure, context.version, fenced_from=_FENCED_FROM),
        producer_epoch=NO_PRODUCER_EPOCH,
    )
