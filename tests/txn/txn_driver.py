"""A shard of transactions, driven as the coordinator drives it: what is decided is written, applied and
answered, what it sends is kept. Its log holds encoded records, so that a replay reads what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from moldau.config.broker import BrokerConfig
from moldau.coordinator.decision import Decision
from moldau.coordinator.record import CoordinatorRecord, encode_key, encode_value
from moldau.metadata.features import TRANSACTION_VERSION
from moldau.metadata.image import ClusterImage
from moldau.metadata.persistent_map import PersistentMap
from moldau.txn.environment import TxnEnvironment
from moldau.txn.records import RECORD_TYPES
from moldau.txn.shard import TransactionShard
from moldau.txn.transaction import Markers, TopicPartition, Transaction, record_of
from moldau.txn.transitions import ProducerIdNeeded
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.end_txn import EndTxnRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest

ID = "payments"
P0, P1 = ("t", 0), ("t", 1)
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
}


class TxnDriver:
    def __init__(self, transaction_version: int = 2, **properties: object) -> None:
        given = {name.replace("_", "."): str(value) for name, value in properties.items()}
        self.environment = TxnEnvironment(
            config=BrokerConfig.parse({**_PROPERTIES, **given}),
            image=ClusterImage(features=PersistentMap({TRANSACTION_VERSION: transaction_version})),
        )
        self.now_ms = 1_000_000
        self.next_producer_id = 100
        self.log: list[tuple[bytes, bytes | None]] = []
        self.is_disk_full = False
        self.sent: list[Any] = []
        self.shard = TransactionShard(0, self.environment)
        self.carry_out(self.shard.on_loaded(self.now_ms))

    # ------------------------------------------------------------ requests

    def init(
        self,
        expected: tuple[int, int] = (-1, -1),
        *,
        timeout_ms: int = 60_000,
        two_phase: bool = False,
        keep: bool = False,
        transactional_id: str = ID,
    ) -> Any:
        """The producer id and epoch, those of the kept transaction behind them; or an error code."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
            enable2_pc=two_phase,
            keep_prepared_txn=keep,
        )
        reply = self.ask(lambda new_id: self.shard.init_producer_id(self.now_ms, request, new_id))
        if isinstance(reply, ErrorCode):
            return reply
        if reply.error_code:
            return ErrorCode(reply.error_code)
        given = reply.producer_id, reply.producer_epoch
        if not keep:
            assert (reply.ongoing_txn_producer_id, reply.ongoing_txn_producer_epoch) == (-1, -1)
            return given
        return (*given, reply.ongoing_txn_producer_id, reply.ongoing_txn_producer_epoch)

    def add(
        self,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        version: int = 2,
        verify: bool = False,
        transactional_id: str = ID,
    ) -> Any:
        """The error code of all, or of each where they differ."""
        reply = self.ask(
            lambda _: self.shard.add_partitions(
                self.now_ms,
                transactional_id,
                producer,
                partitions or (P0,),
                verify_only=verify,
                client_version=version,
            )
        )
        if isinstance(reply, ErrorCode):
            return reply
        return next(iter(reply.values())) if len({*reply.values()}) == 1 else dict(reply)

    def end(
        self,
        producer: tuple[int, int],
        *,
        commit: bool = True,
        version: int = 2,
        transactional_id: str = ID,
    ) -> Any:
        """The producer id and epoch to go on with, or an error code."""
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )
        reply = self.ask(lambda new_id: self.shard.end(self.now_ms, request, version, new_id))
        return reply if isinstance(reply, ErrorCode) else (reply.producer_id, reply.producer_epoch)

    def complete(self) -> list[Markers]:
        """All markers that were sent are written."""
        markers = [each for each in self.sent if isinstance(each, Markers)]
        self.sent = [each for each in self.sent if not isinstance(each, Markers)]
        for each in markers:
            self.ask(
                lambda _, each=each: self.shard.complete(
                    self.now_ms, each.transactional_id, each.producer_id, each.producer_epoch
                )
            )
        return markers

    def abort_timed_out(self, transactional_id: str = ID) -> Any:
        return self.ask(lambda new_id: self.shard.abort_timed_out(self.now_ms, transactional_id, new_id))

    # ------------------------------------------------------------ carrying out

    def ask(self, decide: Callable[[int | None], Decision[Any]]) -> Any:
        """The reply, or the error code of a refusal."""
        try:
            try:
                return self.carry_out(decide(None))
            except ProducerIdNeeded:
                self.next_producer_id += 1
                return self.carry_out(decide(self.next_producer_id))
        except KafkaError as failure:
            return failure.code

    def carry_out(self, decision: Decision[Any]) -> Any:
        if decision.records and self.is_disk_full:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for record in decision.records:
            self.write(record)
        self.sent += decision.sends
        return decision.reply

    def write(self, record: CoordinatorRecord) -> None:
        self.log.append((encode_key(record), encode_value(record)))
        self.apply(self.shard, len(self.log) - 1)

    def put(self, transaction: Transaction, transactional_id: str = ID) -> None:
        """A state that somebody else has written."""
        self.write(record_of(transactional_id, transaction, 1))

    def apply(self, shard: TransactionShard, offset: int) -> None:
        record = RECORD_TYPES.decode(*self.log[offset])
        assert record is not None
        shard.applied_offset = offset
        shard.apply(record, -1)

    def replayed(self) -> TransactionShard:
        shard = TransactionShard(0, self.environment)
        for offset in range(len(self.log)):
            self.apply(shard, offset)
        return shard

    def reload(self) -> None:
        self.shard = self.replayed()
        self.sent = []
        self.carry_out(self.shard.on_loaded(self.now_ms))

    def advance(self, by_ms: int) -> None:
        until_ms = self.now_ms + by_ms
        while (next_ms := self.shard.timers.next_ms()) is not None and next_ms <= until_ms:
            self.now_ms = max(self.now_ms, next_ms)
            event = self.shard.timers.take_due(self.now_ms)
            if event is not None:
                self.carry_out(self.shard.on_timer(self.now_ms, event))
        self.now_ms = until_ms

    # ------------------------------------------------------------ what is there

    @property
    def transaction(self) -> Transaction:
        found = self.shard.transaction(ID)
        assert found is not None
        return found

    def values(self, log: Sequence[tuple[bytes, bytes | None]] | None = None) -> Iterable[Any]:
        for key, value in self.log if log is None else log:
            record = RECORD_TYPES.decode(key, value)
            assert record is not None
            yield record.value
