"""The consumer for asyncio: what a program reads records with.

    async with AsyncConsumer(bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        async for record in consumer:
            print(record.offset, record.value)

Answerable for the calls: their arguments, deserializers, callbacks, and what was handed out one by one.
What is decided is in `moldau.client.consuming`, and what is done about it in `moldau.client.consume`.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from moldau.client.admin import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    Admin,
    IsolationLevel,
    OffsetAndTimestamp,
)
from moldau.client.cluster import Cluster, parse_addresses
from moldau.client.config import ConnectionConfig, check_security, parse_config
from moldau.client.consume import ConsumeDriver
from moldau.client.consumed import ConsumerBatch, ConsumerRecord, arrow_table
from moldau.client.consuming.asking import Assigned, Change, Lost, Revoked
from moldau.client.consuming.assignors import (
    AssignFunction,
    ClassicAssignor,
    FunctionAssignor,
    assignor_of,
)
from moldau.client.consuming.classic import ClassicMember
from moldau.client.consuming.config import EARLIEST, LATEST, ConsumerConfig, checked
from moldau.client.consuming.machine import Machine
from moldau.client.consuming.positions import Partition, State
from moldau.client.errors import BlockedTooLongError, ClosedError
from moldau.client.producing.operations import GroupMetadata, OffsetAndMetadata
from moldau.client.serializers import Deserializer, deserializer_of
from moldau.client.topology import PartitionInfo, TopicPartition
from moldau.config.option import ConfigError
from moldau.records.read_columns import RecordColumns
from moldau.runtime.interfaces import Runtime
from moldau.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import pyarrow

Place: TypeAlias = TopicPartition | tuple[str, int]
OnChange: TypeAlias = Callable[[list[TopicPartition]], Any]
OnCommit: TypeAlias = Callable[[KafkaError | None], None]
Offsets: TypeAlias = Mapping[Place, OffsetAndMetadata | int]

_FOREVER_S = 1e9


class DeserializationError(KafkaError):
    """A key or value that its deserializer did not take. The position is that of the record: `seek`
    behind it to go on without it."""

    def __init__(self, place: TopicPartition, offset: int, cause: Exception) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, f"partition {place} at offset {offset}: {cause}")
        self.place = place
        self.offset = offset


class AsyncConsumer:
    """Reads records from a cluster. Made with Kafka's options, as a mapping or as keywords with `_` for `.`.

    Use it as an async context manager, or `start` and `close` it. All of it belongs to one event loop.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        key_deserializer: Deserializer | str | None = None,
        value_deserializer: Deserializer | str | None = None,
        assignors: Iterable[ClassicAssignor | tuple[str, AssignFunction]] = (),
        runtime: Runtime | None = None,
        cluster: Cluster | None = None,
        **options: Any,
    ) -> None:
        given = dict(config or {})
        if cluster is not None:
            given.setdefault("bootstrap.servers", ["of the cluster"])
        sections = parse_config([ConnectionConfig, ConsumerConfig], given, options)
        self._connection = cast(ConnectionConfig, sections[0])
        self.config = checked(cast(ConsumerConfig, sections[1]))
        check_security(self._connection)
        if cluster is None:
            try:
                self._bootstrap = parse_addresses(",".join(self._connection.bootstrap_servers))
            except ValueError as error:
                raise ConfigError.of("bootstrap.servers", str(error)) from None
        self._deserialize_key = deserializer_of(key_deserializer)
        self._deserialize_value = deserializer_of(value_deserializer)
        self._assignors = self._chosen_assignors(assignors)
        self._runtime = runtime
        self._cluster = cluster
        self._owns_cluster = cluster is None
        self._owned_runtime: Any = None
        self._driver: ConsumeDriver | None = None
        self._is_closing = False
        self._is_closed = False
        self._on_assigned: OnChange | None = None
        self._on_revoked: OnChange | None = None
        self._on_lost: OnChange | None = None
        self._unread: deque[_Run] = deque()

    def _chosen_assignors(
        self, given: Iterable[ClassicAssignor | tuple[str, AssignFunction]]
    ) -> list[ClassicAssignor]:
        chosen = [FunctionAssignor(*each) if isinstance(each, tuple) else each for each in given]
        if chosen or not self.config.is_classic:
            return list(chosen)
        for name in self.config.partition_assignment_strategy:
            assignor = assignor_of(name)
            if assignor is None:
                message = f"there is no assignor {name!r}: give one of your own as `assignors`"
                raise ConfigError.of("partition.assignment.strategy", message)
            chosen.append(assignor)
        return list(chosen)

    # Life -------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> AsyncConsumer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Get ready; nothing is sent yet, and the cluster need not be there."""
        if self._driver is not None:
            return
        if self._is_closed:
            raise ClosedError.because("the consumer is closed")
        if self._runtime is None:
            from moldau.runtime.real import RealRuntime

            self._owned_runtime = self._runtime = RealRuntime(asyncio.get_running_loop())
        options = self._connection
        if self._cluster is None:
            self._cluster = Cluster(
                self._runtime,
                self._bootstrap,
                client_id=options.client_id,
                request_timeout_s=options.request_timeout_ms / 1000,
                connect_timeout_s=options.socket_connection_setup_timeout_ms / 1000,
                retry_timeout_s=self.config.default_api_timeout_ms / 1000,
            )
        random = self._runtime.random
        member_id = base64.urlsafe_b64encode(random.randbytes(16)).rstrip(b"=").decode()
        self._machine = Machine(
            self.config,
            options,
            spread=lambda: random.uniform(0.8, 1.2),
            member_id=member_id,
            assignors=self._assignors,
        )
        self._now_ms = self._runtime.clock.now_ms
        self._driver = ConsumeDriver(self._runtime, self._cluster, self._machine, self._tell)

    async def close(self, *, leave_group: bool = True) -> None:
        """Commit what was handed out, if that happens by itself, give the partitions back, and hang up."""
        if self._is_closed or self._is_closing:
            return
        self._is_closing = True
        driver = self._driver
        if driver is None or self._cluster is None:
            self._is_closed = True
            return
        try:
            self._give_back_unread()
            machine = self._machine
            machine.positions.came_back()
            if leave_group:
                machine.give_back()
                await driver.tell_changes()
            if self.config.enable_auto_commit and machine.commits is not None:
                try:
                    await driver.wait(machine.commits.commit(None, self._deadline_ms()))
                except KafkaError:
                    pass  # who comes next reads a bit of it again
            if leave_group:
                await driver.leave(machine.unsubscribe("the consumer is being closed"))
        finally:
            self._is_closed = True
            await driver.close()
            if self._owns_cluster:
                self._cluster.close()
            if self._owned_runtime is not None:
                self._owned_runtime.close()

    # What is read -----------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: OnChange | None = None,
        on_revoked: OnChange | None = None,
        on_lost: OnChange | None = None,
    ) -> None:
        """Read topics together with the others of the group: those named, or those whose whole names match a
        pattern (with the consumer protocol, RE2's on the broker).

        The callbacks, which may be coroutine functions, are called within a poll with the partitions that are
        new, that are about to go to others, and that did so already. Without `on_lost`, `on_revoked` is
        called.
        """
        topics = [topics] if isinstance(topics, str) else list(topics)
        if bool(topics) == (pattern is not None):
            raise ValueError("give topics or a pattern")
        driver = self._started()
        self._machine.subscribe(topics, pattern)
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost
        driver.wake()

    async def unsubscribe(self) -> None:
        """Give everything back, and read nothing."""
        driver = self._started()
        self._give_back_unread()
        self._machine.positions.came_back()
        self._machine.give_back()
        await driver.tell_changes()
        await driver.leave(self._machine.unsubscribe("the consumer unsubscribed"))

    def assign(self, places: Iterable[Place]) -> None:
        """Read exactly these partitions, whatever others do. With a `group.id`, from the committed
        offsets."""
        driver = self._started()
        self._give_back_unread()
        self._machine.assign(TopicPartition(*place) for place in places)
        driver.wake()

    def assignment(self) -> set[TopicPartition]:
        self._started()
        return set(self._machine.positions.partitions)

    def subscription(self) -> frozenset[str]:
        """The topics; with a pattern and the classic protocol, those that match."""
        self._started()
        member = self._machine.member
        return member.subscription if isinstance(member, ClassicMember) else self._machine.subscription.topics

    # Records ----------------------------------------------------------------------------------------------

    async def poll(
        self,
        timeout_s: float = 1.0,
        *,
        max_records: int | None = None,
        places: Collection[Place] | None = None,
    ) -> list[ConsumerRecord]:
        """What is there or comes first, `max.poll.records` at most; nothing if nothing came in time.

        To poll again says that what came before is done with. `places` are the only ones to be asked for.
        """
        batches = await self.poll_columns(timeout_s, max_records=max_records, places=places)
        if len(batches) == 1:
            return list(batches[0])
        return [record for batch in batches for record in batch]

    async def poll_columns(
        self,
        timeout_s: float = 1.0,
        *,
        max_records: int | None = None,
        places: Collection[Place] | None = None,
    ) -> list[ConsumerBatch]:
        """As `poll`, in columns and by partition: no object is made for a record."""
        driver = self._started()
        self._give_back_unread()
        only = None if places is None else {TopicPartition(*place) for place in places}
        taken = await driver.poll(timeout_s, max_records or self.config.max_poll_records, only)
        batches = [self._batch(partition, columns) for partition, columns in taken]
        return [batch for batch in batches if batch is not None]

    async def poll_arrow(
        self,
        timeout_s: float = 1.0,
        *,
        max_records: int | None = None,
        places: Collection[Place] | None = None,
    ) -> pyarrow.Table:
        """As `poll_columns`, as one table of Arrow's; keys and values are bytes. Needs pyarrow."""
        driver = self._started()
        self._give_back_unread()
        only = None if places is None else {TopicPartition(*place) for place in places}
        taken = await driver.poll(timeout_s, max_records or self.config.max_poll_records, only)
        return arrow_table(_as_they_are(partition, columns) for partition, columns in taken)

    def __aiter__(self) -> AsyncConsumer:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record, however long that takes. What is committed by itself are whole polls that have
        been iterated; `commit` is about every record up to this one."""
        while True:
            while self._unread:
                record = self._unread[0].next()
                if record is not None:
                    return record
                self._end_run()
            await self._fill()

    async def _fill(self) -> None:
        """Poll for an iteration, however long that takes."""
        driver = self._started()
        for partition, columns in await driver.poll(_FOREVER_S, self.config.max_poll_records):
            life = partition.life
            batch = self._batch(partition, columns)
            if batch is not None:
                self._unread.append(_Run(self._machine, partition, life, batch))

    def _end_run(self) -> None:
        """What an iteration did not come to of it is handed out again."""
        run = self._unread.popleft()
        if run.is_current and run.left:
            self._machine.fetching.forget([run.partition.place])
            self._machine.positions.rewind(run.partition, run.next_offset)

    def _batch(self, partition: Partition, columns: RecordColumns) -> ConsumerBatch | None:
        if self._deserialize_key is None and self._deserialize_value is None:
            return _as_they_are(partition, columns)
        topic = partition.place.topic
        keys: Sequence[Any] = columns.keys
        values: Sequence[Any] = columns.values
        try:
            if self._deserialize_key is not None:
                keys = [self._deserialize_key(topic, key) for key in keys]
            if self._deserialize_value is not None:
                values = [self._deserialize_value(topic, value) for value in values]
        except Exception:
            return self._up_to_the_bad_one(partition, columns)
        return ConsumerBatch(
            topic,
            partition.place.partition,
            columns.offsets,
            columns.timestamps,
            keys,
            values,
            columns.headers,
        )

    def _up_to_the_bad_one(self, partition: Partition, columns: RecordColumns) -> ConsumerBatch | None:
        """The records before the one that cannot be deserialized, which is told of in the next poll."""
        topic, index = partition.place
        keys: list[Any] = []
        values: list[Any] = []
        for key, value in zip(columns.keys, columns.values, strict=True):
            try:
                made_key = key if self._deserialize_key is None else self._deserialize_key(topic, key)
                made = value if self._deserialize_value is None else self._deserialize_value(topic, value)
            except Exception as error:
                offset = columns.offsets[len(keys)]
                self._machine.fetching.errors[partition.place] = DeserializationError(
                    partition.place, offset, error
                )
                self._machine.fetching.forget([partition.place])
                self._machine.positions.rewind(partition, offset)
                break
            keys.append(made_key)
            values.append(made)
        part = columns.part(0, len(keys))
        if not keys:
            return None
        return ConsumerBatch(topic, index, part.offsets, part.timestamps, keys, values, part.headers)

    def _give_back_unread(self) -> None:
        while self._unread:
            self._end_run()

    # Positions --------------------------------------------------------------------------------------------

    def seek(self, place: Place, offset: int | OffsetAndMetadata) -> None:
        """Read on from an offset."""
        if isinstance(offset, int):
            offset = OffsetAndMetadata(offset)
        if offset.offset < 0:
            raise ValueError(f"there is no offset {offset.offset}")
        driver = self._started()
        self._machine.positions.seek(self._assigned(place), offset.offset, offset.leader_epoch)
        driver.wake()

    def seek_to_beginning(self, *places: Place) -> None:
        self._seek_to(places, EARLIEST)

    def seek_to_end(self, *places: Place) -> None:
        self._seek_to(places, LATEST)

    def _seek_to(self, places: Sequence[Place], where: Any) -> None:
        driver = self._started()
        for place in places or list(self._machine.positions.partitions):
            self._machine.positions.look_up(self._assigned(place), where)
        driver.wake()

    async def position(self, place: Place) -> int:
        """The offset of the next record to be handed out."""
        driver = self._started()
        partition = self._machine.positions[self._assigned(place)]
        timeout_s = self.config.default_api_timeout_ms / 1000
        if not await driver.until(lambda: partition.state is State.READ, timeout_s):
            raise self._too_late(f"the position of {partition.place}")
        return self._next_offset(partition)

    def pause(self, *places: Place) -> None:
        """Hand nothing out of these until `resume`; they stay assigned."""
        self._started()
        for place in places:
            self._machine.positions[self._assigned(place)].is_paused = True

    def resume(self, *places: Place) -> None:
        driver = self._started()
        for place in places:
            self._machine.positions[self._assigned(place)].is_paused = False
        driver.wake()

    def paused(self) -> set[TopicPartition]:
        self._started()
        return {place for place, each in self._machine.positions.partitions.items() if each.is_paused}

    def lag(self, place: Place) -> int | None:
        """How many offsets there are behind the position, as of the last fetch; None before the first."""
        self._started()
        partition = self._machine.positions[self._assigned(place)]
        is_committed = self.config.is_read_committed
        end = partition.stable_offset if is_committed else partition.high_watermark
        return None if end < 0 else max(end - self._next_offset(partition), 0)

    async def beginning_offsets(self, places: Iterable[Place]) -> dict[TopicPartition, int]:
        found = await self.offsets_for_times(dict.fromkeys(places, EARLIEST_TIMESTAMP))
        return {place: each.offset for place, each in found.items() if each.offset is not None}

    async def end_offsets(self, places: Iterable[Place]) -> dict[TopicPartition, int]:
        """Where the next record will be; with read_committed, the last stable offset."""
        found = await self.offsets_for_times(dict.fromkeys(places, LATEST_TIMESTAMP))
        return {place: each.offset for place, each in found.items() if each.offset is not None}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[Place, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The first record of each partition that is not older than a time; its `offset` is None if none
        is."""
        self._started()
        assert self._cluster is not None
        whole = {TopicPartition(*place): timestamp for place, timestamp in timestamps_ms.items()}
        isolation = IsolationLevel(self.config.is_read_committed)
        return await Admin(self._cluster).list_offsets(whole, isolation) if whole else {}

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic, as the cluster tells them."""
        self._started()
        assert self._cluster is not None
        return list((await self._cluster.topic(topic)).partitions)

    # Commits ----------------------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit offsets, each of the next record to read; without any, those behind all that was handed
        out."""
        driver = self._started()
        await driver.wait(self._commit(offsets, self._deadline_ms()))

    def commit_nowait(self, offsets: Offsets | None = None, on_commit: OnCommit | None = None) -> None:
        """As `commit`, without waiting; commits keep their order."""
        driver = self._started()
        call = self._commit(offsets, self._deadline_ms())
        if on_commit is not None:
            call.waiters.append(lambda: on_commit(call.error))
        driver.wake()

    async def committed(self, places: Iterable[Place]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has committed; nothing of partitions of which there is nothing."""
        driver = self._started()
        whole = [TopicPartition(*place) for place in places]
        if not whole:
            return {}
        found = await driver.wait(self._commits().committed(whole, self._deadline_ms()))
        return cast("dict[TopicPartition, OffsetAndMetadata]", found)

    def group_metadata(self) -> GroupMetadata:
        """Who the consumer is in its group, for `send_offsets_to_transaction`."""
        self._started()
        if self._machine.member is None:
            raise ValueError("there is no group.id")
        return self._machine.metadata

    def enforce_rebalance(self) -> None:
        """Have the group assign anew with the next poll (classic protocol; the other does so by itself)."""
        driver = self._started()
        self._machine.rejoin()
        driver.wake()

    def _commit(self, offsets: Offsets | None, deadline_ms: int) -> Any:
        if offsets is None:
            whole = {}
            for place, partition in self._machine.positions.partitions.items():
                if partition.state is State.READ:
                    offset = self._next_offset(partition)
                    self._machine.positions.done_with(partition, offset)
                    whole[place] = OffsetAndMetadata(offset)
        else:
            whole = {
                TopicPartition(*place): OffsetAndMetadata(each) if isinstance(each, int) else each
                for place, each in offsets.items()
            }
        return self._commits().commit(whole, deadline_ms)

    def _commits(self) -> Any:
        if self._machine.commits is None:
            raise ValueError("there is no group.id")
        return self._machine.commits

    def _next_offset(self, partition: Partition) -> int:
        """The position, or where an iteration is that has not come to it."""
        for run in self._unread:
            if run.partition is partition and run.is_current and run.left:
                return run.next_offset
        return partition.position

    # Parts ------------------------------------------------------------------------------------------------

    def _started(self) -> ConsumeDriver:
        if self._is_closed or self._driver is None:
            raise ClosedError.because(
                "the consumer is closed" if self._is_closed else "the consumer is not started"
            )
        return self._driver

    def _assigned(self, place: Place) -> TopicPartition:
        whole = TopicPartition(*place)
        if whole not in self._machine.positions:
            raise ValueError(f"partition {whole} is not assigned")
        return whole

    def _deadline_ms(self) -> int:
        return self._now_ms() + self.config.default_api_timeout_ms

    def _too_late(self, what: str) -> BlockedTooLongError:
        failure = self._machine.failure
        reason = f"{what} is not known after {self.config.default_api_timeout_ms} ms (default.api.timeout.ms)"
        if failure is not None:
            reason += f": {failure.message or failure}"
        return BlockedTooLongError(ErrorCode.REQUEST_TIMED_OUT, reason)

    async def _tell(self, change: Change) -> None:
        match change:
            case Assigned():
                callback = self._on_assigned
            case Revoked():
                callback = self._on_revoked
            case Lost():
                callback = self._on_lost or self._on_revoked
        if callback is not None:
            told = callback(list(change.places))
            if inspect.isawaitable(told):
                await told


class _Run:
    """Records of one poll that an iteration has not come to."""

    __slots__ = ("_life", "_machine", "_records", "left", "next_offset", "partition")

    def __init__(self, machine: Machine, partition: Partition, life: int, batch: ConsumerBatch) -> None:
        self._machine = machine
        self._life = life
        self._records = iter(batch)
        self.partition = partition
        self.left = len(batch)
        self.next_offset = batch.offsets[0]

    @property
    def is_current(self) -> bool:
        """Whether nobody has sought elsewhere meanwhile."""
        partition = self.partition
        return (
            partition.life == self._life
            and self._machine.positions.partitions.get(partition.place) is partition
        )

    def next(self) -> ConsumerRecord | None:
        partition = self.partition
        if not self.left or partition.is_paused or not self.is_current:
            return None
        record: ConsumerRecord = next(self._records)
        self.left -= 1
        self.next_offset = record.offset + 1 if self.left else partition.position
        return record


def _as_they_are(partition: Partition, columns: RecordColumns) -> ConsumerBatch:
    return ConsumerBatch(
        *partition.place,
        columns.offsets,
        columns.timestamps,
        columns.keys,
        columns.values,
        columns.headers,
    )
