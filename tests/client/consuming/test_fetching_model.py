"""What is handed out, whatever happens to brokers, requests and sessions."""

from __future__ import annotations

from random import Random

import pytest

from moldau.client.config import ConnectionConfig
from moldau.client.consuming.config import ConsumerConfig
from moldau.client.consuming.machine import Machine
from moldau.wire.errors import ErrorCode, KafkaError
from tests.client.consuming.model_brokers import NODES, Brokers, place

PARTITIONS = 4


def made(seed: int, **options: object) -> tuple[Random, Machine, Brokers]:
    random = Random(seed)
    texts = {name.replace("_", "."): str(value) for name, value in options.items()}
    machine = Machine(
        ConsumerConfig.parse({"auto.offset.reset": "earliest", **texts}, []),
        ConnectionConfig.parse({"bootstrap.servers": "model"}, []),
        spread=lambda: random.uniform(0.8, 1.2),
        member_id="",
        assignors=(),
    )
    return random, machine, Brokers(random, machine, PARTITIONS)


class Reader:
    """Takes what there is, and holds that nothing is missing."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.next = dict.fromkeys(range(PARTITIONS), 0)

    def take(self, limit: int) -> int:
        count = 0
        for partition, columns in self.machine.take(limit):
            index = partition.place.partition
            numbers = [int((value or b"").split(b".")[0]) for value in columns.values]
            assert columns.offsets == numbers
            assert numbers == list(range(self.next[index], self.next[index] + len(numbers)))
            self.next[index] += len(numbers)
            assert partition.position == self.next[index] or not numbers
            count += len(numbers)
        assert count <= limit
        return count


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_skipped_or_doubled(seed: int) -> None:
    random, machine, brokers = made(
        seed,
        max_partition_fetch_bytes=Random(seed).choice((100, 300, 5000)),
        prefetch_max_bytes=Random(seed).choice((200, 1000, 1 << 20)),
    )
    machine.assign(place(index) for index in range(PARTITIONS))
    reader = Reader(machine)
    for _ in range(150):
        log = random.choice(brokers.logs)
        match random.randrange(10):
            case 0:
                log.leader, log.epoch = random.choice((*NODES, 0)), log.epoch + 1
            case 1:
                brokers.sessions.clear()
            case 2:
                brokers.nearer = random.choice((0, *NODES))
            case 3:
                index = random.randrange(PARTITIONS)
                machine.positions[place(index)].is_paused ^= True
            case 4:
                index = random.randrange(PARTITIONS)
                if machine.positions[place(index)].position >= 0:
                    reader.next[index] = random.randint(0, reader.next[index])
                    machine.positions.seek(place(index), reader.next[index])
            case _ if log.leader:
                log.append(random)
        brokers.run(random.randint(1, 6))
        reader.take(random.choice((1, 3, 1000)))
        biggest = max((len(batch) for each in brokers.logs for _, _, batch in each.batches), default=0)
        flights = len(NODES) * PARTITIONS
        assert machine.fetching.bytes_waiting <= machine.config.prefetch_max_bytes + flights * biggest
    for log in brokers.logs:
        log.leader, log.epoch = log.leader or 1, log.epoch + 1
    for partition in machine.positions.partitions.values():
        partition.is_paused = False
    brokers.failure_rate = 0
    for _ in range(400):
        brokers.run(5)
        reader.take(1000)
        if reader.next == {index: log.end for index, log in enumerate(brokers.logs)}:
            break
    else:
        raise AssertionError(f"{reader.next} of {[log.end for log in brokers.logs]}")
    brokers.run(30)
    assert machine.fetching.bytes_waiting == 0
    assert machine.failure is None


def test_a_session_tells_changes_only() -> None:
    random, machine, brokers = made(1)
    machine.assign(place(index) for index in range(PARTITIONS))
    brokers.failure_rate = 0
    reader = Reader(machine)
    for _ in range(200):
        random.choice(brokers.logs).append(random)
        brokers.run(3)
        reader.take(1000)
    assert brokers.incremental > 50


def test_what_was_cut_off_is_read_again_as_it_is_now() -> None:
    random, machine, brokers = made(3)
    brokers.failure_rate = 0
    machine.assign([place(0)])
    log = brokers.logs[0]
    for _ in range(5):
        log.append(random)
    brokers.run(200)
    taken = machine.take(1000)
    assert taken[-1][0].position == log.end
    # An unclean election: the last two batches are lost, and others come in their place.
    cut, _, _ = log.batches[-2]
    del log.batches[-2:]
    log.end, log.leader, log.epoch = cut, 2, log.epoch + 1
    while log.end <= taken[-1][0].position:
        log.append(random)
    brokers.run(300)
    again = machine.take(1000)
    assert [columns.offsets[0] for _, columns in again] == [cut]
    assert again[0][1].values[0] == b"%d.1" % cut


@pytest.mark.parametrize("reset", ["none", "latest"])
def test_an_offset_that_there_is_not(reset: str) -> None:
    _, machine, brokers = made(4, auto_offset_reset=reset)
    brokers.failure_rate = 0
    machine.assign([place(0)])
    machine.positions.seek(place(0), 100)
    brokers.run(100)
    if reset == "none":
        with pytest.raises(KafkaError) as caught:
            machine.take(10)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    else:
        assert machine.positions[place(0)].position == 0


def test_who_asks_for_one_partition_is_not_kept_waiting_by_the_others() -> None:
    random, machine, brokers = made(5, prefetch_max_bytes=1000, max_partition_fetch_bytes=300)
    brokers.failure_rate = 0
    machine.assign(place(index) for index in range(PARTITIONS))
    for log in brokers.logs:
        for _ in range(30):
            log.append(random)
    found = 0
    for _ in range(300):
        brokers.run(5)
        for partition, columns in machine.take(1000, [place(2)]):
            assert partition.place == place(2)
            found += len(columns)
    assert found == brokers.logs[2].end
    assert all(machine.positions[place(index)].position == 0 for index in (0, 1, 3))
