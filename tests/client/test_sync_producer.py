"""The producer from threads: what is handed over, waited for and told, over real sockets."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

import moldau
from moldau import ClosedError, ConfigError, KafkaError, Producer, RecordError
from moldau.client.loop_thread import HANDED_OVER_MAX, LoopThread
from moldau.records.batch import iterate_headers
from moldau.records.record import read_records
from moldau.runtime.real import RealRuntime
from tests.client.fake_broker import FakeBroker


@contextmanager
def broker_in_a_thread() -> Iterator[FakeBroker]:
    started: Future[FakeBroker] = Future()
    loop = asyncio.new_event_loop()

    async def main() -> None:
        runtime = RealRuntime(loop)
        broker = FakeBroker(runtime, port=0)
        ended.append(asyncio.Event())
        started.set_result(broker)
        await ended[0].wait()
        broker.close()
        runtime.close()

    ended: list[asyncio.Event] = []
    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    try:
        yield started.result(10)
    finally:
        loop.call_soon_threadsafe(ended[0].set)
        thread.join()
        loop.close()


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with broker_in_a_thread() as running:
        yield running


def address(broker: FakeBroker) -> str:
    return f"{broker.host}:{broker.port}"


def values(broker: FakeBroker, topic: str) -> list[bytes | None]:
    return [
        record.value
        for log in broker.topics[topic].logs
        for position, _ in iterate_headers(log)
        for record in read_records(log[position:])
    ]


def test_records_are_written_and_tell_where(broker: FakeBroker) -> None:
    told: list[tuple[int, KafkaError | None]] = []
    with Producer(bootstrap_servers=address(broker), value_serializer="str") as producer:
        deliveries = [
            producer.send("a", number, on_delivery=lambda where, error: told.append((where.offset, error)))
            for number in range(2000)
        ]
        assert deliveries[-1].result(10).offset == 1999
        assert deliveries[0].done() and deliveries[0].exception(10) is None
        producer.flush(10)
        assert producer.metrics()["record-send-total"] == 2000
        assert len(producer.partitions_for("a")) == 1
    assert values(broker, "a") == [b"%d" % number for number in range(2000)]
    assert told == [(number, None) for number in range(2000)]


def test_more_than_may_wait_is_handed_over(broker: FakeBroker) -> None:
    count = HANDED_OVER_MAX * 3
    with Producer(bootstrap_servers=address(broker)) as producer:
        for number in range(count):
            producer.send("a", b"%06d" % number)
    assert values(broker, "a") == [b"%06d" % number for number in range(count)]


def test_many_threads_share_a_producer(broker: FakeBroker) -> None:
    def send(name: int) -> None:
        for number in range(1000):
            producer.send("a", b"%d %04d" % (name, number))

    with Producer(bootstrap_servers=address(broker)) as producer:
        threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    written = values(broker, "a")
    for name in range(4):
        own = [value for value in written if value is not None and value.startswith(b"%d " % name)]
        assert own == [b"%d %04d" % (name, number) for number in range(1000)]


def test_what_is_not_taken_is_told_by_what_is_returned(broker: FakeBroker) -> None:
    with Producer(bootstrap_servers=address(broker)) as producer:
        delivery = producer.send("a", "text")
        with pytest.raises(TypeError, match="not bytes"):
            delivery.result(10)
        assert isinstance(producer.send("a", bytes(2 << 20)).exception(10), RecordError)
        assert producer.send("a", b"fine").result(10).offset == 0


def test_columns(broker: FakeBroker) -> None:
    with Producer(bootstrap_servers=address(broker)) as producer:
        assert producer.send_batch("a", [b"x"] * 100) == []
        runs = producer.send_batch("a", [b"y"] * 100, wait=True)
        assert sum(run.record_count for run in runs) == 100
    assert len(values(broker, "a")) == 200


def test_a_producer_has_to_be_started_and_can_be_closed(broker: FakeBroker) -> None:
    producer = Producer(bootstrap_servers=address(broker))
    with pytest.raises(ClosedError, match="not started"):
        producer.send("a", b"x")
    producer.start()
    delivery = producer.send("a", b"x")
    producer.close()
    producer.close()
    assert delivery.result(1).offset == 0
    for call in (lambda: producer.send("a", b"y"), producer.flush, producer.start):
        with pytest.raises(ClosedError, match="closed"):
            call()
    with pytest.raises(ConfigError):
        Producer(bootstrap_servers=address(broker), linger=5)
    with (
        Producer(bootstrap_servers=address(broker)) as plain,
        pytest.raises(RuntimeError, match=r"transactional\.id"),
    ):
        plain.begin_transaction()


def test_a_wait_on_the_clients_own_thread_is_refused(broker: FakeBroker) -> None:
    errors: list[BaseException] = []

    def callback(*_: object) -> None:
        try:
            producer.flush()
        except RuntimeError as error:
            errors.append(error)

    with Producer(bootstrap_servers=address(broker)) as producer:
        producer.send("a", b"x", on_delivery=callback).result(10)
        producer.flush(10)
    assert "own thread" in str(errors[0])


def test_items_are_taken_in_their_order_and_calls_after_them() -> None:
    taken: list[int] = []

    async def take(item: int) -> None:
        taken.append(item)
        if item % 100 == 0:
            await asyncio.sleep(0)

    async def count() -> int:
        return len(taken)

    thread = LoopThread("test", take)
    try:
        for number in range(20_000):
            assert thread.hand_over(number, 10)
            if number % 4999 == 0:
                assert thread.call(count) == number + 1
        assert thread.call(count) == 20_000
    finally:
        thread.stop()
    assert taken == list(range(20_000))


def test_a_loop_without_room_says_so_in_time() -> None:
    release = threading.Event()

    async def take(item: int) -> None:
        release.wait(10)

    thread = LoopThread("test", take)
    try:
        results = [thread.hand_over(number, 0.01) for number in range(HANDED_OVER_MAX + 10)]
        assert not all(results)
    finally:
        release.set()
        thread.stop()


def test_names_at_the_top_are_there_and_cost_nothing_until_used() -> None:
    for name in moldau.__all__:
        assert getattr(moldau, name) is not None
        assert name in dir(moldau)
    with pytest.raises(AttributeError, match="no attribute 'Consumers'"):
        moldau.Consumers  # noqa: B018
    code = "import sys, moldau; print([name for name in sys.modules if name.startswith('moldau.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
