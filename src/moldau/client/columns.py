"""Records side by side, as `send_batch` takes them: values, keys, headers and timestamps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from moldau.client.producing.batch import RECORD_OVERHEAD, Headers
from moldau.client.serializers import Serializer, bytes_serializer
from moldau.records.columns import headers_size
from moldau.records.record import Header

T = TypeVar("T")

_AS_THEY_ARE = {bytes, type(None)}


class Columns:
    """Records side by side; None for a column that has nothing in it."""

    __slots__ = ("headers", "keys", "timestamps", "values")

    def __init__(
        self,
        values: Sequence[Any],
        keys: Sequence[Any] | None,
        headers: Sequence[Headers] | Sequence[Sequence[Header]] | None,
        timestamps: Sequence[int] | None,
    ) -> None:
        self.values = values if type(values) is list else list(values)
        self.keys = None if keys is None else list(keys)
        self.headers: list[Headers] | None = None if headers is None else [tuple(each) for each in headers]
        self.timestamps = None if timestamps is None else list(timestamps)
        for column in (self.keys, self.headers, self.timestamps):
            if column is not None and len(column) != len(self.values):
                raise ValueError(f"columns of {len(self.values)} and {len(column)} records")

    def __len__(self) -> int:
        return len(self.values)

    def at(self, numbers: Sequence[int]) -> Columns:
        def chosen(column: Sequence[T] | None) -> list[T] | None:
            return None if column is None else [column[number] for number in numbers]

        return Columns(
            [self.values[number] for number in numbers],
            chosen(self.keys),
            chosen(self.headers),
            chosen(self.timestamps),
        )

    def record(self, number: int) -> tuple[Any, Any, Headers]:
        key = None if self.keys is None else self.keys[number]
        return key, self.values[number], () if self.headers is None else self.headers[number]

    def sizes(self) -> list[int]:
        sizes = _sizes(self.values, RECORD_OVERHEAD)
        if self.keys is not None:
            sizes = [size + more for size, more in zip(sizes, _sizes(self.keys, 0), strict=True)]
        if self.headers is not None:
            sizes = [size + headers_size(each) for size, each in zip(sizes, self.headers, strict=True)]
        return sizes


def _sizes(column: list[Any], overhead: int) -> list[int]:
    if None in column:
        return [overhead if each is None else overhead + len(each) for each in column]
    return [overhead + size for size in map(len, column)]


def serialized(topic: str, column: list[Any], serializer: Serializer | None) -> list[bytes | None]:
    if serializer is not None:
        return [serializer(topic, each) for each in column]
    if set(map(type, column)) <= _AS_THEY_ARE:
        return column
    return [bytes_serializer(topic, each) for each in column]
