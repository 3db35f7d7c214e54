from __future__ import annotations

import pytest

from moldau.client.consumed import ConsumerBatch, ConsumerRecord, arrow_table

BATCHES = [
    ConsumerBatch("a", 0, [5, 6], [1000, 1001], [b"k", None], [None, b"v"], [(), (("h", None),)]),
    ConsumerBatch("b", 1, [7], [1002], [b"x"], [b"y"], [()]),
]


def test_a_batch_gives_records() -> None:
    assert list(BATCHES[0]) == [
        ConsumerRecord("a", 0, 5, 1000, b"k", None, ()),
        ConsumerRecord("a", 0, 6, 1001, None, b"v", (("h", None),)),
    ]
    assert len(BATCHES[0]) == 2


def test_batches_are_a_table() -> None:
    pytest.importorskip("pyarrow")
    table = arrow_table(BATCHES)
    assert table.column("topic").to_pylist() == ["a", "a", "b"]
    assert table.column("partition").to_pylist() == [0, 0, 1]
    assert table.column("offset").to_pylist() == [5, 6, 7]
    assert [round(at.timestamp() * 1000) for at in table.column("timestamp").to_pylist()] == [
        1000,
        1001,
        1002,
    ]
    assert table.column("key").to_pylist() == [b"k", None, b"x"]
    assert table.column("value").to_pylist() == [None, b"v", b"y"]
    assert table.column("headers").to_pylist() == [[], [{"name": "h", "value": None}], []]
    assert arrow_table([]).num_rows == 0
