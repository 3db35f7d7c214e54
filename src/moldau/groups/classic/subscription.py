"""The topics that a member of a classic group of consumers says it reads."""

from __future__ import annotations

from collections.abc import Iterable

from moldau.wire.codec import ProtocolError, decode
from moldau.wire.messages.consumer_protocol import ConsumerProtocolSubscription

PROTOCOL_TYPE = "consumer"
# Behind the version, which is not looked at: every version begins with the fields of the first.
_VERSION_BYTES = 2


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Those of all members; None if one of them cannot be read."""
    topics: set[str] = set()
    for subscription in set(subscriptions):
        if len(subscription) < _VERSION_BYTES:
            return None
        try:
            topics.update(decode(ConsumerProtocolSubscription, 0, subscription, _VERSION_BYTES)[0].topics)
        except ProtocolError:
            return None
    return frozenset(topics)
