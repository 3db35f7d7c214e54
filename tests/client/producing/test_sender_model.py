"""The rules of a producer against brokers that fail in every way: nothing is lost without a word, nothing is
written twice, order is kept, memory comes back, and every record has an outcome in time."""

from __future__ import annotations

from random import Random

import pytest
from model_cluster import Faults, ModelCluster

from moldau.client.producing.batch import ProducerBatch
from moldau.client.producing.config import ProducerConfig
from moldau.client.producing.identity import Identity
from moldau.client.producing.sender import Sender
from moldau.config.option import Problem
from moldau.wire.errors import ErrorCode
from moldau.wire.produce import PartitionResult

DELIVERY_TIMEOUT_MS = 20_000


def sender(seed: int, **options: object) -> Sender:
    texts = {name.replace("_", "."): str(value) for name, value in options.items()}
    texts.setdefault("delivery.timeout.ms", str(DELIVERY_TIMEOUT_MS))
    texts.setdefault("batch.size", "300")
    problems: list[Problem] = []
    config = ProducerConfig.parse(texts, problems)
    assert not problems
    identity = Identity(is_transactional=False) if config.enable_idempotence else None
    return Sender(config, Random(seed), identity=identity)


Sent = list[tuple[int, bytes, ProducerBatch, int]]


def write(cluster: ModelCluster, count: int, random: Random, first: int = 0) -> Sent:
    """Records in bursts and trickles, to all partitions."""
    sent: Sent = []
    for number in range(first, first + count):
        partition = random.randrange(len(cluster.partitions))
        value = b"%06d" % number + b"x" * random.randrange(60)
        sent.append((partition, value, *cluster.append(partition, value)))
        if random.random() < 0.2:
            cluster.run(cluster.now_ms + random.choice((0, 1, 5, 50, 400)))
    cluster.run()
    return sent


def check_outcomes(cluster: ModelCluster, sent: Sent) -> dict[int, list[tuple[bytes, bool]]]:
    """What holds with or without numbers; by partition, what was sent and whether it was acknowledged."""
    told: dict[int, list[tuple[bytes, bool]]] = {index: [] for index in range(len(cluster.partitions))}
    for partition, value, first, number in sent:
        batch, index = first.locate(number)
        assert batch.is_done
        assert cluster.finished_at[batch] - batch.created_ms <= DELIVERY_TIMEOUT_MS
        error = batch.error_of_record(index)
        told[partition].append((value, error is None))
        if error is None and batch.base_offset >= 0:
            assert cluster.partitions[partition].values[batch.base_offset + index] == value
        elif error is None:
            assert value in cluster.partitions[partition].values
    assert cluster.sender.accumulator.used == 0
    assert not cluster.sender.accumulator.active
    assert not cluster.sender.accumulator.incomplete
    assert not cluster.sender.flights
    assert all(node.flights == 0 for node in cluster.sender.nodes.values())
    return told


def check_exactly_once(cluster: ModelCluster, sent: Sent) -> None:
    for index, told in check_outcomes(cluster, sent).items():
        written = cluster.partitions[index].values
        assert len(set(written)) == len(written), "written twice"
        assert {value for value, is_told in told if is_told} <= set(written), "lost without a word"
        assert written == sorted(written), "out of order"  # values begin with their number


STORMS = {
    "calm": Faults(),
    "lost answers": Faults(lost_answer=0.2, lost_request=0.1),
    "errors": Faults(error=0.3),
    "moving leaders": Faults(leader_change=0.2),
    "no way in": Faults(no_connection=0.5, no_metadata=0.5, lost_request=0.2),
    "everything": Faults(
        lost_answer=0.1, lost_request=0.1, error=0.15, leader_change=0.1, no_metadata=0.2, no_connection=0.2
    ),
    "slow": Faults(latency_ms=(200, 9_000), lost_answer=0.1, error=0.1),
    "hopeless": Faults(latency_ms=(100, 4_000), lost_request=0.5, error=0.4),
    "small batches only": Faults(batch_bytes_max=150, error=0.1),
}


@pytest.mark.parametrize("storm", STORMS)
@pytest.mark.parametrize("seed", range(25))
def test_exactly_once_and_in_order(seed: int, storm: str) -> None:
    cluster = ModelCluster(sender(seed), seed)
    cluster.faults = STORMS[storm]
    sent = write(cluster, 150, Random(seed))
    check_exactly_once(cluster, sent)
    if storm == "calm":
        assert all(told for each in check_outcomes(cluster, sent).values() for _, told in each)


@pytest.mark.parametrize("seed", range(25))
def test_batches_that_are_refused_for_good_do_not_stop_those_behind(seed: int) -> None:
    cluster = ModelCluster(sender(seed), seed)
    cluster.faults = Faults(error_for_good=0.15, error=0.1, lost_answer=0.05)
    sent = write(cluster, 150, Random(seed))
    check_exactly_once(cluster, sent)
    cluster.faults = Faults()
    assert all(
        batch.locate(index)[0].error is None for _, _, batch, index in write(cluster, 20, Random(seed), 150)
    )


@pytest.mark.parametrize("seed", range(25))
def test_brokers_that_forget_the_producer_cost_no_record(seed: int) -> None:
    """What is lost with the numbers is only that a repetition is told from a record."""
    cluster = ModelCluster(sender(seed), seed)
    cluster.faults = Faults(forgotten_producer=0.1, error=0.05)
    sent = write(cluster, 150, Random(seed))
    for index, told in check_outcomes(cluster, sent).items():
        assert {value for value, is_told in told if is_told} <= set(cluster.partitions[index].values)


@pytest.mark.parametrize("seed", range(25))
def test_order_without_numbers_takes_one_request_at_a_time(seed: int) -> None:
    options = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
    cluster = ModelCluster(sender(seed, **options), seed)
    cluster.faults = Faults(error=0.2, lost_answer=0.1)
    sent = write(cluster, 150, Random(seed))
    for index, told in check_outcomes(cluster, sent).items():
        acknowledged = [value for value, is_told in told if is_told]
        written = cluster.partitions[index].values
        firsts = sorted(set(written), key=written.index)
        assert set(acknowledged) <= set(firsts)
        assert firsts == sorted(firsts)


@pytest.mark.parametrize("seed", range(25))
def test_at_least_once_without_numbers(seed: int) -> None:
    cluster = ModelCluster(sender(seed, enable_idempotence=False), seed)
    cluster.faults = STORMS["everything"]
    sent = write(cluster, 150, Random(seed))
    check_outcomes(cluster, sent)


def test_no_retries_means_one_attempt() -> None:
    cluster = ModelCluster(sender(1, enable_idempotence=False, retries=0), 1)
    cluster.faults = Faults(error=1.0)
    sent = write(cluster, 30, Random(1))
    check_outcomes(cluster, sent)
    assert all(not batch.attempts and batch.error is not None for _, _, batch, _ in sent)


def test_the_last_epoch_is_followed_by_another_id() -> None:
    cluster = ModelCluster(sender(3), 3)
    sent = write(cluster, 5, Random(3))
    assert cluster.sender.identity is not None
    cluster.sender.identity.become(1, (1 << 15) - 1)
    cluster.faults = Faults(error_for_good=0.5)
    sent += write(cluster, 60, Random(3), 5)
    check_exactly_once(cluster, sent)
    assert cluster.sender.identity.producer_id > 1


@pytest.mark.parametrize(
    "code", [code for code in ErrorCode if code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]
)
def test_every_error_code_leads_to_an_outcome(code: ErrorCode) -> None:
    cluster = ModelCluster(sender(1), 1)
    append = cluster._append
    answers = [code, code]

    def answer(node: int, index: int, data: bytes) -> PartitionResult:
        if not answers:
            return append(node, index, data)
        return PartitionResult(index, answers.pop())

    cluster._append = answer  # type: ignore[method-assign]
    check_exactly_once(cluster, write(cluster, 40, Random(1)))
