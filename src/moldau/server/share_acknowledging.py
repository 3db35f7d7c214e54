"""What ShareFetch and ShareAcknowledge have in common: who may ask, and what is acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from moldau.coordinator.decision import Waiter
from moldau.metadata.features import SHARE_VERSION
from moldau.metadata.image import Endpoint
from moldau.server.cluster_view import ClusterView
from moldau.server.context import RequestContext
from moldau.share.partition import RENEW, Acknowledgement
from moldau.share.sessions import SessionKey, TopicPartition
from moldau.share.states import ShareKey
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid

_MEMBER_ID_MAX = 36  # as long as an id is that is written out
_RENEWAL_FROM = 2
_TELLS_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Outcome = Waiter[bool]
"""Of what was acknowledged in one partition."""

Acknowledged = dict[TopicPartition, Outcome]


class Leader(NamedTuple):
    id: int
    epoch: int
    endpoint: Endpoint | None


class Batch(Protocol):
    """AcknowledgementBatch of either request."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


def check_enabled(context: RequestContext) -> None:
    if context.services.image().features.get(SHARE_VERSION, 0) < 1:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def check_member_id(member_id: str | None) -> str:
    if not member_id or len(member_id) > _MEMBER_ID_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return member_id


def check_member(context: RequestContext, group_id: str | None, member_id: str | None) -> SessionKey:
    check_enabled(context)
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return SessionKey(group_id, check_member_id(member_id))


def new_session_key(context: RequestContext, key: SessionKey) -> None:
    """The session ends with the connection."""
    shares, connection = context.services.share_partitions, context.connection
    shares.note_session(connection, key)
    connection.at_close = partial(shares.on_connection_closed, connection)


def acknowledge(
    context: RequestContext,
    key: SessionKey,
    asked: Iterable[tuple[Uuid, int, Sequence[Batch]]],
    *,
    is_renewal: bool,
) -> Acknowledged:
    image, shares = context.services.image(), context.services.share_partitions
    outcomes: Acknowledged = {}
    for topic_id, index, batches in asked:
        try:
            topic = image.topic_by_id(topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            _check(batches, can_renew=context.version >= _RENEWAL_FROM, is_renewal=is_renewal)
            if index not in topic.partitions:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if batches:
                outcomes[topic_id, index] = shares.acknowledge(
                    ShareKey(key.group_id, topic_id, index),
                    key.member_id,
                    [
                        Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                        for batch in batches
                    ],
                )
        except KafkaError as failure:
            refused: Outcome = Waiter()
            refused.fail(failure)
            outcomes[topic_id, index] = refused
    return outcomes


def _check(batches: Sequence[Batch], *, can_renew: bool, is_renewal: bool) -> None:
    """In order, with one type for all or one for each."""
    previous_last = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        is_sound = (
            first <= last
            and first >= previous_last
            and bool(types)
            and len(types) in (1, last - first + 1)
            and all(0 <= kind <= RENEW - (not can_renew) for kind in types)
            and (is_renewal or RENEW not in types)
        )
        if not is_sound:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        previous_last = last


def leader_of(context: RequestContext, topic_partition: TopicPartition, failure: KafkaError) -> Leader | None:
    """For whoever looked for it here."""
    topic_id, index = topic_partition
    view = ClusterView.of(context)
    topic = view.image.topic_by_id(topic_id)
    if failure.code not in _TELLS_LEADER or topic is None or index not in topic.partitions:
        return None
    known = topic.partitions[index]
    endpoint = view.endpoint(known.leader) if view.is_alive(known.leader) else None
    return Leader(known.leader, known.leader_epoch, endpoint)


def when_all(waiters: Iterable[Waiter[Any]], then: Callable[[], None]) -> None:
    """`then` is called once, when all of them are done; at once if they are."""
    left = list(waiters)
    count = len(left)

    def one_done() -> None:
        nonlocal count
        count -= 1
        if not count:
            then()

    if not count:
        then()
    for waiter in left:
        waiter.when_done(one_done)
