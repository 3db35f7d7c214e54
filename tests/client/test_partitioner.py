from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from moldau.client.partitioner import StickyPartitioner, murmur2, partition_of_key


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


def test_records_without_key_stick_until_switched() -> None:
    partitioner = StickyPartitioner(Random(3))
    first = partitioner.partition(None, 5)
    assert {partitioner.partition(None, 5) for _ in range(10)} == {first}
    partitioner.switch(5)
    second = partitioner.partition(None, 5)
    assert second != first
    assert partitioner.partition(b"foobar", 5) == partition_of_key(b"foobar", 5)
    assert partitioner.partition(None, 1) == 0
