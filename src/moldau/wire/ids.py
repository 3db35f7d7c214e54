"""Kafka's 128-bit ids: sixteen bytes inside, URL-safe base64 without padding for people and files."""

from __future__ import annotations

import base64
import binascii
from random import Random
from typing import NewType

Uuid = NewType("Uuid", bytes)

ZERO_UUID = Uuid(bytes(16))
# Kafka reserves the first hundred ids; two of them have a meaning on the wire and on disk.
METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
_RESERVED = {Uuid(bytes(15) + bytes([low])) for low in range(100)}


def uuid_to_string(uuid: bytes) -> str:
    return base64.urlsafe_b64encode(uuid).decode("ascii").rstrip("=")


def uuid_from_string(text: str) -> Uuid:
    """Raises ValueError when `text` is not an id."""
    try:
        raw = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a Kafka id (22 characters of URL-safe base64)")
    return Uuid(raw)


def is_reserved(uuid: bytes) -> bool:
    return uuid in _RESERVED


def random_uuid(random: Random) -> Uuid:
    """A fresh id, neither reserved nor, as in Kafka, with a leading dash (it would read as an option)."""
    while True:
        uuid = Uuid(random.randbytes(16))
        if uuid not in _RESERVED and not uuid_to_string(uuid).startswith("-"):
            return uuid
