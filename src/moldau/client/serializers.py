"""How keys and values become bytes: a callable `(topic, object) -> bytes`, with None for what has none.
And back: a callable `(topic, bytes) -> object`, which is given None, too.

A schema registry adds others; anything with this shape will do.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

Serializer: TypeAlias = Callable[[str, Any], bytes | None]
Deserializer: TypeAlias = Callable[[str, bytes | None], Any]


def bytes_serializer(topic: str, value: Any) -> bytes | None:
    """Bytes as they are. This is what is used when nothing else is asked for."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)  # which the caller may change before it is sent
    raise TypeError(f"a key or value for {topic!r} is {type(value).__name__}, not bytes: give a serializer")


def string_serializer(topic: str, value: Any) -> bytes | None:
    """Text as UTF-8."""
    return None if value is None else str(value).encode()


def json_serializer(topic: str, value: Any) -> bytes | None:
    """What JSON can say, without spaces. None is no value (a tombstone), not JSON's null."""
    return None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


_BY_NAME: dict[str, Serializer | None] = {
    "bytes": None,
    "str": string_serializer,
    "json": json_serializer,
}


def serializer_of(given: Serializer | str | None) -> Serializer | None:
    """A serializer by its name or as it is; None for bytes, which need none."""
    if given is None or callable(given):
        return None if given is bytes_serializer else given
    if given not in _BY_NAME:
        raise ValueError(f"there is no serializer {given!r}; there are {', '.join(_BY_NAME)}")
    return _BY_NAME[given]


def string_deserializer(topic: str, data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def json_deserializer(topic: str, data: bytes | None) -> Any:
    return None if data is None else json.loads(data)


_BACK_BY_NAME: dict[str, Deserializer | None] = {
    "bytes": None,
    "str": string_deserializer,
    "json": json_deserializer,
}


def deserializer_of(given: Deserializer | str | None) -> Deserializer | None:
    """A deserializer by its name or as it is; None for bytes, which need none."""
    if given is None or callable(given):
        return given
    if given not in _BACK_BY_NAME:
        raise ValueError(f"there is no deserializer {given!r}; there are {', '.join(_BACK_BY_NAME)}")
    return _BACK_BY_NAME[given]
