"""AddOffsetsToTxn (key 25), versions 0-4: v2 PRODUCER_FENCED, v3 flexible, v4 TRANSACTION_ABORTABLE.

What is added is the partition that the group's offsets are kept in.
"""

from __future__ import annotations

from collections.abc import Mapping

from moldau.coordinator.decision import Waiter
from moldau.coordinator.placement import partition_of
from moldau.server.context import RequestContext
from moldau.server.group_coordinator import TOPIC
from moldau.server.transaction_apis import told_code
from moldau.server.waiting import answered
from moldau.txn.transaction import TopicPartition
from moldau.wire.errors import ErrorCode
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_FENCED_FROM = 2


def handle(
    context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Waiter[AddOffsetsToTxnResponse]:
    added = _offsets_partition(context, request.group_id)

    def response(errors: Mapping[TopicPartition, ErrorCode]) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=errors[added])

    return answered(
        lambda: context.services.transactions.add_partitions(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [added],
            verify_only=False,
            # Only clients that have one epoch for many transactions ask for this.
            transaction_version=0,
        ),
        response,
        lambda failure: AddOffsetsToTxnResponse(
            error_code=told_code(failure, context.version, fenced_from=_FENCED_FROM)
        ),
    )


def _offsets_partition(context: RequestContext, group_id: str) -> TopicPartition:
    """Where the offsets are to be, if there is no topic for them yet: who looks for the group's coordinator
    next brings it into being."""
    topic = context.services.image().topics.get(TOPIC)
    options = context.services.config.offsets
    return TOPIC, partition_of(
        group_id, options.topic_num_partitions if topic is None else len(topic.partitions)
    )
