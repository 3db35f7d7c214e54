"""Transactional producers of three libraries behind one narrow face.

Answers for using each as its documentation says, and for saying the same thing, `Fenced`, when a library says
that it cannot go on because another has its transactional id. Knows nothing of Moldau.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors

# What one call may take. Far above what any of them needs on a busy machine.
TIMEOUT_S = 40
Place = tuple[str, int]


class Fenced(Exception):
    """Another has the transactional id, or the coordinator has taken the transaction away."""


class Transactor(Protocol):
    """Made with its transactional id initialised."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None: ...
    def begin(self) -> None: ...
    def send(self, place: Place, value: bytes, key: bytes | None = None) -> None:
        """Until it is stored."""
        ...

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Confluent:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._bootstrap = bootstrap
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "retry.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "linger.ms": 0,
            }
        )
        self._call(self._producer.init_transactions, TIMEOUT_S)

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, place: Place, value: bytes, key: bytes | None = None) -> None:
        failures: list[confluent_kafka.KafkaError] = []

        def delivered(error: confluent_kafka.KafkaError | None, _: object) -> None:
            if error is not None:
                failures.append(error)

        self._call(self._producer.produce, place[0], value, key, partition=place[1], on_delivery=delivered)
        assert self._producer.flush(TIMEOUT_S) == 0
        if failures:
            # The reason is the producer's fatal error; the record's own is that it was purged.
            raise Fenced(failures[0])

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        try:
            sent = [confluent_kafka.TopicPartition(*place, offset) for place, offset in offsets.items()]
            metadata = consumer.consumer_group_metadata()
            self._call(self._producer.send_offsets_to_transaction, sent, metadata, TIMEOUT_S)
        finally:
            consumer.close()

    def commit(self) -> None:
        self._call(self._producer.commit_transaction, TIMEOUT_S)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction, TIMEOUT_S)

    def close(self) -> None:
        del self._producer

    def _call(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        try:
            call(*arguments, **named)
        except confluent_kafka.KafkaException as failure:
            if failure.args[0].fatal() or failure.args[0].txn_requires_abort():
                raise Fenced(failure) from failure
            raise


class Aiokafka:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._runner = asyncio.Runner()

        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                retry_backoff_ms=50,
            )
            try:
                await producer.start()
            except BaseException:
                await producer.stop()
                raise
            return producer

        self._producer = self._runner.run(start())

    def begin(self) -> None:
        self._run(self._producer.begin_transaction)

    def send(self, place: Place, value: bytes, key: bytes | None = None) -> None:
        self._run(self._producer.send_and_wait, place[0], value, key, partition=place[1])

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        sent = {aiokafka.TopicPartition(*place): offset for place, offset in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction, sent, group)

    def commit(self) -> None:
        self._run(self._producer.commit_transaction)

    def abort(self) -> None:
        self._run(self._producer.abort_transaction)

    def close(self) -> None:
        try:
            self._run(self._producer.stop)
        except Fenced:
            pass
        finally:
            self._runner.close()

    def _run(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        async def bounded() -> None:
            await asyncio.wait_for(call(*arguments, **named), TIMEOUT_S)

        try:
            self._runner.run(bounded())
        except (
            aiokafka.errors.ProducerFenced,
            aiokafka.errors.InvalidProducerEpoch,
            aiokafka.errors.IllegalOperation,
        ) as failure:
            raise Fenced(failure) from failure


class KafkaPython:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=TIMEOUT_S * 1000,
            retry_backoff_ms=50,
            reconnect_backoff_max_ms=200,
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, place: Place, value: bytes, key: bytes | None = None) -> None:
        self._call(
            lambda: self._producer.send(place[0], value=value, key=key, partition=place[1]).get(TIMEOUT_S)
        )

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        sent = {
            kafka.TopicPartition(*place): kafka.structs.OffsetAndMetadata(offset, "", -1)
            for place, offset in offsets.items()
        }
        self._call(self._producer.send_offsets_to_transaction, sent, group)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=5)

    def _call(self, call: Callable[..., Any], *arguments: Any) -> None:
        try:
            call(*arguments)
        except (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError) as failure:
            raise Fenced(failure) from failure


TRANSACTORS: dict[str, type[Transactor]] = {
    "confluent-kafka": Confluent,
    "aiokafka": Aiokafka,
    "kafka-python": KafkaPython,
}
