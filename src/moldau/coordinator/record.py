"""What a coordinator keeps in its topic: a message as the key of a record, and one, or nothing, as its value.

Both are framed by an int16. Of a key it is the type of the record; of a value the version that it is written
in, so that a value says itself how it is to be read. No value is a tombstone: what the key speaks of is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from struct import Struct
from typing import NamedTuple, Protocol

from moldau.wire.codec import Buffer, Encoder, ProtocolError, decode, encoder_of
from moldau.wire.schema import Message

_INT16 = Struct(">h")
_KEY_VERSION = 0  # of all of them: a new layout of a key would be another key


Pair = tuple[Buffer, Buffer | None]
"""Key and value of a record."""


class Encodable(Protocol):
    """What a decision may write: a `CoordinatorRecord`, or one of a kind that packs its bytes by hand. What
    is replayed is always the first."""

    def encode(self) -> Pair: ...


class CoordinatorRecord(NamedTuple):
    """`version` is that of the value's schema."""

    key: Message
    value: Message | None
    version: int = 0

    def encode(self) -> Pair:
        return encode_key(self), encode_value(self)


class RecordTypes:
    """The keys and values of one coordinator's topic, found by the type that a key begins with."""

    def __init__(self, types: Iterable[tuple[type[Message], type[Message]]]) -> None:
        self._by_type: Mapping[int, tuple[type[Message], type[Message]]] = {
            key.API_KEY: (key, value) for key, value in types
        }

    def decode(self, key: Buffer, value: Buffer | None) -> CoordinatorRecord | None:
        """None for a type that a later release may have added. Raises ProtocolError for what is no record."""
        if len(key) < 2:
            raise ProtocolError("the key of a coordinator's record is shorter than its type")
        declared = self._by_type.get(_INT16.unpack_from(key)[0])
        if declared is None:
            return None
        key_message, _ = decode(declared[0], _KEY_VERSION, key, 2)
        if value is None:
            return CoordinatorRecord(key_message, None)
        if len(value) < 2:
            raise ProtocolError("the value of a coordinator's record is shorter than its version")
        (version,) = _INT16.unpack_from(value)
        if version not in declared[1].VERSIONS:
            raise ProtocolError(f"unknown version {version} of {declared[1].__name__}")
        value_message, _ = decode(declared[1], version, value, 2)
        return CoordinatorRecord(key_message, value_message, version)


def encode_key(record: CoordinatorRecord) -> bytearray:
    head, write = _writer(type(record.key), _KEY_VERSION, type(record.key).API_KEY)
    out = bytearray(head)
    write(record.key, out)
    return out


def encode_value(record: CoordinatorRecord) -> bytearray | None:
    if record.value is None:
        return None
    head, write = _writer(type(record.value), record.version, record.version)
    out = bytearray(head)
    write(record.value, out)
    return out


@cache
def _writer(kind: type[Message], version: int, head: int) -> tuple[bytes, Encoder]:
    """What its bytes begin with, and what writes the rest. As many as there are types and versions."""
    return _INT16.pack(head), encoder_of(kind, version)
