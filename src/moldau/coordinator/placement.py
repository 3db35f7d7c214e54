"""Which partition of its topic a coordinator keeps something in: Kafka's hash of the key, as both must
agree."""

from __future__ import annotations

from functools import lru_cache
from struct import iter_unpack


@lru_cache(maxsize=1 << 16)
def partition_of(key: str, partition_count: int) -> int:
    """Java's hash of the string, without its sign, modulo the partitions. Of the most negative number Kafka
    makes zero."""
    code = 0
    if key.isascii():
        for unit in key.encode():
            code = (31 * code + unit) & 0xFFFFFFFF
    else:
        for (unit,) in iter_unpack("<H", key.encode("utf-16-le", "surrogatepass")):
            code = (31 * code + unit) & 0xFFFFFFFF
    return (code if code < 1 << 31 else (1 << 32) - code) % (1 << 31) % partition_count
