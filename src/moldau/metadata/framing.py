"""One metadata record as bytes: frame version, record type, record version (unsigned varints), the payload.

It knows which record types there are, and nothing of what they mean.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.metadata import records
from moldau.wire.codec import Buffer, ProtocolError, decode, encode, read_uvarint, write_uvarint
from moldau.wire.schema import Message

FRAME_VERSION = 1
# A varint of five bytes has room for far more; record types and versions are int16.
_INT16_MAX = 32767


class MetadataRecord(NamedTuple):
    """A record and the version of its schema that it is written with."""

    message: Message
    version: int


RECORD_TYPES: dict[int, type[Message]] = {
    declared.API_KEY: declared
    for declared in vars(records).values()
    if isinstance(declared, type) and issubclass(declared, Message) and declared is not Message
}


def encode_record(message: Message, version: int) -> bytes:
    out = bytearray((FRAME_VERSION,))
    write_uvarint(message.API_KEY, out)
    write_uvarint(version, out)
    return bytes(encode(message, version, out))


def decode_record(data: Buffer) -> MetadataRecord:
    """Raises ProtocolError for anything that is not one whole record of a known type and version."""
    try:
        frame_version, position = read_uvarint(data, 0)
        record_type, position = read_uvarint(data, position)
        version, position = read_uvarint(data, position)
    except IndexError:
        raise ProtocolError("a metadata record ends inside its frame") from None
    if frame_version != FRAME_VERSION:
        raise ProtocolError(f"unknown frame version {frame_version} of a metadata record")
    declared = RECORD_TYPES.get(record_type)
    if declared is None:
        raise ProtocolError(f"unknown metadata record type {min(record_type, _INT16_MAX)}")
    if version not in declared.VERSIONS:
        raise ProtocolError(f"unknown version {min(version, _INT16_MAX)} of {declared.__name__}")
    message, position = decode(declared, version, data, position)
    if position != len(data):
        raise ProtocolError(f"{len(data) - position} bytes left over after {declared.__name__}")
    return MetadataRecord(message, version)
