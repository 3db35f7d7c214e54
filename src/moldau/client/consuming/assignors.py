"""Who of a classic group reads what: the assignors that a leader runs, and what members tell each other.

All of them go by the same order of members (static ones first, by their instances, whose ids outlive those of
members) and by the arguments alone, so two leaders come to the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from moldau.client.topology import TopicPartition
from moldau.wire.codec import ProtocolError, decode, encode
from moldau.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)

_VERSION = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_VERSION_MAX = 3


class MemberSubscription(NamedTuple):
    """What a member says of itself."""

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None


Members: TypeAlias = Mapping[str, MemberSubscription]
Shares: TypeAlias = Mapping[str, Sequence[TopicPartition]]
AssignFunction: TypeAlias = Callable[[Members, Mapping[str, int]], Shares]
"""Members by their ids and numbers of partitions by topic, to what each member gets."""


@runtime_checkable
class ClassicAssignor(Protocol):
    name: str
    is_cooperative: bool
    """Whether members may keep what they have while they join again."""

    def user_data(self, owned: Iterable[TopicPartition], generation_id: int) -> bytes | None:
        """What the member's own part tells the leader's."""
        ...

    def assign(self, members: Members, partitions: Mapping[str, int]) -> Shares: ...


class FunctionAssignor:
    """A function as an assignor."""

    def __init__(self, name: str, assign: AssignFunction, *, is_cooperative: bool = False) -> None:
        self.name = name
        self.is_cooperative = is_cooperative
        self._assign = assign

    def user_data(self, owned: Iterable[TopicPartition], generation_id: int) -> bytes | None:
        return None

    def assign(self, members: Members, partitions: Mapping[str, int]) -> Shares:
        return self._assign(members, partitions)


def assign_ranges(members: Members, partitions: Mapping[str, int]) -> Shares:
    """The partitions of each topic in a row, cut into a piece for each subscriber."""
    shares: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    ordered = _in_order(members)
    for topic in sorted(partitions):
        subscribers = [member_id for member_id in ordered if topic in members[member_id].topics]
        if not subscribers:
            continue
        least, extra = divmod(partitions[topic], len(subscribers))
        start = 0
        for number, member_id in enumerate(subscribers):
            end = start + least + (number < extra)
            shares[member_id] += [TopicPartition(topic, index) for index in range(start, end)]
            start = end
    return shares


def assign_round_robin(members: Members, partitions: Mapping[str, int]) -> Shares:
    """All partitions in a row, one for each member in turn."""
    shares: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    ordered = _in_order(members)
    turn = 0
    for topic in sorted(partitions):
        if not any(topic in member.topics for member in members.values()):
            continue
        for index in range(partitions[topic]):
            while topic not in members[ordered[turn % len(ordered)]].topics:
                turn += 1
            shares[ordered[turn % len(ordered)]].append(TopicPartition(topic, index))
            turn += 1
    return shares


def assign_sticky(members: Members, partitions: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """As even as can be, and no more moves than that takes."""
    ordered = _in_order(members)
    claims = _claims(members, partitions)
    shares: dict[str, list[TopicPartition]] = {member_id: [] for member_id in ordered}
    for place, member_id in claims.items():
        shares[member_id].append(place)
    subscribers: dict[str, list[str]] = {}
    for topic in partitions:
        those = [member_id for member_id in ordered if topic in members[member_id].topics]
        if those:
            subscribers[topic] = those
    rank = {member_id: number for number, member_id in enumerate(ordered)}

    if len({member.topics.intersection(partitions) for member in members.values()}) == 1:
        _give_back_beyond_quota(shares, sum(partitions[topic] for topic in subscribers))
        claims = {place: member_id for member_id, places in shares.items() for place in places}

    def least_of(topic: str) -> str:
        return min(subscribers[topic], key=lambda member_id: (len(shares[member_id]), rank[member_id]))

    # Who can be given to few is given first.
    for topic in sorted(subscribers, key=lambda topic: (len(subscribers[topic]), topic)):
        for index in range(partitions[topic]):
            place = TopicPartition(topic, index)
            if place not in claims:
                shares[least_of(topic)].append(place)
    while _move_one(shares, least_of):
        pass  # each move makes two sizes more alike, so this comes to an end
    return {member_id: sorted(places) for member_id, places in shares.items()}


def _give_back_beyond_quota(shares: dict[str, list[TopicPartition]], total: int) -> None:
    least, extra = divmod(total, len(shares))
    # Who has more already is the first to be allowed one more than the least.
    by_size = sorted(shares, key=lambda member_id: -len(shares[member_id]))
    for number, member_id in enumerate(by_size):
        shares[member_id] = sorted(shares[member_id])[: least + (number < extra)]


def _move_one(shares: dict[str, list[TopicPartition]], least_of: Callable[[str], str]) -> bool:
    """From who has most, as far as there is somebody to take it."""
    for giver in sorted(shares, key=lambda member_id: -len(shares[member_id])):
        takers: dict[str, str] = {}
        for place in reversed(shares[giver]):
            taker = takers.get(place.topic) or takers.setdefault(place.topic, least_of(place.topic))
            if len(shares[giver]) - len(shares[taker]) >= 2:
                shares[giver].remove(place)
                shares[taker].append(place)
                return True
    return False


def assign_cooperatively(members: Members, partitions: Mapping[str, int]) -> Shares:
    """As sticky, but nobody gets what another still has: that comes with the next generation, when it has
    been given back."""
    owners: dict[TopicPartition, set[str]] = {}
    for member_id, member in members.items():
        for place in member.owned:
            owners.setdefault(place, set()).add(member_id)
    return {
        member_id: [place for place in places if not owners.get(place, set()) - {member_id}]
        for member_id, places in assign_sticky(members, partitions).items()
    }


class _Sticky(FunctionAssignor):
    """Kafka's sticky assignor: what a member had is in its user data, since it gave everything back."""

    def __init__(self) -> None:
        super().__init__("sticky", self._assign_told)
        self._had: tuple[TopicPartition, ...] = ()
        self._generation_id = -1

    def remember(self, owned: Iterable[TopicPartition], generation_id: int) -> None:
        self._had, self._generation_id = tuple(owned), generation_id

    def user_data(self, owned: Iterable[TopicPartition], generation_id: int) -> bytes | None:
        # The layout of an assignment is that of this list, too, behind its version.
        out = bytearray()
        _write_places(out, self._had)
        return bytes(out + _INT32.pack(self._generation_id))

    @staticmethod
    def _assign_told(members: Members, partitions: Mapping[str, int]) -> Shares:
        told = {}
        for member_id, member in members.items():
            owned, generation_id = _read_sticky_data(member.user_data)
            told[member_id] = member._replace(
                owned=owned or member.owned, generation_id=max(generation_id, member.generation_id)
            )
        return assign_sticky(told, partitions)


class _CooperativeSticky(FunctionAssignor):
    def __init__(self) -> None:
        super().__init__("cooperative-sticky", assign_cooperatively, is_cooperative=True)

    def user_data(self, owned: Iterable[TopicPartition], generation_id: int) -> bytes | None:
        return _INT32.pack(generation_id)  # for leaders that do not know of it in the subscription


def assignor_of(name: str) -> ClassicAssignor | None:
    match name:
        case "range":
            return FunctionAssignor("range", assign_ranges)
        case "roundrobin":
            return FunctionAssignor("roundrobin", assign_round_robin)
        case "sticky":
            return _Sticky()
        case "cooperative-sticky":
            return _CooperativeSticky()
    return None


def remember(assignor: ClassicAssignor, owned: Iterable[TopicPartition], generation_id: int) -> None:
    """What the member was given, for an assignor that has to tell it later."""
    if isinstance(assignor, _Sticky):
        assignor.remember(owned, generation_id)


# What is sent -----------------------------------------------------------------------------------------------


def write_subscription(member: MemberSubscription) -> bytes:
    out = bytearray(_VERSION.pack(_VERSION_MAX))
    message = ConsumerProtocolSubscription(
        topics=sorted(member.topics),
        user_data=member.user_data,
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in _by_topic(member.owned).items()
        ],
        generation_id=member.generation_id,
        rack_id=member.rack,
    )
    encode(message, _VERSION_MAX, out)
    return bytes(out)


def read_subscription(data: bytes, instance_id: str | None = None) -> MemberSubscription:
    """Raises ProtocolError."""
    version, body = _version(data)
    message, _ = decode(ConsumerProtocolSubscription, version, body)
    return MemberSubscription(
        frozenset(message.topics),
        _places(message.owned_partitions),
        message.generation_id,
        instance_id,
        message.rack_id,
        message.user_data,
    )


def write_assignment(places: Iterable[TopicPartition]) -> bytes:
    out = bytearray(_VERSION.pack(_VERSION_MAX))
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in _by_topic(places).items()
        ],
    )
    encode(message, _VERSION_MAX, out)
    return bytes(out)


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Raises ProtocolError. No bytes at all are what a leader gives a member it leaves out."""
    if not data:
        return ()
    version, body = _version(data)
    message, _ = decode(ConsumerProtocolAssignment, version, body)
    return _places(message.assigned_partitions)


def _version(data: bytes) -> tuple[int, memoryview]:
    if len(data) < 2:
        raise ProtocolError("what a member says is shorter than its version")
    (version,) = _VERSION.unpack_from(data)
    # Newer versions only add to the end, and negative ones there are none.
    return min(max(version, 0), _VERSION_MAX), memoryview(data)[2:]


def _by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(places):
        topics.setdefault(topic, []).append(index)
    return topics


def _places(
    topics: Iterable[ConsumerProtocolSubscriptionTopicPartition | ConsumerProtocolAssignmentTopicPartition],
) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(each.topic, index) for each in topics for index in each.partitions)


def _write_places(out: bytearray, places: Iterable[TopicPartition]) -> None:
    topics = _by_topic(places)
    out += _INT32.pack(len(topics))
    for topic, indexes in topics.items():
        name = topic.encode()
        out += _VERSION.pack(len(name)) + name + _INT32.pack(len(indexes))
        for index in indexes:
            out += _INT32.pack(index)


def _read_sticky_data(data: bytes | None) -> tuple[tuple[TopicPartition, ...], int]:
    """What a member had, as Kafka's sticky assignor writes it; what cannot be read is nothing."""
    if not data:
        return (), -1
    found: list[TopicPartition] = []
    try:
        (topics,) = _INT32.unpack_from(data)
        position = 4
        for _ in range(topics):
            (size,) = _VERSION.unpack_from(data, position)
            name = data[position + 2 : position + 2 + size].decode()
            position += 2 + size
            (count,) = _INT32.unpack_from(data, position)
            position += 4
            for _ in range(count):
                found.append(TopicPartition(name, _INT32.unpack_from(data, position)[0]))
                position += 4
        generation_id = _INT32.unpack_from(data, position)[0] if len(data) >= position + 4 else -1
    except (struct.error, UnicodeDecodeError):
        return (), -1
    return tuple(found), generation_id


def _in_order(members: Members) -> list[str]:
    def rank(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    return sorted(members, key=rank)


def _claims(members: Members, partitions: Mapping[str, int]) -> dict[TopicPartition, str]:
    """Who has what, by the newest generation that says so; what two of one generation claim nobody has."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id in _in_order(members):
        member = members[member_id]
        for place in member.owned:
            if place.topic not in member.topics or not 0 <= place.partition < partitions.get(place.topic, 0):
                continue
            generation_id, owner = best.get(place, (-2, None))
            if member.generation_id > generation_id:
                best[place] = (member.generation_id, member_id)
            elif member.generation_id == generation_id and owner != member_id:
                best[place] = (generation_id, None)
    return {place: owner for place, (_, owner) in best.items() if owner is not None}
