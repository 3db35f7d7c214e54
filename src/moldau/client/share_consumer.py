"""The consumer of share groups (KIP-932) for asyncio: records are shared out one by one, not by partitions.

    async with AsyncShareConsumer(bootstrap_servers="127.0.0.1:9092", group_id="workers") as consumer:
        consumer.subscribe(["jobs"])
        for record in await consumer.poll():
            print(record.value, record.delivery_count)

Answerable for the calls. What is decided is in `moldau.client.sharing`.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, cast

from moldau.client.cluster import Cluster, parse_addresses
from moldau.client.config import ConnectionConfig, check_security, parse_config
from moldau.client.consume import ConsumeDriver
from moldau.client.errors import ClosedError
from moldau.client.serializers import Deserializer, deserializer_of
from moldau.client.sharing.config import ShareConsumerConfig
from moldau.client.sharing.fetching import AcknowledgeType, Acquired
from moldau.client.sharing.machine import ShareMachine
from moldau.client.topology import TopicPartition
from moldau.config.option import ConfigError
from moldau.records.record import Header
from moldau.runtime.interfaces import Runtime
from moldau.wire.errors import KafkaError

_CLOSE_TIMEOUT_S = 5.0


class ShareRecord(NamedTuple):
    """`delivery_count` is how often it was delivered, this time included."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: tuple[Header, ...]
    delivery_count: int


class AsyncShareConsumer:
    """Made with Kafka's options, as a mapping or as keywords with `_` for `.`. All of it belongs to one event
    loop."""

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        key_deserializer: Deserializer | str | None = None,
        value_deserializer: Deserializer | str | None = None,
        runtime: Runtime | None = None,
        **options: Any,
    ) -> None:
        sections = parse_config([ConnectionConfig, ShareConsumerConfig], config or {}, options)
        self._connection = cast(ConnectionConfig, sections[0])
        self.config = cast(ShareConsumerConfig, sections[1])
        check_security(self._connection)
        try:
            self._bootstrap = parse_addresses(",".join(self._connection.bootstrap_servers))
        except ValueError as error:
            raise ConfigError.of("bootstrap.servers", str(error)) from None
        self._deserialize_key = deserializer_of(key_deserializer)
        self._deserialize_value = deserializer_of(value_deserializer)
        self._runtime = runtime
        self._owned_runtime: Any = None
        self._driver: ConsumeDriver | None = None
        self._is_closed = False
        self._open: dict[tuple[str, int], _Delivered] = {}

    async def __aenter__(self) -> AsyncShareConsumer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(accept=kind is None)

    async def start(self) -> None:
        if self._driver is not None:
            return
        if self._is_closed:
            raise ClosedError.because("the consumer is closed")
        if self._runtime is None:
            from moldau.runtime.real import RealRuntime

            self._owned_runtime = self._runtime = RealRuntime(asyncio.get_running_loop())
        options = self._connection
        self._cluster = Cluster(
            self._runtime,
            self._bootstrap,
            client_id=options.client_id,
            request_timeout_s=options.request_timeout_ms / 1000,
            connect_timeout_s=options.socket_connection_setup_timeout_ms / 1000,
        )
        random = self._runtime.random
        member_id = base64.urlsafe_b64encode(random.randbytes(16)).rstrip(b"=").decode()
        self._machine = ShareMachine(
            self.config, options, spread=lambda: random.uniform(0.8, 1.2), member_id=member_id
        )
        self._now_ms = self._runtime.clock.now_ms
        self._driver = ConsumeDriver(self._runtime, self._cluster, self._machine, lambda change: None)

    async def close(self, *, accept: bool = True) -> None:
        """Acknowledge what was handed out, unless that is to be done explicitly or `accept` is false; release
        the rest, and leave the group."""
        if self._is_closed:
            return
        self._is_closed = True
        driver = self._driver
        if driver is None:
            return
        fetching = self._machine.fetching
        try:
            if accept and self.config.is_implicit:
                self._accept_all()
            self._pass_on()
            fetching.finish()
            await driver.until(lambda: fetching.is_finished, _CLOSE_TIMEOUT_S)
            await driver.leave(self._machine.member.leave())
        finally:
            await driver.close()
            self._cluster.close()
            if self._owned_runtime is not None:
                self._owned_runtime.close()

    def subscribe(self, topics: Iterable[str]) -> None:
        driver = self._started()
        self._machine.member.subscription = frozenset([topics] if isinstance(topics, str) else topics)
        driver.wake()

    def subscription(self) -> frozenset[str]:
        self._started()
        return self._machine.member.subscription

    async def poll(self, timeout_s: float = 1.0) -> list[ShareRecord]:
        """What this consumer acquires, `max.poll.records` or about so many; nothing if nothing came in time.

        With implicit acknowledgement this accepts what came before. With explicit acknowledgement all of that
        has to have been acknowledged.
        """
        driver = self._started()
        if self.config.is_implicit:
            self._accept_all()
        elif any(each.left for each in self._open.values()):
            raise ValueError("records of the last poll have not been acknowledged")
        self._pass_on()
        self._open.clear()
        taken = await driver.poll(timeout_s, self.config.max_poll_records)
        return [record for acquired in cast("list[Acquired]", taken) for record in self._records(acquired)]

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """What became of a record of the last poll. With explicit acknowledgement only."""
        self._started()
        if self.config.is_implicit:
            raise ValueError("records are acknowledged implicitly (share.acknowledgement.mode)")
        delivered = self._open.get((record.topic, record.partition))
        if delivered is None or record.offset not in delivered.left:
            raise ValueError(f"offset {record.offset} is not to be acknowledged")
        delivered.left.remove(record.offset)
        delivered.kinds[record.offset] = kind

    async def commit(self) -> dict[TopicPartition, KafkaError | None]:
        """Send acknowledgements, with implicit ones of all that was handed out, and wait for what becomes of
        them, by partition: None is success."""
        driver = self._started()
        if self.config.is_implicit:
            self._accept_all()
        self._pass_on()
        call = self._machine.fetching.commit(self._now_ms() + self.config.default_api_timeout_ms)
        return cast("dict[TopicPartition, KafkaError | None]", await driver.wait(call))

    def _records(self, acquired: Acquired) -> Iterable[ShareRecord]:
        place, columns = acquired.place, acquired.columns
        delivered = self._open.setdefault(place, _Delivered(acquired.node_id))
        key, value = self._deserialize_key, self._deserialize_value
        for record, count in zip(columns.records(), acquired.delivery_counts, strict=True):
            try:
                made_key = record.key if key is None else key(place.topic, record.key)
                made = record.value if value is None else value(place.topic, record.value)
            except Exception:
                # What nobody can read nobody gets again; others are not held up by it.
                delivered.kinds[record.offset] = AcknowledgeType.REJECT
                continue
            delivered.left.add(record.offset)
            yield ShareRecord(*place, record.offset, record.timestamp, made_key, made, record.headers, count)

    def _accept_all(self) -> None:
        for delivered in self._open.values():
            delivered.kinds.update(dict.fromkeys(delivered.left, AcknowledgeType.ACCEPT))
            delivered.left.clear()

    def _pass_on(self) -> None:
        for place, delivered in self._open.items():
            if delivered.kinds:
                self._machine.fetching.acknowledge(
                    delivered.node_id, TopicPartition(*place), _ranges(delivered.kinds)
                )
                delivered.kinds = {}
        if self._driver is not None:
            self._driver.wake()

    def _started(self) -> ConsumeDriver:
        if self._is_closed or self._driver is None:
            raise ClosedError.because(
                "the consumer is closed" if self._is_closed else "the consumer is not started"
            )
        return self._driver


class _Delivered:
    """Of one partition in the last poll: what is not acknowledged, and what is but was not passed on."""

    __slots__ = ("kinds", "left", "node_id")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.left: set[int] = set()
        self.kinds: dict[int, AcknowledgeType] = {}


def _ranges(kinds: Mapping[int, AcknowledgeType]) -> list[tuple[int, int, int]]:
    ranges: list[tuple[int, int, int]] = []
    for offset in sorted(kinds):
        kind = int(kinds[offset])
        if ranges and ranges[-1][1] == offset - 1 and ranges[-1][2] == kind:
            ranges[-1] = (ranges[-1][0], offset, kind)
        else:
            ranges.append((offset, offset, kind))
    return ranges
