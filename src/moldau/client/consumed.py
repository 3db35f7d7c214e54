"""What a consumer hands out: records one by one, or columns of many at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from moldau.records.record import Header

if TYPE_CHECKING:
    import pyarrow


class ConsumerRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: tuple[Header, ...]


class ConsumerBatch:
    """Records of one partition, side by side: all of the columns have one length."""

    __slots__ = ("headers", "keys", "offsets", "partition", "timestamps_ms", "topic", "values")

    def __init__(
        self,
        topic: str,
        partition: int,
        offsets: Sequence[int],
        timestamps_ms: Sequence[int],
        keys: Sequence[Any],
        values: Sequence[Any],
        headers: Sequence[tuple[Header, ...]],
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offsets = offsets
        self.timestamps_ms = timestamps_ms
        self.keys = keys
        self.values = values
        self.headers = headers

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        columns = zip(
            repeat(self.topic, len(self.offsets)),
            repeat(self.partition),
            self.offsets,
            self.timestamps_ms,
            self.keys,
            self.values,
            self.headers,
            strict=False,  # the second never ends
        )
        return map(partial(tuple.__new__, ConsumerRecord), columns)


def arrow_table(batches: Iterable[ConsumerBatch]) -> pyarrow.Table:
    """The batches as one table of Arrow's; needs pyarrow."""
    import pyarrow

    header = pyarrow.struct([("name", pyarrow.string()), ("value", pyarrow.binary())])
    schema = pyarrow.schema(
        [
            ("topic", pyarrow.dictionary(pyarrow.int32(), pyarrow.string())),
            ("partition", pyarrow.int32()),
            ("offset", pyarrow.int64()),
            ("timestamp", pyarrow.timestamp("ms", "UTC")),
            ("key", pyarrow.binary()),
            ("value", pyarrow.binary()),
            ("headers", pyarrow.list_(header)),
        ]
    )
    made = []
    for batch in batches:
        count = len(batch)
        zeros = pyarrow.repeat(pyarrow.scalar(0, pyarrow.int32()), count)
        if any(batch.headers):
            headers = pyarrow.array(
                [[{"name": name, "value": value} for name, value in each] for each in batch.headers],
                pyarrow.list_(header),
            )
        else:
            offsets = pyarrow.repeat(pyarrow.scalar(0, pyarrow.int32()), count + 1)
            headers = pyarrow.ListArray.from_arrays(offsets, pyarrow.array([], header))
        columns = [
            pyarrow.DictionaryArray.from_arrays(zeros, pyarrow.array([batch.topic])),
            pyarrow.repeat(pyarrow.scalar(batch.partition, pyarrow.int32()), count),
            pyarrow.array(batch.offsets, pyarrow.int64()),
            pyarrow.array(batch.timestamps_ms, pyarrow.timestamp("ms", "UTC")),
            pyarrow.array(batch.keys, pyarrow.binary()),
            pyarrow.array(batch.values, pyarrow.binary()),
            headers,
        ]
        made.append(pyarrow.RecordBatch.from_arrays(columns, schema=schema))
    return pyarrow.Table.from_batches(made, schema).unify_dictionaries()
