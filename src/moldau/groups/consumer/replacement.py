"""Who may be a member under which id, and what an instance that comes back has."""

from __future__ import annotations

from moldau.coordinator.record import CoordinatorRecord
from moldau.groups.consumer import records
from moldau.groups.consumer.group import ConsumerGroup
from moldau.groups.consumer.member import Member
from moldau.wire.errors import ErrorCode, KafkaError


def check_size(group: ConsumerGroup, member_id: str, size_max: int) -> None:
    if len(group.members) >= size_max and (not member_id or member_id not in group.members):
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {size_max} members.",
        )


def check_instance(known: Member | None, member_id: str, instance_id: str) -> Member:
    """The member that the instance is, if it is the one of that id."""
    if known is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if known.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{known.member_id}.",
        )
    return known


def replaced(group: ConsumerGroup, known: Member, member_id: str, written: list[CoordinatorRecord]) -> Member:
    """An instance that comes back: under its new id it has what it had. Its timers are left to run out on a
    member that is no more."""
    member = known.replaced_by(member_id)
    written += records.member_tombstones(group.group_id, known.member_id)
    written.append(records.member_record(group.group_id, member))
    target = group.target_of(known.member_id, None)
    written.append(records.target_record(group.group_id, member_id, target))
    written.append(records.current_record(group.group_id, member))
    return member
