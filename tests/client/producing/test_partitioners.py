from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from moldau.client.producing.partitioners import RoundRobin, StickyPartitioner, murmur2, partition_of_key


@given(st.binary(max_size=50))
def test_the_hash_is_that_of_other_clients(data: bytes) -> None:
    assert murmur2(data) & 0x7FFFFFFF == reference(data) & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("key", "hashed"), [(b"21", -973932308), (b"foobar", -790332482), (b"abc", 479470107)]
)
def test_the_hash_is_that_of_the_java_client(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


@given(st.binary(), st.integers(1, 100))
def test_partitions_exist(key: bytes, count: int) -> None:
    assert 0 <= partition_of_key(key, count) < count


def test_a_partition_is_left_after_a_full_batch_or_after_two() -> None:
    sticky = StickyPartitioner(Random(3), 100)
    batches = [SimpleNamespace(size=size) for size in (60, 99, 100, 90)]
    assert not sticky.on_batch(batches[0], is_complete=False)
    batches[0].size = 99  # it went on, and left before it was full
    assert not sticky.on_batch(batches[1], is_complete=False)
    assert sticky.on_batch(batches[1], is_complete=True)
    sticky.switch([0, 1], None)
    assert sticky.on_batch(batches[2], is_complete=True)
    sticky.switch([0, 1], None)
    for _ in range(2):
        assert not sticky.on_batch(SimpleNamespace(size=90), is_complete=False)
    assert not sticky.on_batch(batches[3], is_complete=False)
    assert sticky.on_batch(batches[0], is_complete=False)


def test_longer_queues_get_less() -> None:
    sticky = StickyPartitioner(Random(3), 100)
    counts = [0, 0, 0]
    for _ in range(3000):
        sticky.switch([0, 1, 2], [0, 1, 3])
        counts[sticky.partition] += 1
    assert counts[0] > counts[1] > counts[2] > 0
    assert 4 / 8 - 0.05 < counts[0] / 3000 < 4 / 8 + 0.05  # one more than the longest queue has what is free


def test_equal_queues_get_equally_much() -> None:
    sticky = StickyPartitioner(Random(3), 100)
    counts = [0, 0]
    for _ in range(2000):
        sticky.switch([4, 7], [2, 2])
        counts[(4, 7).index(sticky.partition)] += 1
    assert 900 < counts[0] < 1100


def test_round_robin_goes_through_all_partitions_of_each_topic() -> None:
    turn = RoundRobin()
    assert [turn("a", b"k", 3) for _ in range(4)] == [0, 1, 2, 0]
    assert turn("b", None, 3) == 0
