"""The values of records, as kafka-producer-perf-test makes them: random capital letters, lines of a file in a
random order, or the record's number."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol

_LETTERS = bytes(ord("A") + byte % 26 for byte in range(256))


class Payloads(Protocol):
    def take(self, first: int, count: int) -> list[bytes]:
        """Those of the records from number `first` on."""
        ...


class RandomLetters:
    def __init__(self, size: int, random: Random) -> None:
        self._size = size
        self._random = random

    def take(self, first: int, count: int) -> list[bytes]:
        size = self._size
        letters = self._random.randbytes(size * count).translate(_LETTERS)
        return (
            [letters[start : start + size] for start in range(0, size * count, size)]
            if size
            else [b""] * count
        )


class Choice:
    def __init__(self, values: Sequence[bytes], random: Random) -> None:
        assert values
        self._values = values
        self._random = random

    def take(self, first: int, count: int) -> list[bytes]:
        return self._random.choices(self._values, k=count)


class Monotonic:
    def take(self, first: int, count: int) -> list[bytes]:
        return [b"%d" % number for number in range(first, first + count)]


def split_payloads(text: str, delimiter: str) -> list[bytes]:
    """As Java splits: what is empty at the end does not count."""
    parts = text.split(delimiter)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return [part.encode() for part in parts]
