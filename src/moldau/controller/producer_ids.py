"""Blocks of producer ids, each given to one broker and never again."""

from __future__ import annotations

from moldau.controller.brokers import check_broker_epoch
from moldau.controller.decision import Decision, versioned
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import ProducerIdsRecord
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

BLOCK_IDS = 1000
_INT64_MAX = (1 << 63) - 1


def decide_allocate_producer_ids(
    image: ClusterImage, request: AllocateProducerIdsRequest
) -> Decision[AllocateProducerIdsResponse]:
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    start = image.producer_ids.next_producer_id
    if start > _INT64_MAX - BLOCK_IDS:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producer ids")
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=start + BLOCK_IDS,
    )
    reply = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_IDS)
    return Decision(records=versioned(image, [record]), reply=reply)
