"""Makes the replicas of this broker what the cluster image says they are.

The image is the truth about topics, leadership and configuration; the disks are the truth about records.
What is on disk but not in the image is set aside as stray, never deleted. A log directory that fails takes
its replicas offline and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from moldau.config.broker import BrokerConfig
from moldau.config.option import ConfigError
from moldau.config.topic import TopicConfig
from moldau.log.directory import LogDirectory
from moldau.log.errors import LogDirError
from moldau.log.log import Log
from moldau.log.log_directories import LogDirectories
from moldau.metadata.delta import Delta
from moldau.metadata.image import ClusterImage, PartitionImage, ResourceType, TopicImage
from moldau.replica.partition import Partition
from moldau.replica.replicas import Replicas
from moldau.runtime.interfaces import Clock
from moldau.wire.errors import KafkaError

log = logging.getLogger(__name__)


class LocalReplicas:
    def __init__(
        self,
        node_id: int,
        clock: Clock,
        replicas: Replicas,
        log_directories: LogDirectories,
        on_log_dir_failure: Callable[[LogDirError], None],
        on_placed: Callable[[dict[Partition, bytes]], None],
        on_role: Callable[[Partition], None],
    ) -> None:
        """`on_placed` is told the directory of each replica for which the image has another one or none:
        when a directory fails, the image has to say who is concerned. `on_role` is told of replicas of
        internal topics, whenever their role or their log may be another one: coordinators live by that."""
        self._node_id = node_id
        self._clock = clock
        self._replicas = replicas
        self._log_directories = log_directories
        self._on_log_dir_failure = on_log_dir_failure
        self._on_placed = on_placed
        self._on_role = on_role
        self._placed: dict[Partition, bytes] = {}  # in directories that the image does not know of yet
        self._unopened: dict[Partition, None] = {}  # there was no room, or no descriptor, for their logs

    def load(self, image: ClusterImage, config: BrokerConfig) -> None:
        """Opens what is on disk and takes on what the image assigns to this broker."""
        configs = {
            resource.name: self._topic_config(image, resource.name, config)
            for resource in image.configs
            if resource.type == ResourceType.TOPIC
        }
        now_ms = self._clock.now_ms()

        def home_of(topic: str, index: int) -> bytes | None:
            assigned = image.partition(topic, index)
            return None if assigned is None else assigned.directory_of(self._node_id)

        for failure in self._log_directories.load(configs, config.topic_defaults, now_ms, home_of):
            self._on_log_dir_failure(failure)
        # What is not found may well be in a directory that is offline.
        may_create = not self._log_directories.offline
        for topic, index, partition in image.partitions():
            if self._node_id in partition.replicas:
                self._take_on(image, config, topic, index, partition, may_create=may_create)
        for directory in list(self._log_directories.online):
            try:
                self._set_strays_aside(directory)
            except LogDirError as failure:
                self._on_log_dir_failure(failure)
        self._tell_placed()

    def _set_strays_aside(self, directory: LogDirectory) -> None:
        for topic_name, index in list(directory.logs):
            if self._replicas.get(topic_name, index) is None:
                log.warning("setting %s-%d in %s aside: no topic has it", topic_name, index, directory.path)
                directory.mark_stray(topic_name, index)

    def apply(self, image: ClusterImage, delta: Delta, config: BrokerConfig) -> None:
        for deleted in delta.deleted_topics.values():
            self._delete(deleted)
        for changed in delta.topics.values():
            topic = image.topics[changed.name]
            for index in changed.partitions:
                partition = topic.partitions[index]
                if self._node_id in partition.replicas:
                    self._take_on(image, config, topic, index, partition)
        for resource in delta.configs:
            if resource.type == ResourceType.TOPIC and resource.name in image.topics:
                topic_config = self._topic_config(image, resource.name, config)
                for of_topic in self._replicas.by_name.get(resource.name.encode(), {}).values():
                    if of_topic.log is not None:
                        of_topic.log.update_config(topic_config)
        self._tell_placed()

    def update_defaults(self, image: ClusterImage, config: BrokerConfig) -> None:
        """The broker's own options have changed: topics without overrides follow them."""
        configs: dict[str, TopicConfig] = {}
        for partition in self._replicas:
            if partition.log is not None:
                if partition.topic not in configs:
                    configs[partition.topic] = self._topic_config(image, partition.topic, config)
                partition.log.update_config(configs[partition.topic])

    def _tell_placed(self) -> None:
        if self._placed:
            placed, self._placed = self._placed, {}
            self._on_placed(placed)

    def retry_unopened(self, image: ClusterImage, config: BrokerConfig) -> None:
        """Opens the logs that could not be opened, if that is possible by now."""
        for partition in list(self._unopened):
            topic = image.topics.get(partition.topic)
            self._unopened.pop(partition, None)
            if topic is not None and topic.topic_id == partition.topic_id and partition.log is None:
                assigned = topic.partitions[partition.index]
                self._open(image, config, topic, partition, assigned)
                self._set_role(partition, assigned)
        self._tell_placed()

    def lose(self, failure: LogDirError) -> list[Partition]:
        """Gives up a failed directory; the partitions that had their log there."""
        lost = []
        for topic, index in self._log_directories.take_offline(failure):
            partition = self._replicas.get(topic, index)
            if partition is not None:
                partition.log = None
                partition.release_waiters()
                lost.append(partition)
                if partition.is_internal:
                    self._on_role(partition)
        return lost

    def _take_on(
        self,
        image: ClusterImage,
        config: BrokerConfig,
        topic: TopicImage,
        index: int,
        assigned: PartitionImage,
        *,
        may_create: bool = True,
    ) -> None:
        partition = self._replicas.get(topic.name, index)
        if partition is None:
            partition = Partition(topic.name, index, topic.topic_id, None)
            self._replicas.add(partition)
            self._open(image, config, topic, partition, assigned, may_create=may_create)
        self._set_role(partition, assigned)

    def _open(
        self,
        image: ClusterImage,
        config: BrokerConfig,
        topic: TopicImage,
        partition: Partition,
        assigned: PartitionImage,
        *,
        may_create: bool = True,
    ) -> None:
        try:
            partition.log = self._log_of(image, config, topic, partition.index, assigned, may_create)
            directory = self._log_directories.directory_of(topic.name, partition.index)
            found = None if directory is None else directory.directory_id
            if found is not None and found != assigned.directory_of(self._node_id):
                self._placed[partition] = found
        except LogDirError as failure:
            failed = self._log_directories.by_path(failure.directory)
            if failed is not None and failed.directory_id is not None:
                self._placed[partition] = failed.directory_id
            self._on_log_dir_failure(failure)
        except KafkaError as failure:
            self._unopened[partition] = None
            log.error("cannot open the log of %s, and will try again: %s", partition, failure.message)

    def _set_role(self, partition: Partition, assigned: PartitionImage) -> None:
        if assigned.leader == self._node_id:
            partition.become_leader(
                self._node_id, assigned.leader_epoch, len(assigned.isr), len(assigned.replicas)
            )
        else:
            partition.resign(assigned.leader, assigned.leader_epoch)
        if partition.is_internal:
            self._on_role(partition)

    def _log_of(
        self,
        image: ClusterImage,
        config: BrokerConfig,
        topic: TopicImage,
        index: int,
        assigned: PartitionImage,
        may_create: bool,
    ) -> Log | None:
        directories = self._log_directories
        now_ms = self._clock.now_ms()
        found = directories.find(topic.name, index)
        if found is not None and found.topic_id not in (topic.topic_id, bytes(16)):
            log.warning("%s-%d on disk belongs to a deleted topic of that name", topic.name, index)
            directories.delete(topic.name, index, now_ms)
        directory = directories.by_id(assigned.directory_of(self._node_id))
        if found is None and directory is None and not may_create:
            return None  # an empty log in its place would lose records
        return directories.create(
            topic.name,
            index,
            topic.topic_id,
            self._topic_config(image, topic.name, config),
            now_ms,
            path=directory.path if directory is not None else None,
        )

    def _delete(self, topic: TopicImage) -> None:
        now_ms = self._clock.now_ms()
        for partition in self._replicas.remove_topic(topic.name):
            partition.log = None
            if partition.is_internal:
                self._on_role(partition)
            try:
                self._log_directories.delete(topic.name, partition.index, now_ms)
            except LogDirError as failure:
                self._on_log_dir_failure(failure)
            except KafkaError as failure:
                log.error("%s is deleted, but its files stay: %s", partition, failure.message)

    def _topic_config(self, image: ClusterImage, topic: str, config: BrokerConfig) -> TopicConfig:
        overrides = image.config(ResourceType.TOPIC, topic)
        try:
            return config.topic(overrides)
        except ConfigError as error:
            # It was accepted once, perhaps by another version: defaults beat not serving the topic at all.
            log.error("ignoring the configuration of topic %s: %s", topic, error)
            return config.topic_defaults
