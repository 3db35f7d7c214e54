"""The hash of a key is Java's: clients and Kafka's brokers look where we do."""

from __future__ import annotations

import pytest

from moldau.coordinator.placement import partition_of

# What String.hashCode gives, and Kafka's Utils.abs makes of it.
HASHES = {
    "": 0,
    "a": 97,
    "hello": 99162322,
    "gold-classic": 382745637,
    "my-group": 1906497762,  # whose hash is negative, as every other one is
    "orders-consumer": 1204742690,
    "polygenelubricants": 0,  # the most negative int
    "Größe": 69209585,
    "𝄞clef": 463595828,  # a pair of surrogates
}


@pytest.mark.parametrize(("key", "code"), HASHES.items())
def test_the_partition_is_that_of_java_s_hash(key: str, code: int) -> None:
    assert partition_of(key, 1 << 31) == code
    assert partition_of(key, 50) == code % 50
