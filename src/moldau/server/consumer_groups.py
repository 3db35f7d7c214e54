"""Whether this cluster serves the consumer protocol."""

from __future__ import annotations

from moldau.metadata.features import GROUP_VERSION
from moldau.server.services import Services
from moldau.wire.errors import ErrorCode, KafkaError


def check_enabled(services: Services) -> None:
    """Raises KafkaError."""
    protocols = services.config.groups.coordinator_rebalance_protocols
    if "consumer" not in protocols or services.image().features.get(GROUP_VERSION, 0) < 1:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
