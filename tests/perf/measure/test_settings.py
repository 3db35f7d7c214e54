from __future__ import annotations

from moldau.perf.measure.settings import TopicSettings, producer_lines, topic_lines

NEVER = str((1 << 63) - 1)


def settings(replicas: tuple[int, int] = (1, 1), **configs: str) -> TopicSettings:
    return TopicSettings(
        topic="t",
        brokers=3,
        partitions=6,
        replicas=replicas,
        in_sync=(2, 3),
        configs={name.replace("_", "."): value for name, value in configs.items()},
        broker_configs={"num.io.threads": "8"},
    )


def fsync(replicas: tuple[int, int] = (1, 1), **configs: str) -> str:
    (line,) = [line for line in topic_lines(settings(replicas, **configs)) if line.startswith("fsync")]
    return line.removeprefix("fsync").strip()


def test_the_banner_tells_copies_and_limits() -> None:
    first, *rest = topic_lines(settings(min_insync_replicas="2", max_message_bytes="1048588"))
    assert first == (
        "topic      t: partitions=6 replication=1 in-sync=2 to 3 min.insync.replicas=2 brokers=3"
    )
    assert rest[1:] == ["limits     max.message.bytes=1048588", "broker     num.io.threads=8"]


def test_the_banner_tells_what_is_on_disk() -> None:
    assert fsync() == "the cluster does not tell"
    assert fsync(flush_messages=NEVER, flush_ms=NEVER).endswith("is in memory of one machine")
    assert fsync((3, 3), flush_messages=NEVER, flush_ms=NEVER).endswith("safe by its replicas")
    assert fsync(flush_messages="1", flush_ms=NEVER) == "before every answer"
    assert fsync(flush_messages="500", flush_ms="1000") == "every 500 records of a partition, every 1000 ms"


def test_the_banner_tells_who_acknowledges() -> None:
    assert producer_lines({"acks": "all", "linger.ms": "5"})[0] == "producer   acks=all linger.ms=5"
    assert "all replicas in sync" in producer_lines({"acks": "all"})[1]
    assert "the leader's word" in producer_lines({"acks": "1"})[1]
    assert "nobody's word" in producer_lines({"acks": "0"})[1]
