from __future__ import annotations

import json
from typing import Any

import pytest

from moldau.cli.record_filter import FilterError, by_header, by_json, by_key, every
from moldau.records.record import Record

ORDER = {
    "id": 7,
    "paid": True,
    "tags": ["new", "eu"],
    "items": [{"sku": "a.b", "n": 1}],
    "a.b": None,
    "no": "12",
}


def record(value: Any = None, key: bytes | None = None, *headers: tuple[str, bytes | None]) -> Record:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Record(0, 0, key, data, headers)


@pytest.mark.parametrize(
    ("path", "is_met"),
    [
        ("id=7", True),
        ("$.id=7", True),
        ("id=8", False),
        ("id", True),
        ("nope", False),
        ("paid=true", True),
        ("paid=1", False),
        ("id=true", False),
        ("tags[0]=new", True),
        ("tags[1]=new", False),
        ("tags[9]", False),
        ("tags[*]=eu", True),
        ('tags=["new","eu"]', True),
        ("items[*].sku=a.b", True),
        ("items[0].n=1.0", True),
        ('["a.b"]=null', True),
        ("a.b", False),
        ("[*].x", False),
        ("[*]=7", True),
        ("no=12", True),
        ('no="12"', True),
        ("no=", False),
        ("$", True),
    ],
)
def test_by_what_their_json_says(path: str, is_met: bool) -> None:
    assert by_json(path)(record(ORDER)) is is_met


def test_what_is_no_json_meets_no_path() -> None:
    for value in (b"{", b"\xff", b"", b"[" * 100_000):
        assert not by_json("$")(record(value))
    assert not by_json("id")(Record(0, 0, None, None))
    assert by_json("[1]=2")(record([1, 2]))


@pytest.mark.parametrize("path", ["a b", "=7", "a[", "a[x]", "a..b", '["a', '["\\x"]', "$=1"])
def test_paths_that_are_none(path: str) -> None:
    with pytest.raises(FilterError):
        by_json(path)


def test_by_key_and_header() -> None:
    one = record(1, b"order-7", ("h", b"value"), ("h", None), ("empty", None))
    assert by_key("^order-")(one) and by_key("7")(one) and not by_key("^7")(one)
    assert not by_key("")(record(1))
    assert by_header("empty")(one) and by_header("h=^val")(one)
    assert not by_header("empty=")(one) and not by_header("other")(one)
    assert every([]) is None
    both = every([by_key("order"), by_header("h")])
    assert both is not None and both(one) and not both(record(1, b"order"))
