"""Performs what a producer's rules decide: connects, sends, asks, and brings the answers back.

There is no task for it. Whatever happens (a record, an answer, a timer) calls `wake`, and on the next turn of
the loop `step` is asked once for what is to be done. Only what has to wait by itself, such as connecting, is
a task.

Invariant: every effect is answered to the rules exactly once, as success or as failure.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any, assert_never

from moldau.client.cluster import Cluster
from moldau.client.connection import Connection
from moldau.client.delivery import release
from moldau.client.errors import BlockedTooLongError, ClosedError
from moldau.client.producing.config import ProducerConfig
from moldau.client.producing.operations import Ask, Operation
from moldau.client.producing.sender import (
    AskProducerId,
    Connect,
    Effect,
    Flight,
    RefreshMetadata,
    Send,
    Sender,
)
from moldau.runtime.interfaces import Buffer, Runtime, Timer
from moldau.wire.api import ApiKey
from moldau.wire.codec import ProtocolError
from moldau.wire.errors import ErrorCode, KafkaError, error_code
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.produce import TOPIC_IDS_FROM, PartitionResult
from moldau.wire.produce_client import read_produce_response, write_produce_request

_TRANSACTION_VERSION = "transaction.version"
_MANY_COORDINATORS_FROM = 4


class ProduceDriver:
    def __init__(
        self,
        runtime: Runtime,
        cluster: Cluster,
        sender: Sender,
        config: ProducerConfig,
        *,
        request_timeout_ms: int,
    ) -> None:
        self.cluster = cluster
        self.sender = sender
        self.topic_errors: dict[str, ErrorCode] = {}
        self.is_closed = False
        self._runtime = runtime
        self._now_ms = runtime.clock.now_ms
        self._monotonic = runtime.clock.monotonic
        self._acks = config.required_acks
        self._transactional_id = config.transactional_id
        self._timeout_ms = request_timeout_ms
        self._connections: dict[int, Connection] = {}
        self._is_woken = False
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._on_metadata: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        """Something has changed."""
        if not self._is_woken and not self.is_closed:
            self._is_woken = True
            self._runtime.call_soon(self._pump)

    def close(self) -> None:
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._finish()
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(ClosedError.because("the producer was closed"))

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def waiting(self) -> int:
        """Callers that wait for room."""
        return len(self._waiting)

    # Callers that wait ------------------------------------------------------------------------------------

    async def metadata_told(self, deadline: float) -> bool:
        """Until the cluster was asked the next time; False if that took too long."""
        future = asyncio.get_running_loop().create_future()
        self._on_metadata.append(future)
        self.wake()
        try:
            async with asyncio.timeout(max(deadline - self._monotonic(), 0)):
                await future
        except TimeoutError:
            return False
        return True

    async def room(self, size: int, deadline: float, max_block_ms: int) -> None:
        """Until there is memory for `size` bytes, which is kept for the caller: it has to `give_back` what it
        got before it uses it. Those who wait get it in their order."""
        sender = self.sender
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((size, future))
        sender.waiting_for_memory += 1
        self.wake()
        started = self._monotonic()
        try:
            async with asyncio.timeout(max(deadline - started, 0)):
                await future
        except BaseException as error:
            if future.done() and not future.cancelled() and future.exception() is None:
                sender.accumulator.used -= size
            else:
                self._waiting.remove((size, future))
            self._let_in()
            if isinstance(error, TimeoutError):
                sender.metrics.exhausted.record(self._now_ms(), 1)
                reason = f"no room for {size} bytes within {max_block_ms} ms (buffer.memory)"
                raise BlockedTooLongError(ErrorCode.REQUEST_TIMED_OUT, reason) from None
            raise
        finally:
            sender.waiting_for_memory -= 1
            elapsed_ns = (self._monotonic() - started) * 1e9
            sender.metrics.buffer_wait.record(self._now_ms(), elapsed_ns)

    def give_back(self, size: int) -> None:
        self.sender.accumulator.used -= size

    def _let_in(self) -> None:
        accumulator = self.sender.accumulator
        while self._waiting:
            size, future = self._waiting[0]
            if not accumulator.has_room(size):
                return
            self._waiting.popleft()
            if not future.done():
                accumulator.used += size
                future.set_result(None)

    async def wait(self, operation: Operation, deadline: float, max_block_ms: int) -> None:
        """Until the operation has ended; raises its error, or that it takes too long. It goes on then."""
        self.wake()
        if not operation.is_done:
            future = asyncio.get_running_loop().create_future()
            operation.waiters.append(partial(release, future))
            try:
                async with asyncio.timeout(max(deadline - self._monotonic(), 0)):
                    await future
            except TimeoutError:
                reason = f"{operation.name} took longer than {max_block_ms} ms (max.block.ms)"
                raise BlockedTooLongError(ErrorCode.REQUEST_TIMED_OUT, reason) from None
        if operation.error is not None:
            raise type(operation.error)(operation.error.code, operation.error.message)

    # Effects ----------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        self._is_woken = False
        if self.is_closed:
            return
        for effect in self.sender.step(self._now_ms()):
            self._perform(effect)
        self._finish()
        self._set_timer()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._send(effect.flight)
            case Connect():
                self._spawn(self._connect(effect.node_id), f"connect to {effect.node_id}")
            case RefreshMetadata():
                self._spawn(self._refresh(effect.topics), "metadata")
            case AskProducerId():
                self._spawn(self._ask_producer_id(), "producer id")
            case Ask():
                self._spawn(self._ask(effect), type(effect.message).__name__)
            case _:
                assert_never(effect)

    def _send(self, flight: Flight) -> None:
        sender = self.sender
        try:
            connection = self._connections.get(flight.node.node_id)
            if connection is None:
                # A request before this one found out that it is lost.
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"lost node {flight.node.node_id}")
            version = connection.version_of(ApiKey.PRODUCE, flight.version_max)
            body = self._body(flight, version)
            if self._acks == 0:

                def on_sent(error: KafkaError | None) -> None:
                    if error is None:
                        sender.on_unanswered(self._now_ms(), flight)
                    else:
                        sender.on_failure(self._now_ms(), flight, error)
                    self.wake()

                size = connection.post(ApiKey.PRODUCE, version, body, on_sent)
            else:

                def on_answer(frame: Buffer, position: int, error: KafkaError | None) -> None:
                    self._on_answer(flight, connection, version, frame, position, error)

                timeout_s = self._timeout_ms / 1000
                size = connection.submit(ApiKey.PRODUCE, version, body, on_answer, timeout_s=timeout_s)
        except KafkaError as error:
            sender.on_failure(self._now_ms(), flight, error)
            self.wake()
            return
        now_ms = self._now_ms()
        sender.metrics.requests.record(now_ms, 1)
        sender.metrics.outgoing.record(now_ms, size)
        sender.metrics.request_sizes.record_max(now_ms, size, size)

    def _body(self, flight: Flight, version: int) -> list[Buffer]:
        by_id = version >= TOPIC_IDS_FROM
        topics: dict[bytes, list[tuple[int, Buffer]]] = {}
        for batch in flight.batches:
            topic = batch.queue.topic
            assert batch.data is not None
            topics.setdefault(topic.topic_id if by_id else topic.raw_name, []).append(
                (batch.queue.place.partition, batch.data)
            )
        return write_produce_request(
            version, self._transactional_id, self._acks, self._timeout_ms, list(topics.items())
        )

    def _on_answer(
        self,
        flight: Flight,
        connection: Connection,
        version: int,
        frame: Buffer,
        position: int,
        error: KafkaError | None,
    ) -> None:
        now_ms = self._now_ms()
        sender = self.sender
        if error is None:
            try:
                answer = read_produce_response(version, frame, position)
            except ProtocolError as breach:
                connection.close()
                error = KafkaError(
                    ErrorCode.NETWORK_EXCEPTION, f"{connection.peer} does not speak Kafka: {breach}"
                )
        if error is not None:
            sender.on_failure(now_ms, flight, error)
        else:
            sender.metrics.responses.record(now_ms, 1)
            sender.metrics.incoming.record(now_ms, len(frame) + 4)
            results: dict[tuple[bytes, int], PartitionResult] = {
                (topic, result.partition): result for topic, these in answer.topics for result in these
            }
            for endpoint in answer.endpoints:
                self.cluster.learn_node(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
            by_id = version >= TOPIC_IDS_FROM
            sender.on_answer(now_ms, flight, results, by_id=by_id, throttle_ms=answer.throttle_time_ms)
        self.wake()

    async def _connect(self, node_id: int) -> None:
        try:
            connection = await self.cluster.connection_to(node_id)
        except KafkaError:
            self.sender.on_disconnected(self._now_ms(), node_id)
        else:
            self._connections[node_id] = connection
            connection.watch_closed(lambda: self._on_connection_closed(node_id, connection))
            self.sender.on_connected(node_id)
        self.wake()

    def _on_connection_closed(self, node_id: int, connection: Connection) -> None:
        if self._connections.get(node_id) is connection:
            del self._connections[node_id]
            self.sender.on_disconnected(self._now_ms(), node_id)
            self.wake()

    async def _refresh(self, topics: tuple[str, ...]) -> None:
        try:
            view = await self.cluster.refresh(topics, allow_auto_topic_creation=True)
        except KafkaError:
            self.sender.on_metadata_failed(self._now_ms())
        else:
            self.topic_errors = view.errors
            self.sender.on_metadata(self._now_ms(), view.topics, topics)
            told, self._on_metadata = self._on_metadata, []
            for future in told:
                release(future)
        self.wake()

    async def _ask_producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        try:
            connection = await self.cluster.connection_to_any()
            response = await connection.request(request, InitProducerIdResponse)
            if response.error_code:
                raise KafkaError(error_code(response.error_code), "no producer id")
        except KafkaError as error:
            self.sender.on_no_producer_id(self._now_ms(), error)
        else:
            self.sender.on_producer_id(response.producer_id, response.producer_epoch)
        self.wake()

    async def _ask(self, ask: Ask) -> None:
        transactions = self.sender.transactions
        assert transactions is not None
        try:
            if ask.node_id is None:
                connection = await self.cluster.connection_to_any()
            else:
                connection = await self.cluster.connection_to(ask.node_id)
            transactions.on_features(connection.features.get(_TRANSACTION_VERSION, 0))
            transactions.can_bump_epoch = connection.version_of(ApiKey.INIT_PRODUCER_ID) >= 3
            version = connection.version_of(ApiKey(ask.message.API_KEY), ask.version_max)
            message = ask.message
            if isinstance(message, FindCoordinatorRequest) and version >= _MANY_COORDINATORS_FROM:
                message = FindCoordinatorRequest(key_type=message.key_type, coordinator_keys=[message.key])
            response = await connection.request(message, ask.response, version=version)
        except KafkaError as error:
            transactions.on_failure(self._now_ms(), ask.task, error)
        else:
            transactions.on_response(self._now_ms(), ask.task, response)
        self.wake()

    def _finish(self) -> None:
        """Tell who waits what is over, and let in who waited for the room."""
        sender = self.sender
        while sender.finished:
            finished, sender.finished = sender.finished, []
            for batch in finished:
                waiters, batch.waiters = batch.waiters, []
                for wake in waiters:
                    wake()
        if sender.transactions is not None:
            operations, sender.transactions.finished = sender.transactions.finished, []
            for operation in operations:
                for wake in operation.waiters:
                    wake()
        if self._waiting:
            self._let_in()

    def _set_timer(self) -> None:
        wakeup_ms = self.sender.wakeup_ms
        if self._timer is not None:
            if wakeup_ms is not None and self._timer_ms <= wakeup_ms:
                return  # it comes early enough, and then sees
            self._timer.cancel()
            self._timer = None
        if wakeup_ms is not None:
            self._timer_ms = wakeup_ms
            delay_s = max(wakeup_ms - self._now_ms(), 0) / 1000
            self._timer = self._runtime.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._pump()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._runtime.spawn(work, f"producer: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
