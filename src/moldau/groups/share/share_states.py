"""The topics of share groups whose share state is there, is on its way, or is being deleted.

The state itself is with the share coordinator. Here is written down what is asked of it before it is asked,
and what became of that: partitions are assigned to members only when their state is there, and whatever a
failure in between leaves behind is asked for again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from moldau.coordinator.record import CoordinatorRecord
from moldau.groups.environment import GroupEnvironment
from moldau.groups.records import ShareGroupStatePartitionMetadataValue, TopicPartitionsInfo
from moldau.groups.share.records import TopicState, TopicStates, state_record
from moldau.metadata.image import TopicImage
from moldau.wire.ids import Uuid
from moldau.wire.messages import delete_share_group_state as delete
from moldau.wire.messages import initialize_share_group_state as initialize

UNINITIALIZED_START_OFFSET = -1

Partitions = Mapping[Uuid, frozenset[int]]

_NO_TOPICS: TopicStates = MappingProxyType({})


class States(NamedTuple):
    """Of one group."""

    initializing: TopicStates = _NO_TOPICS
    initialized: TopicStates = _NO_TOPICS
    deleting: frozenset[Uuid] = frozenset()


_NO_STATES = States()


class ShareStates:
    def __init__(self, environment: GroupEnvironment) -> None:
        self._environment = environment
        self._states: dict[str, States] = {}
        # Not in the log: since when a topic is on its way. What was so when the log was loaded is tried anew
        # as long after that as a failure would be.
        self._asked_ms: dict[str, dict[Uuid, int]] = {}
        self._loaded_ms = 0

    def get(self, group_id: str) -> States | None:
        return self._states.get(group_id)

    def of(self, group_id: str) -> States:
        return self._states.get(group_id, _NO_STATES)

    def initialized(self, group_id: str) -> dict[Uuid, frozenset[int]]:
        return _partitions(self.of(group_id).initialized)

    # ------------------------------------------------------------ initialization

    def missing(self, now_ms: int, group_id: str, topics: Iterable[str]) -> dict[Uuid, TopicState]:
        """Of topics that are subscribed to, what has no state, and has not been asked for lately."""
        retry_ms = self._environment.config.share_groups.initialize_retry_interval_ms
        states, asked_ms = self.of(group_id), self._asked_ms.get(group_id, {})
        missing: dict[Uuid, TopicState] = {}
        for name in sorted(topics):
            topic = self._environment.image.topics.get(name)
            if topic is None:
                continue
            known = _of(states.initialized, topic.topic_id)
            if now_ms - asked_ms.get(topic.topic_id, self._loaded_ms) < retry_ms:
                known |= _of(states.initializing, topic.topic_id)
            if len(known) < len(topic.partitions):
                missing[topic.topic_id] = TopicState(name, frozenset(topic.partitions) - known)
        return missing

    def decide_initialize(self, now_ms: int, group_id: str, topics: TopicStates) -> CoordinatorRecord:
        """The state of these is being asked for."""
        states = self.of(group_id)
        self._asked_ms.setdefault(group_id, {}).update(dict.fromkeys(topics, now_ms))
        initializing = _joined(states.initializing, topics)
        return self._record(group_id, initializing, states.initialized, states.deleting - initializing.keys())

    def decide_initialized(self, group_id: str, partitions: Partitions) -> CoordinatorRecord:
        """Their state is there."""
        states = self.of(group_id)
        return self._record(
            group_id,
            _without(states.initializing, partitions),
            _joined(
                states.initialized,
                {topic_id: self.topic(topic_id, indexes) for topic_id, indexes in partitions.items()},
            ),
            states.deleting,
        )

    def decide_not_initialized(self, group_id: str, partitions: Partitions) -> list[CoordinatorRecord]:
        """Asking for their state has failed."""
        states = self.of(group_id)
        if not states.initializing or not partitions:
            return []
        initializing = _without(states.initializing, partitions)
        return [self._record(group_id, initializing, states.initialized, states.deleting)]

    # ------------------------------------------------------------ deletion

    def decide_delete_all(
        self, group_id: str
    ) -> tuple[list[CoordinatorRecord], list[delete.DeleteStateData]]:
        """The group is to go: what is to be deleted before, with whatever an earlier attempt has left."""
        states = self.get(group_id)
        if states is None:
            return [], []
        going = _joined(states.initialized, states.initializing)
        for topic_id in sorted(states.deleting):
            topic = self._environment.image.topic_by_id(topic_id)
            if topic is not None:
                going = _joined(going, {topic_id: TopicState(topic.name, frozenset(topic.partitions))})
        record = state_record(group_id, {}, {}, {topic_id: topic.name for topic_id, topic in going.items()})
        return [record], [
            _delete_data(topic_id, topic.partitions) for topic_id, topic in sorted(going.items())
        ]

    def deletable(self, group_id: str, topic: TopicImage) -> delete.DeleteStateData | None:
        """What is to be deleted of a topic; None if there is nothing."""
        states = self.of(group_id)
        initialized = states.initialized.get(topic.topic_id)
        if initialized is not None:
            return _delete_data(topic.topic_id, initialized.partitions)
        if topic.topic_id in states.deleting:
            return _delete_data(topic.topic_id, topic.partitions)
        return None

    def decide_delete(self, group_id: str, topics: Sequence[Uuid]) -> CoordinatorRecord:
        states = self.of(group_id)
        initialized = {key: topic for key, topic in states.initialized.items() if key not in topics}
        return self._record(group_id, states.initializing, initialized, states.deleting | set(topics))

    def decide_deleted(self, group_id: str, topics: Iterable[Uuid]) -> CoordinatorRecord:
        states = self.of(group_id)
        return self._record(
            group_id, states.initializing, states.initialized, states.deleting - frozenset(topics)
        )

    def decide_topics_deleted(self, topics: Iterable[Uuid]) -> list[CoordinatorRecord]:
        """Topics are gone from the cluster, and the share coordinator drops their state by itself."""
        gone = frozenset(topics)
        records = []
        for group_id, states in self._states.items():
            if gone & (states.initializing.keys() | states.initialized.keys() | states.deleting):
                records.append(
                    self._record(
                        group_id,
                        {key: topic for key, topic in states.initializing.items() if key not in gone},
                        {key: topic for key, topic in states.initialized.items() if key not in gone},
                        states.deleting - gone,
                    )
                )
        return records

    # ------------------------------------------------------------ records

    def apply(self, group_id: str, value: ShareGroupStatePartitionMetadataValue | None) -> None:
        if value is None:
            self._states.pop(group_id, None)
            states = _NO_STATES
        else:
            states = self._states[group_id] = States(
                _topic_states(value.initializing_topics),
                _topic_states(value.initialized_topics),
                frozenset(topic.topic_id for topic in value.deleting_topics),
            )
        asked_ms = self._asked_ms.pop(group_id, {})
        if states.initializing and asked_ms:
            self._asked_ms[group_id] = {
                topic_id: at_ms for topic_id, at_ms in asked_ms.items() if topic_id in states.initializing
            }

    def on_loaded(self, now_ms: int) -> None:
        self._loaded_ms = now_ms

    def topic(self, topic_id: Uuid, partitions: Iterable[int]) -> TopicState:
        return TopicState(self._name(topic_id), frozenset(partitions))

    def _record(
        self, group_id: str, initializing: TopicStates, initialized: TopicStates, deleting: Iterable[Uuid]
    ) -> CoordinatorRecord:
        names = {topic_id: self._name(topic_id) for topic_id in deleting}
        return state_record(group_id, initializing, initialized, names)

    def _name(self, topic_id: Uuid) -> str:
        return self._environment.image.topic_names.get(topic_id, "<UNKNOWN>")


def initialize_request(
    group_id: str, epoch: int, start_offsets: Mapping[Uuid, Mapping[int, int]]
) -> initialize.InitializeShareGroupStateRequest:
    """What the share coordinator is asked for, with the group's epoch as the state's."""
    return initialize.InitializeShareGroupStateRequest(
        group_id=group_id,
        topics=[
            initialize.InitializeStateData(
                topic_id=topic_id,
                partitions=[
                    initialize.PartitionData(partition=index, state_epoch=epoch, start_offset=offset)
                    for index, offset in sorted(offsets.items())
                ],
            )
            for topic_id, offsets in start_offsets.items()
        ],
    )


def uninitialized(topics: TopicStates) -> dict[Uuid, dict[int, int]]:
    """Where to start is found when the first member fetches."""
    return {
        topic_id: dict.fromkeys(topic.partitions, UNINITIALIZED_START_OFFSET)
        for topic_id, topic in topics.items()
    }


def _delete_data(topic_id: Uuid, partitions: Iterable[int]) -> delete.DeleteStateData:
    return delete.DeleteStateData(
        topic_id=topic_id, partitions=[delete.PartitionData(partition=each) for each in sorted(partitions)]
    )


def _of(topics: TopicStates, topic_id: Uuid) -> frozenset[int]:
    topic = topics.get(topic_id)
    return frozenset() if topic is None else topic.partitions


def _joined(topics: TopicStates, others: TopicStates) -> dict[Uuid, TopicState]:
    joined = dict(topics)
    for topic_id, other in others.items():
        joined[topic_id] = TopicState(other.name, _of(topics, topic_id) | other.partitions)
    return joined


def _without(topics: TopicStates, partitions: Partitions) -> dict[Uuid, TopicState]:
    left = {
        topic_id: topic._replace(partitions=topic.partitions - partitions.get(topic_id, frozenset()))
        for topic_id, topic in topics.items()
    }
    return {topic_id: topic for topic_id, topic in left.items() if topic.partitions}


def _partitions(topics: TopicStates) -> dict[Uuid, frozenset[int]]:
    return {topic_id: topic.partitions for topic_id, topic in topics.items()}


def _topic_states(infos: Iterable[TopicPartitionsInfo]) -> dict[Uuid, TopicState]:
    return {info.topic_id: TopicState(info.topic_name, frozenset(info.partitions)) for info in infos}
