"""`partition.metadata`: which topic a log belongs to, by id."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

from moldau.log.errors import CorruptFileError
from moldau.log.names import PARTITION_METADATA
from moldau.runtime.interfaces import FileSystem

NO_TOPIC_ID = bytes(16)


def encode_uuid(value: bytes) -> str:
    """Sixteen bytes the way Kafka prints ids: URL-safe base64 without padding."""
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def decode_uuid(text: str) -> bytes:
    """Raises ValueError if that is not an id."""
    value = urlsafe_b64decode(text + "==")
    if len(text) != 22 or len(value) != 16:
        raise ValueError(f"not an id of 16 bytes in base64: {text!r}")
    return value


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


def decode_partition_metadata(data: bytes, path: str) -> bytes:
    """The topic id."""
    try:
        fields = dict(line.split(": ", 1) for line in data.decode().splitlines() if line.strip())
        if fields["version"] != "0":
            raise ValueError("unknown version")
        return decode_uuid(fields["topic_id"].strip())
    except (ValueError, KeyError) as error:
        raise CorruptFileError(f"malformed partition metadata {path}: {error}") from None


def read_topic_id(files: FileSystem, directory: str) -> bytes:
    """The id of the topic that the log in `directory` belongs to; NO_TOPIC_ID if that was never said."""
    path = f"{directory}/{PARTITION_METADATA}"
    return decode_partition_metadata(files.read_bytes(path), path) if files.exists(path) else NO_TOPIC_ID
