"""What transactional producers do, one after another, at two nodes: Kafka's and ours.

Answers for asking both under the producer ids that each has given out, for comparing every answer, and what
both have written in the end: the records of a transactional id in `__transaction_state`, and the markers in
the partitions, are the same field by field, but for times and ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import ndiff
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from moldau.coordinator.placement import partition_of
from moldau.coordinator.record import encode_key, encode_value
from moldau.records.batch import iterate_headers
from moldau.records.control import read_end_txn_marker
from moldau.records.record import read_records
from moldau.txn.records import RECORD_TYPES
from moldau.wire.errors import ErrorCode
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.describe_transactions import DescribeTransactionsRequest
from moldau.wire.messages.end_txn import EndTxnRequest
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.list_transactions import ListTransactionsResponse
from moldau.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.wire.schema import Message
from tests.support.beside import TIMEOUT_S, Pair, Peer, compare
from tests.support.node import unique_name
from tests.support.two_nodes import kafka_and_moldau

STATE_PARTITIONS = 3
PARTITIONS = 3
TOPIC = "numbers"
OPTIONS = {
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.two.phase.commit.enable": "true",
    "unstable.api.versions.enable": "true",
    "offsets.topic.num.partitions": "1",
}
TIMES = (
    "transaction_start_time_ms",
    "transaction_last_update_timestamp_ms",
    "transaction_start_timestamp_ms",
)
_SAFE_DOWNGRADE = 2
_SHOWN_MAX = 30
Producer = tuple[int, int]


class Nodes(NamedTuple):
    pair: Pair
    data_dirs: tuple[Path, Path]

    def begin(self, transaction_version: int = 2) -> Story:
        for peer in self.pair:
            update = FeatureUpdateKey(
                feature="transaction.version",
                max_version_level=transaction_version,
                upgrade_type=_SAFE_DOWNGRADE,
            )
            peer.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)
            update.upgrade_type = 1
            peer.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)
        return Story(self, unique_name("transactions"))


@contextmanager
def two_nodes(root: Path) -> Iterator[Nodes]:
    with kafka_and_moldau(root, OPTIONS) as (pair, data_dirs):
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        for peer in pair:
            peer.ask(CreateTopicsRequest(topics=[topic]), 7)
            peer.topic_id(TOPIC)
            # For a while Kafka has no producer id to give.
            request = InitProducerIdRequest(transactional_id=None)
            _until(peer, request, 5, lambda answer: not answer.error_code)
        yield Nodes(pair, data_dirs)


class Teller:
    """One of the nodes, and what it has told the producers."""

    def __init__(self, peer: Peer, data_dir: Path) -> None:
        self.peer = peer
        self.data_dir = data_dir
        self.producers: dict[str, Producer] = {}
        self._names: dict[int, str] = {}

    def producer(self, name: str) -> Producer:
        """By a name, with the distance to its epoch behind it: "alice", "alice-1"."""
        if name in ("", "nobody"):
            return (-1, -1) if not name else (987_654, 3)
        name, sign, distance = name.partition("-")
        producer_id, epoch = self.producers[name]
        return producer_id, epoch - int(distance) if sign else epoch

    def plain(self, answer: Any) -> Any:
        return self._own(self.peer.plain(answer))

    def _own(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._own(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {
            name: self.id_name(each)
            if name.endswith("producer_id")
            else each > 0
            if name in TIMES
            else self._own(each)
            for name, each in value.items()
        }

    def id_name(self, producer_id: int) -> str:
        if producer_id < 0:
            return str(producer_id)
        return self._names.setdefault(producer_id, f"id {len(self._names)}")


class Story:
    """Also a context manager: at the end of a story nothing of it may have been different."""

    def __init__(self, nodes: Nodes, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._tellers = [
            Teller(peer, directory) for peer, directory in zip(nodes.pair, nodes.data_dirs, strict=True)
        ]
        self._found: list[str] = []
        self._find_coordinator()

    def __enter__(self) -> Story:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.settle()
            self._found += self._differently_written()
        if self._found:
            raise AssertionError("\n".join([f"{len(self._found)} differences", *self._found[:_SHOWN_MAX]]))

    # ------------------------------------------------------------ asking

    def init(self, name: str = "alice", *, expected: str = "", version: int = 5, **fields: Any) -> Any:
        """`name` is the producer from here on, if it is told of an id."""

        def request(teller: Teller) -> Message:
            producer_id, epoch = teller.producer(expected)
            return InitProducerIdRequest(
                transactional_id=self.transactional_id,
                producer_id=producer_id if version >= 3 else -1,
                producer_epoch=epoch if version >= 3 else -1,
                **{"transaction_timeout_ms": 60_000, **fields},
            )

        return self._ask(request, version, name)

    def add(self, name: str, *indexes: int, version: int = 3, topic: str = TOPIC) -> Any:
        def request(teller: Teller) -> Message:
            producer_id, epoch = teller.producer(name)
            return AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
            )

        return self._ask(request, version)

    def add_as_broker(self, name: str, *indexes: int, verify: bool = False, version: int = 5) -> Any:
        def request(teller: Teller) -> Message:
            producer_id, epoch = teller.producer(name)
            return AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnTransaction(
                        transactional_id=self.transactional_id,
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        verify_only=verify,
                        topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(indexes))],
                    )
                ]
            )

        return self._ask(request, version)

    def add_offsets(self, name: str, *, version: int = 4) -> Any:
        def request(teller: Teller) -> Message:
            producer_id, epoch = teller.producer(name)
            return AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id="g",
            )

        return self._ask(request, version)

    def end(self, name: str, *, commit: bool = True, version: int = 5, by: str = "") -> Any:
        """`by` is what the producer goes by afterwards; nothing else than `name` unless it is given."""

        def request(teller: Teller) -> Message:
            producer_id, epoch = teller.producer(name)
            return EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=commit,
            )

        return self._ask(request, version, by)

    def show(self) -> Any:
        return self._ask(lambda _: DescribeTransactionsRequest(transactional_ids=[self.transactional_id]), 0)

    def ask(self, request: Message, version: int) -> Any:
        """Of transactions that are listed, this story's counts."""
        return self._ask(lambda _: request, version)

    def _ask(self, request: Any, version: int, given_to: str = "") -> Any:
        """Kafka's answer. Whatever is being completed has come to its end before, as that takes time
        there."""
        self.settle()
        answers = []
        for teller in self._tellers:
            asked = request(teller)
            answer: Any = teller.peer.ask(asked, version)
            if given_to and getattr(answer, "producer_id", -1) >= 0:
                teller.producers[given_to] = answer.producer_id, answer.producer_epoch
            if isinstance(answer, ListTransactionsResponse):
                answer.transaction_states = [
                    each
                    for each in answer.transaction_states
                    if each.transactional_id == self.transactional_id
                ]
            answers.append(teller.plain(answer))
        self._found += [f"v{version} of {asked!r:.300}: {each}" for each in compare(*answers)]
        return answers[0]

    def settle(self) -> None:
        describe = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        for teller in self._tellers:
            _until(
                teller.peer,
                describe,
                0,
                lambda it: not it.transaction_states[0].transaction_state.startswith("Prep"),
            )

    def wait_for(self, state: str) -> None:
        describe = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        for teller in self._tellers:
            _until(teller.peer, describe, 0, lambda it: it.transaction_states[0].transaction_state == state)

    def _find_coordinator(self) -> None:
        find = FindCoordinatorRequest(coordinator_keys=[self.transactional_id], key_type=1)
        describe = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        for teller in self._tellers:
            _until(teller.peer, find, 4, lambda answer: not answer.coordinators[0].error_code)
            _until(
                teller.peer,
                describe,
                0,
                lambda it: it.transaction_states[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            )

    # ------------------------------------------------------------ what was written

    def _differently_written(self) -> list[str]:
        theirs, ours = ([*self._records(each), *self._markers(each)] for each in self._tellers)
        return [f"written: {line}" for line in ndiff(theirs, ours) if line[0] in "+-"]

    def _records(self, teller: Teller) -> Iterator[str]:
        index = partition_of(self.transactional_id, STATE_PARTITIONS)
        for data, position, header in _batches(teller.data_dir / f"__transaction_state-{index}"):
            for record in read_records(data[position : position + header.size]):
                decoded = RECORD_TYPES.decode(record.key or b"", record.value)
                assert decoded is not None
                assert encode_key(decoded) == record.key
                assert encode_value(decoded) == record.value
                key: Any = decoded.key
                if key.transactional_id == self.transactional_id:
                    yield f"{teller.plain(decoded.value)} in version {decoded.version}"

    def _markers(self, teller: Teller) -> Iterator[str]:
        known = {producer_id for producer_id, _ in teller.producers.values()}
        for index in range(PARTITIONS):
            for data, position, header in _batches(teller.data_dir / f"{TOPIC}-{index}"):
                if header.is_control and header.producer_id in known:
                    (record,) = read_records(data[position : position + header.size])
                    yield (
                        f"in {index}: {read_end_txn_marker(record)} of {teller.id_name(header.producer_id)} "
                        f"in epoch {header.producer_epoch}"
                    )


def _until(peer: Peer, request: Message, version: int, is_enough: Callable[[Any], bool]) -> None:
    deadline = monotonic() + TIMEOUT_S
    while not is_enough(answer := peer.ask(request, version)):
        assert monotonic() < deadline, f"still {answer!r}"


def _batches(directory: Path) -> Iterator[tuple[memoryview, int, Any]]:
    for segment in sorted(directory.glob("*.log")):
        data = memoryview(segment.read_bytes())
        for position, header in iterate_headers(data):
            yield data, position, header
