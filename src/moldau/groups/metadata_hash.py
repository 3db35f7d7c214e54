"""What a group has seen of its topics, in 64 bits, as Kafka computes them and keeps them in the group's
record: when they differ from those of the cluster, a new assignment is due.

The hash is XXH3 over what Kafka's hash stream makes of the fields: integers and UTF-16 with the low byte
first, each string with its length behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

import xxhash

from moldau.metadata.image import ClusterImage, PartitionImage, TopicImage

_MAGIC = b"\x00"
_INT32 = Struct("<i").pack
_SIGNED = Struct("<q").unpack
_NO_TOPICS = 0


class MetadataHashes:
    """Remembers the hashes of topics, for as long as they are as they were. One for each shard."""

    def __init__(self) -> None:
        self._by_topic: dict[str, tuple[TopicImage, bytes]] = {}

    def of(self, topics: Iterable[str], image: ClusterImage) -> int:
        """The hash of those of the topics that there are; 0 if there are none."""
        digests = [
            self._of_topic(known, image)
            for topic in sorted(topics)
            if (known := image.topics.get(topic)) is not None
        ]
        if not digests:
            return _NO_TOPICS
        signed: int = _SIGNED(_digest(b"".join(digests)))[0]
        return signed

    def forget(self, topic: str) -> None:
        """It is gone. For one that has changed this is not needed, but for a change of its brokers' racks."""
        self._by_topic.pop(topic, None)

    def _of_topic(self, topic: TopicImage, image: ClusterImage) -> bytes:
        known = self._by_topic.get(topic.name)
        if known is not None and known[0] is topic:
            return known[1]
        parts = [
            _MAGIC,
            # An id is two numbers, the high one first; each has its low byte first.
            topic.topic_id[7::-1],
            topic.topic_id[:7:-1],
            _string(topic.name),
            _INT32(len(topic.partitions)),
        ]
        for index in range(len(topic.partitions)):
            parts.append(_INT32(index))
            for rack in _racks(topic.partitions[index], image):
                parts += (_INT32(_length(rack)), _string(rack))
        digest = _digest(b"".join(parts))
        self._by_topic[topic.name] = topic, digest
        return digest


def _racks(partition: PartitionImage, image: ClusterImage) -> list[str]:
    brokers = (image.brokers.get(broker) for broker in partition.replicas)
    return sorted(broker.rack for broker in brokers if broker is not None and broker.rack is not None)


def _digest(data: bytes) -> bytes:
    """As the stream takes it in again, low byte first."""
    return xxhash.xxh3_64_digest(data)[::-1]


def _string(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass") + _INT32(_length(text))


def _length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
