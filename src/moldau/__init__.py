"""Moldau: an event-streaming platform in Python that speaks Apache Kafka at every boundary.

The names of the client library are here, and are imported when first used: a node that starts pays nothing
for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.client.consumed import ConsumerBatch, ConsumerRecord
    from moldau.client.consumer import AsyncConsumer, DeserializationError
    from moldau.client.errors import (
        AbortableError,
        BlockedTooLongError,
        ClosedError,
        CommitFailedError,
        DeliveryTimeoutError,
        FatalError,
        FencedError,
        InvalidConfigurationError,
        RecordError,
        RetriableError,
    )
    from moldau.client.once import AsyncOnce, Once, OnceBatch
    from moldau.client.producer import AsyncProducer
    from moldau.client.producing.operations import GroupMetadata, OffsetAndMetadata, PreparedTransaction
    from moldau.client.share_consumer import AsyncShareConsumer, ShareRecord
    from moldau.client.sharing.fetching import AcknowledgeType
    from moldau.client.sync_consumer import Consumer
    from moldau.client.sync_producer import Producer
    from moldau.client.sync_share_consumer import ShareConsumer
    from moldau.client.topology import TopicPartition
    from moldau.config.option import ConfigError
    from moldau.wire.errors import ErrorCode, KafkaError

__all__ = [
    "AbortableError",
    "AcknowledgeType",
    "AsyncConsumer",
    "AsyncOnce",
    "AsyncProducer",
    "AsyncShareConsumer",
    "BlockedTooLongError",
    "ClosedError",
    "CommitFailedError",
    "ConfigError",
    "Consumer",
    "ConsumerBatch",
    "ConsumerRecord",
    "DeliveryTimeoutError",
    "DeserializationError",
    "ErrorCode",
    "FatalError",
    "FencedError",
    "GroupMetadata",
    "InvalidConfigurationError",
    "KafkaError",
    "OffsetAndMetadata",
    "Once",
    "OnceBatch",
    "PreparedTransaction",
    "Producer",
    "RecordError",
    "RetriableError",
    "ShareConsumer",
    "ShareRecord",
    "TopicPartition",
    "__version__",
]

__version__ = "0.1.0"

_WHERE = {
    "AsyncOnce": "moldau.client.once",
    "Once": "moldau.client.once",
    "OnceBatch": "moldau.client.once",
    "AsyncConsumer": "moldau.client.consumer",
    "Consumer": "moldau.client.sync_consumer",
    "ConsumerBatch": "moldau.client.consumed",
    "ConsumerRecord": "moldau.client.consumed",
    "DeserializationError": "moldau.client.consumer",
    "AsyncShareConsumer": "moldau.client.share_consumer",
    "ShareConsumer": "moldau.client.sync_share_consumer",
    "ShareRecord": "moldau.client.share_consumer",
    "AcknowledgeType": "moldau.client.sharing.fetching",
    "AsyncProducer": "moldau.client.producer",
    "Producer": "moldau.client.sync_producer",
    "TopicPartition": "moldau.client.topology",
    "OffsetAndMetadata": "moldau.client.producing.operations",
    "GroupMetadata": "moldau.client.producing.operations",
    "PreparedTransaction": "moldau.client.producing.operations",
    "ConfigError": "moldau.config.option",
    "ErrorCode": "moldau.wire.errors",
    "KafkaError": "moldau.wire.errors",
    **dict.fromkeys(
        (
            "AbortableError",
            "BlockedTooLongError",
            "ClosedError",
            "CommitFailedError",
            "DeliveryTimeoutError",
            "FatalError",
            "FencedError",
            "InvalidConfigurationError",
            "RecordError",
            "RetriableError",
        ),
        "moldau.client.errors",
    ),
}


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'moldau' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(where), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
