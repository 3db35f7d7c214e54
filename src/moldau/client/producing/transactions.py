"""The transactions of one producer: in which state they are, what to ask the coordinators next, and what
their answers mean.

Answerable for the order of requests (a coordinator before what is asked of it, partitions before their
records, everything before the end), one at a time as in Kafka's Java producer, and for what an error does: it
passes, or the transaction can only be aborted, or the producer is finished. Knows nothing of batches but
whether there are any, and of nodes but their ids.

With transactions of version 2 (KIP-890) partitions join by being written to, offsets by being committed, and
each end brings the next epoch. Before, both are told to the coordinator, and after an error the producer asks
for an epoch itself.

Invariants: `EndTxn` leaves when no batch is open. An operation ends once; one that a caller stopped waiting
for goes on, and only the same call may be made until it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Any

from moldau.client.errors import AbortableError, FatalError, FencedError, InvalidConfigurationError, error_of
from moldau.client.producing.identity import NO_ID, Identity
from moldau.client.producing.operations import (
    Ask,
    GroupMetadata,
    Kind,
    OffsetAndMetadata,
    Operation,
    PreparedTransaction,
    State,
    Task,
)
from moldau.client.topology import TopicPartition
from moldau.wire.errors import ErrorCode, KafkaError, error_code
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from moldau.wire.schema import Message

_GROUP, _TRANSACTION = 0, 1
_ADD_PARTITIONS_BACKOFF_MS = 20
"""The transaction before is about to end: the first partition of the next need not wait for long."""
_TIMEOUT_MAX_MS = (1 << 31) - 1


class Transactions:
    def __init__(
        self,
        identity: Identity,
        transactional_id: str,
        timeout_ms: int,
        *,
        is_two_phase: bool = False,
        backoff_ms: int = 100,
        backoff_max_ms: int = 1000,
    ) -> None:
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.error: KafkaError | None = None
        self.is_v2 = False
        self.can_bump_epoch = True  # False with brokers before Kafka 2.5
        self.finished: list[Operation] = []
        self._identity = identity
        self._timeout_ms = timeout_ms
        self._is_two_phase = is_two_phase
        self._backoff_ms = backoff_ms
        self._backoff_max_ms = backoff_max_ms
        self._features_v2 = False
        self._queue: list[tuple[int, int, Task]] = []
        self._queued = 0
        self._in_flight: Task | None = None
        self._coordinators: dict[int, int | None] = {_GROUP: None, _TRANSACTION: None}
        self._group_id: str | None = None
        self._pending: tuple[Operation, State] | None = None
        self._epoch_bump_is_needed = False
        self._is_started = False  # the coordinator knows of the transaction
        self._new_partitions: dict[TopicPartition, None] = {}
        self._pending_partitions: dict[TopicPartition, None] = {}
        self._partitions: set[TopicPartition] = set()
        self._prepared: PreparedTransaction | None = None

    # What callers ask -------------------------------------------------------------------------------------

    def init(self, *, keep_prepared: bool = False) -> Operation:
        self._fail_if_error()
        if keep_prepared and not self._is_two_phase:
            raise ValueError("keeping a prepared transaction needs transaction.two.phase.commit.enable")

        def begin() -> Operation:
            self._require("init_transactions", State.UNINITIALIZED)
            self.state = State.INITIALIZING
            operation = Operation("init_transactions")
            self._enqueue(
                self._init_producer_id(Kind.INIT_PRODUCER_ID, operation, keep_prepared=keep_prepared)
            )
            return operation

        return self._cached("init_transactions", State.INITIALIZING, begin)

    def begin(self) -> None:
        self._fail_if_error()
        self._no_pending("begin_transaction")
        self._require("begin_transaction", State.READY)
        self.state = State.IN_TRANSACTION
        self.is_v2 = self._features_v2

    def prepare(self) -> PreparedTransaction:
        """After a flush: from here on the transaction waits for `complete`, however long."""
        self._fail_if_error()
        self._no_pending("prepare_transaction")
        if not self._is_two_phase:
            raise ValueError("prepare_transaction needs transaction.two.phase.commit.enable")
        self._require("prepare_transaction", State.IN_TRANSACTION)
        self.state = State.PREPARED
        self._prepared = PreparedTransaction(self._identity.producer_id, self._identity.producer_epoch)
        return self._prepared

    def complete(self, prepared: PreparedTransaction) -> Operation:
        """Commit the prepared transaction if it is this one, else abort it."""
        self._fail_if_error()
        if self.state is not State.PREPARED and self._pending is None:
            raise self._misused("complete_transaction")
        return self.commit() if prepared == self._prepared else self.abort()

    def commit(self) -> Operation:
        def begin() -> Operation:
            self._fail_if_error()
            self._require("commit_transaction", State.IN_TRANSACTION, State.PREPARED)
            self.state = State.COMMITTING
            return self._end(committed=True)

        return self._cached("commit_transaction", State.COMMITTING, begin)

    def abort(self) -> Operation:
        def begin() -> Operation:
            if self.state is not State.ABORTABLE_ERROR:
                self._fail_if_error()
            self._require("abort_transaction", State.IN_TRANSACTION, State.PREPARED, State.ABORTABLE_ERROR)
            cause, self.error = self.error, None
            self.state = State.ABORTING
            self._new_partitions.clear()
            return self._end(committed=False, cause=cause)

        return self._cached("abort_transaction", State.ABORTING, begin)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> Operation:
        self._fail_if_error()
        self._no_pending("send_offsets_to_transaction")
        self._require("send_offsets_to_transaction", State.IN_TRANSACTION)
        operation = Operation("send_offsets_to_transaction")
        if self.is_v2:
            self._is_started = True
            self._enqueue(self._commit_offsets(operation, dict(offsets), group))
        else:
            message = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.producer_epoch,
                group_id=group.group_id,
            )
            self._enqueue(
                Task(Kind.ADD_TO_TRANSACTION, operation, _TRANSACTION, message, dict(offsets), group)
            )
        return operation

    def add_partition(self, place: TopicPartition) -> None:
        """A record is about to be written there. Raises what forbids it."""
        if place in self._partitions and self.state is State.IN_TRANSACTION:
            return
        self._fail_if_error()
        self._no_pending("send")
        self._require("send", State.IN_TRANSACTION)
        if self.is_v2:
            self._partitions.add(place)
            self._is_started = True
        elif place not in self._pending_partitions:
            self._new_partitions[place] = None

    # What the sender asks ---------------------------------------------------------------------------------

    @property
    def is_completing(self) -> bool:
        return self.state in (State.COMMITTING, State.ABORTING)

    @property
    def is_ongoing(self) -> bool:
        return self.is_completing or self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR)

    @property
    def is_in_error(self) -> bool:
        return self.state in (State.ABORTABLE_ERROR, State.FATAL_ERROR)

    @property
    def is_fatal(self) -> bool:
        return self.state is State.FATAL_ERROR

    def may_send_to(self, place: TopicPartition) -> bool:
        return place in self._partitions and not self.is_fatal

    def reason_to_drop(self) -> KafkaError | None:
        """Why batches that have not left need not leave any more, if that is so."""
        if self.is_in_error:
            return self.error
        if self.state is State.ABORTING:
            return AbortableError(ErrorCode.OPERATION_NOT_ATTEMPTED, "the transaction was aborted")
        return None

    def on_batch_failed(self, error: KafkaError) -> None:
        if error.code in _FATAL_FOR_BATCHES:
            self._become_fatal(error)
        else:
            if self.can_bump_epoch and not self.is_v2 and not self.is_completing:
                self._epoch_bump_is_needed = True
            self._become_abortable(error)

    def on_sequences_lost(self) -> None:
        reason = "it is not known whether some records were written, and they cannot be sent again"
        error = AbortableError(ErrorCode.REQUEST_TIMED_OUT, reason)
        if self.can_bump_epoch or self.is_v2:
            self._epoch_bump_is_needed = not self.is_v2
            self._become_abortable(error)
        else:
            self._become_fatal(FatalError(ErrorCode.REQUEST_TIMED_OUT, reason))

    def on_features(self, transaction_version: int) -> None:
        """What the cluster has settled on; it counts from the next transaction on."""
        self._features_v2 = transaction_version >= 2

    def next_request(self, now_ms: int, *, has_batches: bool) -> Ask | None:
        """What to send now. `wakeup_ms` says when to ask again if there is nothing."""
        if self._in_flight is not None:
            return None
        if self._new_partitions and not self.is_in_error:
            self._enqueue(self._add_partitions())
        while self._queue:
            task = self._queue[0][2]
            if task.kind is Kind.END_TRANSACTION and has_batches:
                return None
            if self.is_in_error and not (
                task.kind is Kind.FIND_COORDINATOR and self.state is State.ABORTABLE_ERROR
            ):
                heappop(self._queue)
                self._finish(task.operation, self.error)
                continue
            if task.kind is Kind.END_TRANSACTION and not self._is_started:
                heappop(self._queue)
                self._complete_transaction(task.operation)
                continue
            if task.not_before_ms > now_ms:
                return None
            node_id = None
            if task.coordinator is not None:
                node_id = self._coordinator_for(task)
                if node_id is None:
                    continue  # the question who it is goes first
            heappop(self._queue)
            self._in_flight = task
            message = task.message
            assert message is not None
            return Ask(task, node_id, message, _RESPONSES[type(message)], self._version_max(message))
        return None

    @property
    def wakeup_ms(self) -> int | None:
        if self._in_flight is not None or not self._queue:
            return None
        return self._queue[0][2].not_before_ms

    @property
    def has_requests(self) -> bool:
        return bool(self._queue) or self._in_flight is not None

    def close(self, error: KafkaError) -> None:
        """Nobody will send anything any more."""
        while self._queue:
            self._finish(heappop(self._queue)[2].operation, error)
        if self._in_flight is not None:
            self._finish(self._in_flight.operation, error)
            self._in_flight = None
        if self._pending is not None:
            self._finish(self._pending[0], error)

    # Answers ----------------------------------------------------------------------------------------------

    def on_failure(self, now_ms: int, task: Task, error: KafkaError) -> None:
        """The request did not get through, or its answer did not."""
        assert task is self._in_flight
        self._in_flight = None
        if error.code.retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE:
            self._forget_coordinator(task)
            self._again(now_ms, task)
        else:
            self._fatal(task, error)

    def on_response(self, now_ms: int, task: Task, response: Message) -> None:
        assert task is self._in_flight
        self._in_flight = None
        match response:
            case FindCoordinatorResponse():
                self._on_coordinator(now_ms, task, response)
            case InitProducerIdResponse():
                self._on_producer_id(now_ms, task, response)
            case AddPartitionsToTxnResponse():
                self._on_partitions_added(now_ms, task, response)
            case AddOffsetsToTxnResponse():
                self._on_offsets_added(now_ms, task, response)
            case TxnOffsetCommitResponse():
                self._on_offsets_committed(now_ms, task, response)
            case EndTxnResponse():
                self._on_ended(now_ms, task, response)
            case _:
                raise AssertionError(f"no transactional response: {response}")

    def _on_coordinator(self, now_ms: int, task: Task, response: FindCoordinatorResponse) -> None:
        # From version 4 on a coordinator is one of a list.
        found = response.coordinators[0] if response.coordinators else response
        code = error_code(found.error_code)
        request = task.message
        assert isinstance(request, FindCoordinatorRequest)
        if code is ErrorCode.NONE:
            self._coordinators[request.key_type] = found.node_id
        elif code.retriable:
            self._again(now_ms, task)
        else:
            # Whoever waits for the coordinator hears of it when its turn comes: it ends in the same error.
            error = error_of(code, found.error_message or f"no coordinator for {request.key!r}")
            if code in (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTION_ABORTABLE):
                self._abortable(task, error)
            elif code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                self._not_initialized(task, error)
            else:
                self._fatal(task, error)

    def _on_producer_id(self, now_ms: int, task: Task, response: InitProducerIdResponse) -> None:
        code = error_code(response.error_code)
        if code is ErrorCode.NONE:
            self._identity.forget_unresolved()
            self._identity.become(response.producer_id, response.producer_epoch)
            self.error = None
            if response.ongoing_txn_producer_id != NO_ID:
                self.state = State.PREPARED
                self._prepared = PreparedTransaction(
                    response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch
                )
                self._is_started = True
                self.is_v2 = self._features_v2
            else:
                self.state = State.READY
            self._finish(task.operation)
        elif code in (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ):
            self._not_initialized(task, error_of(code))
        else:
            self._on_code(now_ms, task, code, "no producer id")

    def _on_partitions_added(self, now_ms: int, task: Task, response: AddPartitionsToTxnResponse) -> None:
        results = {
            TopicPartition(topic.name, result.partition_index): error_code(result.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        }
        refused: dict[TopicPartition, ErrorCode] = {}
        for place, code in results.items():
            if code is ErrorCode.NONE:
                continue
            if code is ErrorCode.CONCURRENT_TRANSACTIONS and not self._partitions:
                self._again(now_ms, task, _ADD_PARTITIONS_BACKOFF_MS)
                return
            if code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OPERATION_NOT_ATTEMPTED):
                refused[place] = code
            elif code.retriable or code in _DECISIVE:
                self._on_code(now_ms, task, code, f"partition {place} was not added to the transaction")
                return
            else:
                refused[place] = code
        for place in results:
            self._pending_partitions.pop(place, None)
        if refused:
            place, code = min(refused.items(), key=lambda item: item[1] is ErrorCode.OPERATION_NOT_ATTEMPTED)
            reason = f"partition {place} was not added to the transaction: {code.name}"
            self._abortable(task, AbortableError(code, reason))
        else:
            self._partitions |= results.keys()
            self._is_started = True
            self._finish(task.operation)

    def _on_offsets_added(self, now_ms: int, task: Task, response: AddOffsetsToTxnResponse) -> None:
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            self._on_code(now_ms, task, code, "offsets were not added to the transaction")
            return
        assert task.offsets is not None and task.group is not None
        self._is_started = True
        self._enqueue(self._commit_offsets(task.operation, task.offsets, task.group))

    def _on_offsets_committed(self, now_ms: int, task: Task, response: TxnOffsetCommitResponse) -> None:
        assert task.offsets is not None and task.group is not None
        left = task.offsets
        for topic in response.topics:
            for result in topic.partitions:
                place = TopicPartition(topic.name, result.partition_index)
                code = error_code(result.error_code)
                if code is ErrorCode.NONE:
                    left.pop(place, None)
                elif code in (
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    ErrorCode.NOT_COORDINATOR,
                    ErrorCode.REQUEST_TIMED_OUT,
                ):
                    self._coordinators[_GROUP] = None
                elif not code.retriable:
                    self._on_code(now_ms, task, code, f"the offset of {place} was not committed")
                    return
        if not left:
            self._finish(task.operation)
        else:
            task.message = self._commit_offsets(task.operation, left, task.group).message
            self._again(now_ms, task)

    def _on_ended(self, now_ms: int, task: Task, response: EndTxnResponse) -> None:
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            self._on_code(now_ms, task, code, "the transaction was not ended")
            return
        if response.producer_id != NO_ID:
            self._identity.forget_unresolved()
            self._identity.become(response.producer_id, response.producer_epoch)
        self._complete_transaction(task.operation)

    def _on_code(self, now_ms: int, task: Task, code: ErrorCode, reason: str) -> None:
        """What a code means wherever it has no meaning of its own."""
        if code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
            self._forget_coordinator(task)
            self._again(now_ms, task)
        elif code.retriable:
            self._again(now_ms, task)
        elif code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED):
            text = f"there is a newer producer with the transactional id {self.transactional_id!r}"
            self._fatal(task, FencedError(ErrorCode.PRODUCER_FENCED, text))
        elif code in (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            if self.can_bump_epoch or self.is_v2:
                self._epoch_bump_is_needed = True
                self._abortable(task, AbortableError(code, reason))
            else:
                self._fatal(task, FatalError(code, reason))
        elif code in _ABORTABLE:
            self._abortable(task, AbortableError(code, reason))
        else:
            self._fatal(task, FatalError(code, reason))

    # Changes of state -------------------------------------------------------------------------------------

    def _complete_transaction(self, operation: Operation) -> None:
        """It has ended; so has the operation, unless it takes a new epoch to go on."""
        self.error = None
        self._is_started = False
        self._prepared = None
        self._new_partitions.clear()
        self._pending_partitions.clear()
        self._partitions.clear()
        if self._epoch_bump_is_needed:
            self._epoch_bump_is_needed = False
            self.state = State.INITIALIZING
            self._enqueue(self._init_producer_id(Kind.BUMP_EPOCH, operation))
        else:
            self.state = State.READY
            self._finish(operation)

    def _become_abortable(self, error: KafkaError) -> None:
        if self.state in (State.ABORTING, State.FATAL_ERROR):
            return
        self.state = State.ABORTABLE_ERROR
        self.error = error

    def _become_fatal(self, error: KafkaError) -> None:
        self.state = State.FATAL_ERROR
        self.error = error
        if self._pending is not None:
            self._finish(self._pending[0], error)

    def _abortable(self, task: Task, error: KafkaError) -> None:
        if self.state is State.INITIALIZING:
            self._not_initialized(task, error)
            return
        self._finish(task.operation, error)
        if self.state is State.ABORTING and task.kind is Kind.END_TRANSACTION:
            self._become_fatal(error)  # the way out of all other errors has failed
        else:
            self._become_abortable(error)

    def _fatal(self, task: Task, error: KafkaError) -> None:
        self._finish(task.operation, error)
        self._become_fatal(error)

    def _not_initialized(self, task: Task, error: KafkaError) -> None:
        """A producer that has not begun may be allowed to yet."""
        for _, _, waiting in self._queue:
            self._finish(waiting.operation, error)
        self._queue.clear()
        self._finish(task.operation, error)
        if self.state is State.INITIALIZING and not self._identity.is_known:
            self.state = State.UNINITIALIZED
        else:
            self._become_fatal(error)

    def _finish(self, operation: Operation, error: KafkaError | None = None) -> None:
        if not operation.is_done:
            operation.is_done = True
            operation.error = error
            self.finished.append(operation)

    # Requests ---------------------------------------------------------------------------------------------

    def _end(self, *, committed: bool, cause: KafkaError | None = None) -> Operation:
        if self._new_partitions:
            self._enqueue(self._add_partitions())
        operation = Operation("commit_transaction" if committed else "abort_transaction")
        if cause is not None and cause.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            # The coordinator has forgotten this producer: there is nothing to end, only to begin anew.
            self._epoch_bump_is_needed = True
            self._complete_transaction(operation)
            return operation
        message = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            committed=committed,
        )
        self._enqueue(Task(Kind.END_TRANSACTION, operation, _TRANSACTION, message))
        return operation

    def _init_producer_id(self, kind: Kind, operation: Operation, *, keep_prepared: bool = False) -> Task:
        is_bump = kind is Kind.BUMP_EPOCH
        message = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=_TIMEOUT_MAX_MS if self._is_two_phase else self._timeout_ms,
            producer_id=self._identity.producer_id if is_bump else NO_ID,
            producer_epoch=self._identity.producer_epoch if is_bump else NO_ID,
            enable2_pc=self._is_two_phase,
            keep_prepared_txn=keep_prepared,
        )
        return Task(kind, operation, _TRANSACTION, message)

    def _add_partitions(self) -> Task:
        self._pending_partitions |= self._new_partitions
        self._new_partitions.clear()
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for place in self._pending_partitions:
            topic = topics.setdefault(place.topic, AddPartitionsToTxnTopic(name=place.topic))
            topic.partitions.append(place.partition)
        message = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._identity.producer_id,
            v3_and_below_producer_epoch=self._identity.producer_epoch,
            v3_and_below_topics=list(topics.values()),
        )
        return Task(Kind.ADD_TO_TRANSACTION, Operation("add partitions"), _TRANSACTION, message)

    def _commit_offsets(
        self, operation: Operation, offsets: dict[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> Task:
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for place, offset in offsets.items():
            topic = topics.setdefault(place.topic, TxnOffsetCommitRequestTopic(name=place.topic))
            topic.partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=place.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        message = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=list(topics.values()),
        )
        return Task(Kind.ADD_TO_TRANSACTION, operation, _GROUP, message, offsets, group)

    def _version_max(self, message: Message) -> int | None:
        match message:
            case AddPartitionsToTxnRequest():
                return 3  # later ones are for brokers
            case EndTxnRequest() | TxnOffsetCommitRequest():
                return None if self.is_v2 else 4
            case InitProducerIdRequest():
                return None if self._is_two_phase else 5
        return None

    def _coordinator_for(self, task: Task) -> int | None:
        """Who to send it to; if that is not known, the question goes into the queue."""
        assert task.coordinator is not None
        key = self.transactional_id
        if task.coordinator == _GROUP:
            assert task.group is not None
            key = task.group.group_id
            if self._group_id != key:
                self._group_id, self._coordinators[_GROUP] = key, None
        known = self._coordinators[task.coordinator]
        if known is None:
            message = FindCoordinatorRequest(key=key, key_type=task.coordinator)
            self._enqueue(Task(Kind.FIND_COORDINATOR, Operation("find a coordinator"), None, message))
        return known

    def _forget_coordinator(self, task: Task) -> None:
        if task.coordinator is not None:
            self._coordinators[task.coordinator] = None

    def _again(self, now_ms: int, task: Task, backoff_ms: int | None = None) -> None:
        if backoff_ms is None:
            backoff_ms = min(self._backoff_ms << min(task.attempts, 20), self._backoff_max_ms)
        task.attempts += 1
        task.not_before_ms = now_ms + backoff_ms
        self._enqueue(task)

    def _enqueue(self, task: Task) -> None:
        self._queued += 1
        heappush(self._queue, (task.kind, self._queued, task))

    # What may be called when ------------------------------------------------------------------------------

    def _cached(self, name: str, state: State, begin: Any) -> Operation:
        """The operation that is under way if the call is the same, else a new one."""
        if self._pending is not None and not self._pending[0].is_done:
            if self._pending[1] is not state:
                raise self._unfinished(name)
            return self._pending[0]
        operation: Operation = begin()
        self._pending = operation, state
        return operation

    def _no_pending(self, name: str) -> None:
        if self._pending is not None and not self._pending[0].is_done:
            raise self._unfinished(name)

    def _unfinished(self, name: str) -> RuntimeError:
        assert self._pending is not None
        return RuntimeError(f"{name} has to wait: {self._pending[0].name} has not ended yet")

    def _require(self, name: str, *states: State) -> None:
        if self.state not in states:
            raise self._misused(name)

    def _misused(self, name: str) -> RuntimeError:
        return RuntimeError(f"{name} is not possible: the producer is {self.state.value}")

    def _fail_if_error(self) -> None:
        if self.is_in_error:
            error = self.error
            assert error is not None
            if self.state is State.FATAL_ERROR:
                if isinstance(error, (FatalError, InvalidConfigurationError)):
                    raise error
                raise FatalError(error.code, error.message)
            raise AbortableError(error.code, error.message)


_RESPONSES: dict[type[Message], type[Message]] = {
    FindCoordinatorRequest: FindCoordinatorResponse,
    InitProducerIdRequest: InitProducerIdResponse,
    AddPartitionsToTxnRequest: AddPartitionsToTxnResponse,
    AddOffsetsToTxnRequest: AddOffsetsToTxnResponse,
    TxnOffsetCommitRequest: TxnOffsetCommitResponse,
    EndTxnRequest: EndTxnResponse,
}

_FATAL_FOR_BATCHES = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
_ABORTABLE = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
_DECISIVE = _ABORTABLE | {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
"""Codes of a partition that speak of the whole producer."""
