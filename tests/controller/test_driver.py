"""The order of effects: durable, then heard of by every listener, then answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from moldau.controller.activation import decide_activation
from moldau.controller.decision import Decision
from moldau.controller.driver import Controller
from moldau.metadata import records
from moldau.metadata.delta import MetadataReplay, apply_records
from moldau.metadata.features import bootstrap_features, bootstrap_records
from moldau.metadata.framing import MetadataRecord
from moldau.metadata.image import ClusterImage
from moldau.sim.simulation import run
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.ids import Uuid


class Log:
    """A log that commits when it is told to."""

    def __init__(self) -> None:
        self.epoch = 1
        self.records: list[MetadataRecord] = []
        self.high_watermark = 0
        self.durable = asyncio.Event()
        self.durable.set()
        self.failure: Exception | None = None
        self.is_full = False

    def append(self, records: Sequence[MetadataRecord], now_ms: int) -> int:
        if self.is_full:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space")
        self.records += records
        return len(self.records) - 1

    async def commit(self, offset: int) -> None:
        await self.durable.wait()
        if self.failure is not None:
            raise self.failure
        self.high_watermark = len(self.records)


def create(name: str) -> Any:
    def decide(image: ClusterImage) -> Decision[str]:
        if name in image.topics:
            return Decision(records=[], reply="exists")
        topic = records.TopicRecord(name=name, topic_id=Uuid(name.encode() * 16))
        return Decision(records=[MetadataRecord(topic, 0)], reply=f"created {len(image.topics)}")

    return decide


def controller(log: Log) -> Controller:
    return Controller(log, MetadataReplay(ClusterImage()), lambda: 7)


def test_a_decision_is_on_the_newest_image_although_it_is_not_committed() -> None:
    async def main(runtime: Any) -> None:
        log = Log()
        ours = controller(log)
        heard: list[tuple[int, set[str]]] = []
        ours.listeners.append(lambda image, delta: heard.append((image.offset, set(image.topics))))
        log.durable.clear()
        tasks = [asyncio.ensure_future(ours.submit(create(name))) for name in "aba"]
        await asyncio.sleep(1)
        assert not any(task.done() for task in tasks) and heard == [] and not ours.image.topics
        log.durable.set()
        # The third says what only the first made true: it has to wait for it.
        assert await asyncio.gather(*tasks) == ["created 0", "created 1", "exists"]
        assert heard == [(0, {"a"}), (1, {"a", "b"})]
        assert ours.image.offset == 1

    run(main)


def test_every_listener_hears_before_the_reply() -> None:
    async def main(runtime: Any) -> None:
        ours = controller(Log())
        heard: list[str] = []
        ours.listeners += [lambda *_: heard.append("first"), lambda *_: heard.append("second")]
        await ours.submit(create("a"))
        assert heard == ["first", "second"]

    run(main)


def test_what_a_decision_refuses_has_not_happened() -> None:
    async def main(runtime: Any) -> None:
        log = Log()
        ours = controller(log)

        def refuse(image: ClusterImage) -> Decision[None]:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "no")

        with pytest.raises(KafkaError):
            await ours.submit(refuse)
        assert log.records == []
        assert await ours.submit(create("a")) == "created 0"

    run(main)


def test_a_failed_log_or_listener_stops_the_controller() -> None:
    async def main(runtime: Any) -> None:
        log = Log()
        ours = controller(log)
        log.failure = OSError("disk")
        with pytest.raises(OSError, match="disk"):
            await ours.submit(create("a"))
        with pytest.raises(RuntimeError, match="stopped"):
            await ours.submit(create("b"))
        assert not ours.image.topics

        def broken(image: ClusterImage, delta: object) -> None:
            raise ZeroDivisionError

        ours = controller(Log())
        ours.listeners.append(broken)
        with pytest.raises(ZeroDivisionError):
            await ours.submit(create("a"))
        with pytest.raises(RuntimeError, match="stopped"):
            await ours.submit(create("b"))

    run(main)


def test_a_new_cluster_starts_with_the_records_kafka_starts_with() -> None:
    decision = decide_activation(ClusterImage(), in_transaction=False, bootstrap=bootstrap_records())
    messages = [record.message for record in decision.records]
    assert isinstance(messages[0], records.BeginTransactionRecord) and messages[0].name == "Bootstrap records"
    assert isinstance(messages[-1], records.EndTransactionRecord)
    image, _ = apply_records(ClusterImage(), messages)
    assert dict(image.features) == bootstrap_features()
    assert image.config(4, "") == {"min.insync.replicas": "1"}
    assert decide_activation(image, in_transaction=False, bootstrap=bootstrap_records()).records == []


def test_a_transaction_left_open_is_aborted_first() -> None:
    decision = decide_activation(ClusterImage(), in_transaction=True, bootstrap=bootstrap_records())
    kinds = [type(record.message) for record in decision.records[:2]]
    assert kinds == [records.AbortTransactionRecord, records.BeginTransactionRecord]
    replay = MetadataReplay(ClusterImage())
    replay.apply(records.BeginTransactionRecord())
    for record in decision.records:
        replay.apply(record.message)
    assert not replay.in_transaction


def test_a_full_disk_refuses_a_decision_and_nothing_else() -> None:
    async def main(runtime: Any) -> None:
        log = Log()
        ours = controller(log)
        log.is_full = True
        with pytest.raises(KafkaError, match="no space"):
            await ours.submit(create("a"))
        assert not ours.image.topics
        log.is_full = False
        assert await ours.submit(create("a")) == "created 0"

    run(main)


def test_a_log_that_has_failed_stops_the_controller_and_is_reported_once() -> None:
    async def main(runtime: Any) -> None:
        log = Log()
        failures: list[BaseException] = []
        ours = Controller(log, MetadataReplay(ClusterImage()), lambda: 7, failures.append)
        log.failure = OSError("gone")
        for _ in range(2):
            with pytest.raises((OSError, RuntimeError)):
                await ours.submit(create("a"))
        assert failures == [log.failure]

    run(main)
