"""The share group protocol (KIP-932) as a part of the shard: heartbeats of members, the assignment that
follows from them, and the state of share partitions that has to be there before anyone is assigned one.

A heartbeat may find partitions without a state. Then that is written down with it, and the request for the
share coordinator is part of the result: whoever drives this asks, and comes back with what became of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from moldau.coordinator.decision import NOTHING, Decision, Waiter
from moldau.coordinator.record import CoordinatorRecord
from moldau.coordinator.timers import Timers
from moldau.groups.environment import GroupEnvironment
from moldau.groups.group import Client, GroupStore
from moldau.groups.metadata_hash import MetadataHashes
from moldau.groups.records import (
    ShareAssignedPartitions,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareTargetPartitions,
)
from moldau.groups.share.assignor import NAME as ASSIGNOR
from moldau.groups.share.assignor import Assignment, assign
from moldau.groups.share.group import NO_EPOCH, ShareGroup, topic_ids
from moldau.groups.share.records import (
    Member,
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    target_epoch_record,
    target_record,
)
from moldau.groups.share.share_states import Partitions, ShareStates, initialize_request, uninitialized
from moldau.metadata.delta import Delta
from moldau.metadata.image import TopicImage
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid
from moldau.wire.messages import alter_share_group_offsets as alter
from moldau.wire.messages import delete_share_group_offsets as delete_offsets
from moldau.wire.messages import share_group_heartbeat as wire
from moldau.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from moldau.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from moldau.wire.messages.share_group_describe import DescribedGroup
from moldau.wire.schema import Message

log = logging.getLogger(__name__)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1


class ShareSessionTimeout(NamedTuple):
    group_id: str
    member_id: str


class HeartbeatResult(NamedTuple):
    response: wire.ShareGroupHeartbeatResponse
    initialize: InitializeShareGroupStateRequest | None


class AlterResult(NamedTuple):
    response: alter.AlterShareGroupOffsetsResponse
    initialize: InitializeShareGroupStateRequest


class DeleteOffsetsResult(NamedTuple):
    """`failed` are the topics of which there is nothing to delete."""

    failed: list[delete_offsets.DeleteShareGroupOffsetsResponseTopic]
    delete: DeleteShareGroupStateRequest


def check_heartbeat(request: wire.ShareGroupHeartbeatRequest) -> None:
    """What can be said of a request without looking at its group."""
    problem = None
    if not request.member_id:
        problem = "MemberId can't be empty."
    elif not request.group_id:
        problem = "GroupId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        problem = "RackId can't be empty."
    elif request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        problem = "SubscribedTopicNames must be set in first request."
    elif request.member_epoch < LEAVE_EPOCH:
        problem = "MemberEpoch is invalid."
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


class ShareGroupProtocol:
    def __init__(self, groups: GroupStore, timers: Timers, environment: GroupEnvironment) -> None:
        self._groups = groups
        self._timers = timers
        self._environment = environment
        self._hashes = MetadataHashes()
        self.states = ShareStates(environment)

    # ------------------------------------------------------------ heartbeat

    def heartbeat(
        self, now_ms: int, client: Client, request: wire.ShareGroupHeartbeatRequest
    ) -> Decision[HeartbeatResult]:
        """Raises KafkaError."""
        if request.member_epoch == LEAVE_EPOCH:
            return self._leave(request)
        group = self._group_for(request.group_id, is_joining=request.member_epoch == JOIN_EPOCH)
        known = self._member_for(group, request)
        member = known._replace(
            rack_id=known.rack_id if request.rack_id is None else request.rack_id,
            client_id=client.id,
            client_host=client.host,
            topics=(
                known.topics
                if request.subscribed_topic_names is None
                else frozenset(request.subscribed_topic_names)
            ),
        )
        records = [] if member == known else [member_record(group.group_id, member)]
        is_bumped, epoch, topics = self._look_at_topics(group, known, member, records)
        target_epoch, target = self._assign(now_ms, group, epoch, member, records)
        member = self._reconcile(group, member, target_epoch, target, is_bumped, records)
        self._set_session_timer(now_ms, group.group_id, member.member_id)
        response = wire.ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._environment.group_config(group.group_id).share_heartbeat_interval_ms,
        )
        is_full = request.subscribed_topic_names is not None or request.member_epoch == JOIN_EPOCH
        if is_full or member.assigned != known.assigned:
            response.assignment = _wire_assignment(member.assigned)
        missing = self.states.missing(now_ms, group.group_id, topics)
        initialize = None
        if missing:
            records.append(self.states.decide_initialize(now_ms, group.group_id, missing))
            initialize = initialize_request(group.group_id, epoch, uninitialized(missing))
        return Decision(records=records, reply=HeartbeatResult(response, initialize))

    def _group_for(self, group_id: str, *, is_joining: bool) -> ShareGroup:
        """The group, or what becomes one by the records that are about to be written."""
        group = self._groups.get(group_id)
        if group is None:
            if not is_joining:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
            return ShareGroup(group_id)
        if not isinstance(group, ShareGroup):
            raise _no_share_group(group_id)
        return group

    def _member_for(self, group: ShareGroup, request: wire.ShareGroupHeartbeatRequest) -> Member:
        size_max = self._environment.config.share_groups.max_size
        if len(group.members) >= size_max and request.member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {size_max} members.",
            )
        if request.member_epoch == JOIN_EPOCH:
            return group.members.get(request.member_id) or Member(request.member_id)
        member = group.member(request.member_id)
        told = request.member_epoch
        if told > member.epoch:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a greater member epoch ({told}) than the one known by the group "
                f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
            )
        # The response with the new epoch may have been lost.
        if told < member.epoch and told != member.previous_epoch:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has a smaller member epoch ({told}) than the one known by the group "
                f"coordinator ({member.epoch}), and it does not match the previous member epoch "
                f"({member.previous_epoch}). The member must abandon all its partitions and rejoin.",
            )
        return member

    def _look_at_topics(
        self, group: ShareGroup, known: Member, member: Member, records: list[CoordinatorRecord]
    ) -> tuple[bool, int, set[str]]:
        """Whether the group has a new epoch, which it is in any case, and what the group subscribes to."""
        is_bumped = member.topics != known.topics
        if not is_bumped and group.assignment_epoch >= group.epoch:
            is_bumped = self._has_unassigned(group)
        if not (is_bumped or group.has_to_look_at_topics):
            return False, group.epoch, set(group.topics)
        topics = group.topics_with(member.member_id, member.topics)
        metadata_hash = self._hashes.of(topics, self._environment.image)
        is_bumped = is_bumped or metadata_hash != group.metadata_hash
        epoch = group.epoch + is_bumped
        if is_bumped:
            records.append(epoch_record(group.group_id, epoch, metadata_hash))
            log.info("[GroupId %s] Bumped group epoch to %d.", group.group_id, epoch)
        group.note_topics_seen(epoch)
        return is_bumped, epoch, topics

    def _has_unassigned(self, group: ShareGroup) -> bool:
        """Whether partitions have a state, and members that want them, but are nobody's."""
        if not group.members:
            return False
        assigned: dict[Uuid, set[int]] = {}
        for target in group.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return any(
            topic.name in group.topics and assigned.get(topic_id, set()) != topic.partitions
            for topic_id, topic in self.states.of(group.group_id).initialized.items()
        )

    def _assign(
        self, now_ms: int, group: ShareGroup, epoch: int, member: Member, records: list[CoordinatorRecord]
    ) -> tuple[int, Assignment]:
        """The epoch of the target assignment, and the member's part of it."""
        config = self._environment.group_config(group.group_id)
        interval_ms, assigned_ms = config.share_assignment_interval_ms, group.assignment_timestamp_ms
        is_too_early = assigned_ms and interval_ms and now_ms < assigned_ms + interval_ms
        if group.assignment_epoch >= epoch or is_too_early:
            return group.assignment_epoch, group.target_of(member.member_id)
        members = {**group.members, member.member_id: member}
        targets = assign(
            {each.member_id: topic_ids(each.topics, self._environment.image) for each in members.values()},
            group.targets,
            self._assignable(group.group_id),
        )
        records.extend(
            target_record(group.group_id, member_id, target)
            for member_id, target in targets.items()
            if target != group.targets.get(member_id)
        )
        records.append(target_epoch_record(group.group_id, epoch, now_ms))
        return epoch, targets[member.member_id]

    def _assignable(self, group_id: str) -> dict[Uuid, frozenset[int]]:
        """Partitions that have a state, and that there are."""
        topics = self._environment.image
        assignable = {}
        for topic_id, partitions in self.states.initialized(group_id).items():
            topic = topics.topic_by_id(topic_id)
            if topic is not None:
                assignable[topic_id] = partitions & topic.partitions.keys()
        return assignable

    def _reconcile(
        self,
        group: ShareGroup,
        member: Member,
        target_epoch: int,
        target: Assignment,
        is_bumped: bool,
        records: list[CoordinatorRecord],
    ) -> Member:
        if target_epoch == member.epoch and not is_bumped:
            return member
        wanted = topic_ids(member.topics, self._environment.image)
        reconciled = member._replace(
            assigned={topic_id: each for topic_id, each in target.items() if topic_id in wanted}
        )
        if target_epoch != member.epoch:
            reconciled = reconciled._replace(epoch=target_epoch, previous_epoch=member.epoch)
        if reconciled != member:
            records.append(current_record(group.group_id, reconciled))
        return reconciled

    def _leave(self, request: wire.ShareGroupHeartbeatRequest) -> Decision[HeartbeatResult]:
        group = self.find(request.group_id)
        group.member(request.member_id)
        response = wire.ShareGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        return Decision(records=self._remove(group, request.member_id), reply=HeartbeatResult(response, None))

    def _remove(self, group: ShareGroup, member_id: str) -> list[CoordinatorRecord]:
        self._timers.cancel(_session_key(group.group_id, member_id))
        topics = group.topics_with(member_id, frozenset())
        metadata_hash = self._hashes.of(topics, self._environment.image)
        return [
            *member_tombstones(group.group_id, member_id),
            epoch_record(group.group_id, group.epoch + 1, metadata_hash),
        ]

    # ------------------------------------------------------------ sessions

    def _set_session_timer(self, now_ms: int, group_id: str, member_id: str) -> None:
        timeout_ms = self._environment.group_config(group_id).share_session_timeout_ms
        self._timers.set(
            _session_key(group_id, member_id), now_ms + timeout_ms, ShareSessionTimeout(group_id, member_id)
        )

    def _on_session_timeout(self, now_ms: int, event: ShareSessionTimeout) -> Decision[Any]:
        group = self._groups.get(event.group_id)
        if not isinstance(group, ShareGroup) or event.member_id not in group.members:
            return NOTHING
        log.info(
            "[GroupId %s] Member %s fenced from the group because the member session expired.",
            event.group_id,
            event.member_id,
        )
        return Decision(records=self._remove(group, event.member_id))

    # ------------------------------------------------------------ description and deletion

    def find(self, group_id: str) -> ShareGroup:
        group = self._groups.find(group_id)
        if not isinstance(group, ShareGroup):
            raise _no_share_group(group_id)
        return group

    def describe(self, group_id: str) -> Decision[DescribedGroup]:
        """Raises KafkaError."""
        return Decision(reply=self.find(group_id).described(ASSIGNOR, self._environment.image))

    def delete_states(self, group_id: str) -> Decision[DeleteShareGroupStateRequest]:
        """The group is to be deleted, and before it what the share coordinator has of it, if anything: of
        groups of other kinds there is nothing. Raises KafkaError if it may not be deleted."""
        request = DeleteShareGroupStateRequest(group_id=group_id)
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return Decision(reply=request)
        group.check_delete()
        records, request.topics = self.states.decide_delete_all(group_id)
        return Decision(records=records, reply=request)

    # ------------------------------------------------------------ states

    def initialized(self, group_id: str) -> Decision[dict[Uuid, frozenset[int]]]:
        """The partitions whose state is there; none if there is no such group."""
        return Decision(reply=self.states.initialized(group_id))

    def on_initialized(self, group_id: str, partitions: Partitions) -> Decision[bool]:
        """The share coordinator has their state now."""
        if not partitions or not isinstance(self._groups.get(group_id), ShareGroup):
            return Decision(reply=False)
        return Decision(records=[self.states.decide_initialized(group_id, partitions)], reply=True)

    def on_not_initialized(self, group_id: str, partitions: Partitions) -> Decision[bool]:
        """It has not, and is to be asked again."""
        return Decision(records=self.states.decide_not_initialized(group_id, partitions), reply=False)

    def alter_offsets(
        self, now_ms: int, request: alter.AlterShareGroupOffsetsRequest
    ) -> Decision[AlterResult]:
        """Raises KafkaError. A group comes to be by that, if there is none."""
        group = self._group_for(request.group_id, is_joining=True)
        group.check_delete()
        response = alter.AlterShareGroupOffsetsResponse()
        offsets: dict[Uuid, dict[int, int]] = {}
        for asked in request.topics:
            topic = self._environment.image.topics.get(asked.topic_name)
            response.responses.append(_altered(asked, topic))
            if topic is not None:
                known = {
                    each.partition_index: each.start_offset
                    for each in asked.partitions
                    if each.partition_index in topic.partitions
                }
                if known:
                    offsets.setdefault(topic.topic_id, {}).update(known)
        records = []
        if offsets:
            states = {
                topic_id: self.states.topic(topic_id, of_topic) for topic_id, of_topic in offsets.items()
            }
            records.append(self.states.decide_initialize(now_ms, request.group_id, states))
        initialize = initialize_request(request.group_id, group.epoch, offsets)
        return Decision(records=records, reply=AlterResult(response, initialize))

    def delete_offsets(
        self, request: delete_offsets.DeleteShareGroupOffsetsRequest
    ) -> Decision[DeleteOffsetsResult]:
        """Raises KafkaError."""
        self.find(request.group_id).check_delete()
        result = DeleteOffsetsResult([], DeleteShareGroupStateRequest(group_id=request.group_id))
        if self.states.get(request.group_id) is None:
            return Decision(reply=result)
        for asked in request.topics:
            topic = self._environment.image.topics.get(asked.topic_name)
            if topic is None:
                problem = "This server does not host this topic-partition."
            elif data := self.states.deletable(request.group_id, topic):
                result.delete.topics.append(data)
                continue
            else:
                problem = "There is no offset information to delete."
            result.failed.append(
                delete_offsets.DeleteShareGroupOffsetsResponseTopic(
                    topic_name=asked.topic_name,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=problem,
                )
            )
        record = self.states.decide_delete(request.group_id, [data.topic_id for data in result.delete.topics])
        return Decision(records=[record], reply=result)

    def on_offsets_deleted(self, group_id: str, topics: Sequence[Uuid]) -> Decision[bool]:
        if self.states.get(group_id) is None:
            return Decision(reply=False)
        return Decision(records=[self.states.decide_deleted(group_id, topics)], reply=True)

    # ------------------------------------------------------------ the shard's

    @property
    def timer_handlers(self) -> Mapping[type, Callable[[int, Any], Decision[Any]]]:
        return {ShareSessionTimeout: self._on_session_timeout}

    def on_loaded(self, now_ms: int) -> Decision[Any]:
        self.states.on_loaded(now_ms)
        for group in self._groups.groups.values():
            if isinstance(group, ShareGroup):
                for member_id in group.members:
                    self._set_session_timer(now_ms, group.group_id, member_id)
        return NOTHING

    def on_image(self, now_ms: int, delta: Delta) -> Decision[Any]:
        changed = {topic.name for topic in delta.topics.values()}
        deleted = {topic.name for topic in delta.deleted_topics.values()}
        for name in deleted:
            self._hashes.forget(name)
        if changed or deleted:
            for group in self._groups.groups.values():
                if isinstance(group, ShareGroup) and not group.topics.keys().isdisjoint(changed | deleted):
                    group.note_topics_changed()
        return Decision(records=self.states.decide_topics_deleted(delta.deleted_topics), is_atomic=False)

    def on_unloaded(self) -> Sequence[Waiter[Any]]:
        return ()

    # ------------------------------------------------------------ records

    @property
    def appliers(self) -> Mapping[type[Message], Callable[[CoordinatorRecord, int], None]]:
        return {
            ShareGroupMemberMetadataKey: self._apply_member,
            ShareGroupMetadataKey: self._apply_epoch,
            ShareGroupTargetAssignmentMetadataKey: self._apply_target_epoch,
            ShareGroupTargetAssignmentMemberKey: self._apply_target,
            ShareGroupCurrentMemberAssignmentKey: self._apply_current,
            ShareGroupStatePartitionMetadataKey: self._apply_states,
        }

    def _known(self, group_id: str) -> ShareGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def _written(self, group_id: str) -> ShareGroup:
        group = self._known(group_id)
        if group is None:
            group = self._groups.groups[group_id] = ShareGroup(group_id)
        return group

    def _apply_member(self, record: CoordinatorRecord, producer_id: int) -> None:
        key: Any = record.key
        value: Any = record.value
        if value is not None:
            group = self._written(key.group_id)
            known = group.members.get(key.member_id) or Member(key.member_id)
            group.apply_member(
                known._replace(
                    rack_id=value.rack_id,
                    client_id=value.client_id,
                    client_host=value.client_host,
                    topics=frozenset(value.subscribed_topic_names),
                )
            )
        elif (known_group := self._known(key.group_id)) is not None:
            known_group.remove_member(key.member_id)

    def _apply_epoch(self, record: CoordinatorRecord, producer_id: int) -> None:
        key: Any = record.key
        value: Any = record.value
        if value is not None:
            group = self._written(key.group_id)
            group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
        elif self._known(key.group_id) is not None:
            del self._groups.groups[key.group_id]

    def _apply_target_epoch(self, record: CoordinatorRecord, producer_id: int) -> None:
        key: Any = record.key
        value: Any = record.value
        if value is not None:
            group = self._written(key.group_id)
            group.assignment_epoch = value.assignment_epoch
            group.assignment_timestamp_ms = value.assignment_timestamp
        elif (known_group := self._known(key.group_id)) is not None:
            known_group.assignment_epoch, known_group.assignment_timestamp_ms = NO_EPOCH, 0

    def _apply_target(self, record: CoordinatorRecord, producer_id: int) -> None:
        key: Any = record.key
        value: Any = record.value
        if value is not None:
            self._written(key.group_id).targets[key.member_id] = _assignment(value.topic_partitions)
        elif (known_group := self._known(key.group_id)) is not None:
            known_group.targets.pop(key.member_id, None)

    def _apply_current(self, record: CoordinatorRecord, producer_id: int) -> None:
        key: Any = record.key
        value: Any = record.value
        if value is not None:
            group = self._written(key.group_id)
            known = group.members.get(key.member_id) or Member(key.member_id)
            group.apply_member(
                known._replace(
                    epoch=value.member_epoch,
                    previous_epoch=value.previous_member_epoch,
                    assigned=_assignment(value.assigned_partitions),
                )
            )
        elif (known_group := self._known(key.group_id)) is not None and key.member_id in known_group.members:
            left = known_group.members[key.member_id]
            known_group.apply_member(
                left._replace(epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={})
            )

    def _apply_states(self, record: CoordinatorRecord, producer_id: int) -> None:
        key: Any = record.key
        value: Any = record.value
        if value is not None:
            self._written(key.group_id)
        self.states.apply(key.group_id, value)


def _session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return "share session", group_id, member_id


def _no_share_group(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")


def _assignment(topics: Sequence[ShareAssignedPartitions] | Sequence[ShareTargetPartitions]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}


def _wire_assignment(assignment: Assignment) -> wire.Assignment:
    return wire.Assignment(
        topic_partitions=[
            wire.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assignment.items()
        ]
    )


def _altered(
    asked: alter.AlterShareGroupOffsetsRequestTopic, topic: TopicImage | None
) -> alter.AlterShareGroupOffsetsResponseTopic:
    response = alter.AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
    if topic is not None:
        response.topic_id = topic.topic_id
    for partition in asked.partitions:
        answer = alter.AlterShareGroupOffsetsResponsePartition(partition_index=partition.partition_index)
        if topic is None or partition.partition_index not in topic.partitions:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer.error_message = "This server does not host this topic-partition."
        response.partitions.append(answer)
    return response
