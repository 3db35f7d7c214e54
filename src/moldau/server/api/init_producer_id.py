"""InitProducerId (key 22), versions 0-5: v2 flexible, v3 the id a producer already has, v4 PRODUCER_FENCED,
v5 TRANSACTION_ABORTABLE.

There is no transaction coordinator: who asks with a transactional id is told so.
"""

from __future__ import annotations

from moldau.server.context import RequestContext
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER_ID = NO_PRODUCER_EPOCH = -1


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        _check(context, request)
        # An id without transactions needs no fencing: who has one already just gets another.
        producer_id = await context.services.producer_ids.next()
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    except KafkaError as failure:
        return InitProducerIdResponse(error_code=failure.code, producer_epoch=NO_PRODUCER_EPOCH)


def _check(context: RequestContext, request: InitProducerIdRequest) -> None:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    timeout_max_ms = context.services.config.transactions.transaction_max_timeout_ms
    if not 0 < request.transaction_timeout_ms <= timeout_max_ms:
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
