"""WriteTxnMarkers (key 27), versions 1-2: v2 the version of the transaction.

What a transaction coordinator sends to the leaders of the partitions of a transaction that ends. A producer
that is named twice is answered for once, as in Kafka, and one without partitions not at all.
"""

from __future__ import annotations

from moldau.server.context import RequestContext
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    results: dict[int, dict[str, dict[int, int]]] = {}
    for marker in request.markers:
        _write(context, marker, results)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index, code in codes.items()
                        ],
                    )
                    for topic, codes in topics.items()
                ],
            )
            for producer_id, topics in results.items()
        ]
    )


def _write(
    context: RequestContext, marker: WritableTxnMarker, results: dict[int, dict[str, dict[int, int]]]
) -> None:
    for topic in marker.topics:
        for index in topic.partition_indexes:
            codes = results.setdefault(marker.producer_id, {}).setdefault(topic.name, {})
            codes[index] = context.services.txn_markers.write_marker(
                topic.name,
                index,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                is_committed=marker.transaction_result,
                transaction_version=marker.transaction_version,
            )
