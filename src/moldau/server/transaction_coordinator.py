"""The transaction coordinator of this broker: transactional ids, found in the partitions of
`__transaction_state`.

What is decided is in `moldau.txn`, how that is carried out in `moldau.coordinator`; this knows where a
transactional id is kept, gets the producer ids that decisions ask for, and hands on what they send:
markers, and transactions that ran out of time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from moldau.config.broker import BrokerConfig
from moldau.coordinator.coordinator import Coordinator, Decide
from moldau.coordinator.decision import Decision, Waiter
from moldau.coordinator.placement import partition_of
from moldau.log.errors import LogDirError
from moldau.metadata.image import ClusterImage
from moldau.replica.partition import Partition
from moldau.runtime.interfaces import Runtime
from moldau.server.producer_ids import ProducerIds
from moldau.server.transaction_markers import MarkerSender
from moldau.server.txn_markers import TxnMarkers
from moldau.server.waiting import result_of
from moldau.txn.environment import TxnEnvironment
from moldau.txn.shard import PartitionErrors, TimedOut, TransactionShard
from moldau.txn.transaction import PREPARED, Markers, TopicPartition, Transaction
from moldau.txn.transitions import ProducerIdNeeded
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

log = logging.getLogger(__name__)

TOPIC = "__transaction_state"

R = TypeVar("R")
DecideWithId = Callable[[TransactionShard, int, "int | None"], Decision[R]]
"""A shard, the time, and a new producer id; raises ProducerIdNeeded if it takes one and none is given."""


class TransactionCoordinator:
    def __init__(
        self,
        runtime: Runtime,
        node_id: int,
        config: BrokerConfig,
        image: ClusterImage,
        producer_ids: ProducerIds,
        markers: TxnMarkers,
        on_log_dir_failure: Callable[[LogDirError], None],
    ) -> None:
        self.environment = TxnEnvironment(config=config, image=image)
        self._runtime = runtime
        self._producer_ids = producer_ids
        self._coordinator: Coordinator[TransactionShard] = Coordinator(
            runtime,
            TOPIC,
            lambda index: TransactionShard(index, self.environment),
            on_log_dir_failure,
            load_buffer_bytes=config.transactions.transaction_state_log_load_buffer_size,
            send=self._send,
        )
        self.markers = MarkerSender(runtime, node_id, lambda: self.environment.image, markers, self._complete)

    # ------------------------------------------------------------ requests

    def init_producer_id(self, request: InitProducerIdRequest) -> Waiter[InitProducerIdResponse]:
        """For a producer with a transactional id. Raises KafkaError."""
        transactional_id = request.transactional_id or ""
        self._check_request(request, transactional_id)
        return self._submit_with_id(
            transactional_id, lambda shard, now_ms, new_id: shard.init_producer_id(now_ms, request, new_id)
        )

    def _check_request(self, request: InitProducerIdRequest, transactional_id: str) -> None:
        options = self.environment.options
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if request.enable2_pc and not options.transaction_two_phase_commit_enable:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if request.keep_prepared_txn and not options.transaction_two_phase_commit_enable:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        timeout_ms = request.transaction_timeout_ms
        if not (request.enable2_pc or 0 < timeout_ms <= options.transaction_max_timeout_ms):
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        transaction_version: int,
    ) -> Waiter[PartitionErrors]:
        """Add partitions to a transaction, or find out whether they are in it; the error of each. Raises
        KafkaError: what it says is then of all of them."""
        producer = producer_id, producer_epoch
        return self._submit(
            transactional_id,
            lambda shard, now_ms, _: shard.add_partitions(
                now_ms,
                transactional_id,
                producer,
                partitions,
                verify_only=verify_only,
                client_version=transaction_version,
            ),
        )

    def end(self, request: EndTxnRequest, transaction_version: int) -> Waiter[EndTxnResponse]:
        """Raises KafkaError. The answer is that of a decision which nothing can change; markers follow."""
        return self._submit_with_id(
            request.transactional_id,
            lambda shard, now_ms, new_id: shard.end(now_ms, request, transaction_version, new_id),
        )

    def describe(self, transactional_id: str) -> Waiter[Transaction]:
        """Raises KafkaError. Of a transaction that is being completed, with the partitions that have no
        marker yet."""

        def decide(
            shard: TransactionShard, now_ms: int, waiter: Waiter[Transaction]
        ) -> Decision[Transaction]:
            found = shard.transaction(transactional_id)
            if found is None:
                raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
            if found.state in PREPARED:
                left = self.markers.left_of(shard.index, transactional_id)
                if left is not None:
                    found = found._replace(partitions=frozenset(left))
            return Decision(reply=found)

        return self._submit(transactional_id, decide)

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        """All that are kept here. Raises KafkaError while some of them are still loading."""
        if self._coordinator.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return (each for _, shard in self._coordinator.shards() for each in shard.transactions())

    def counts(self) -> tuple[int, int]:
        """The transactions that are open, and those that are decided and not complete."""
        shards = [shard for _, shard in self._coordinator.shards()]
        return sum(each.ongoing_count for each in shards), sum(each.prepared_count for each in shards)

    # ------------------------------------------------------------ shards

    def _partition_of(self, transactional_id: str) -> int:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        topic = self.environment.image.topics.get(TOPIC)
        if topic is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return partition_of(transactional_id, len(topic.partitions))

    def _submit(self, transactional_id: str, decide: Decide[TransactionShard, R]) -> Waiter[R]:
        return self._coordinator.submit(self._partition_of(transactional_id), decide)

    def _submit_with_id(self, transactional_id: str, decide: DecideWithId[R]) -> Waiter[R]:
        try:
            return self._submit(transactional_id, lambda shard, now_ms, _: decide(shard, now_ms, None))
        except ProducerIdNeeded:
            answer: Waiter[R] = Waiter()
            self._runtime.spawn(
                self._submit_later(transactional_id, decide, answer), f"producer id for {transactional_id}"
            )
            return answer

    async def _submit_later(self, transactional_id: str, decide: DecideWithId[R], answer: Waiter[R]) -> None:
        try:
            new_id = await self._producer_ids.next()
        except KafkaError as failure:
            log.warning("no producer id for %s: %s", transactional_id, failure)
            # What Kafka says until the controller has given it a block.
            answer.fail(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        try:
            decided = self._submit(transactional_id, lambda shard, now_ms, _: decide(shard, now_ms, new_id))
            answer.give(await result_of(decided))
        except KafkaError as failure:
            answer.fail(failure)

    # ------------------------------------------------------------ what decisions send

    def _send(self, partition: Partition, message: Any) -> None:
        match message:
            case Markers():
                self.markers.begin(partition.index, partition.leader_epoch, message)
            case TimedOut(transactional_id):
                self._abort(transactional_id)
            case _:
                raise AssertionError(f"nobody knows what to do with {message!r}")

    def _abort(self, transactional_id: str) -> None:
        def on_done() -> None:
            if aborting.failure is not None:
                log.warning("%s, which ran out of time, goes on: %s", transactional_id, aborting.failure)
            elif aborting.result():
                log.info("aborting the transaction of %s, which ran out of time", transactional_id)

        try:
            aborting = self._submit_with_id(
                transactional_id,
                lambda shard, now_ms, new_id: shard.abort_timed_out(now_ms, transactional_id, new_id),
            )
        except KafkaError as failure:
            log.debug("%s is not aborted: %s", transactional_id, failure)
            return
        aborting.when_done(on_done)

    def _complete(self, index: int, markers: Markers) -> Waiter[bool]:
        return self._coordinator.submit(
            index,
            lambda shard, now_ms, _: shard.complete(
                now_ms, markers.transactional_id, markers.producer_id, markers.producer_epoch
            ),
        )

    # ------------------------------------------------------------ the node

    def on_role(self, partition: Partition) -> None:
        if partition.topic == TOPIC:
            is_here = partition.is_leader and partition.log is not None
            self.markers.stop(partition.index, partition.leader_epoch if is_here else -1)
            self._coordinator.on_role(partition)

    def on_high_watermark(self, partition: Partition) -> None:
        if partition.topic == TOPIC:
            self._coordinator.on_high_watermark(partition)

    def update(self, image: ClusterImage, config: BrokerConfig) -> None:
        self.environment.image, self.environment.config = image, config

    def close(self) -> None:
        self.markers.close()
        self._coordinator.close()
