"""What a decision is: records to append, and the reply to give once they are committed.

A `decide_x` function reads an image and a request and returns one. It changes nothing: state changes when the
records are applied, and a restart applies the same records again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from moldau.metadata.features import record_version
from moldau.metadata.framing import MetadataRecord
from moldau.metadata.image import ClusterImage
from moldau.wire.schema import Message

R = TypeVar("R")

RECORDS_MAX = 10_000
"""More records than this in one user request are refused: they are appended, and held, as a whole."""
TOO_MANY_RECORDS = "Unable to perform excessively large batch operation."


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[R]):
    records: Sequence[MetadataRecord]
    reply: R


def versioned(image: ClusterImage, messages: Sequence[Message]) -> list[MetadataRecord]:
    """The messages as records of the versions that the cluster's metadata.version asks for."""
    level = image.metadata_version
    return [MetadataRecord(message, record_version(type(message), level)) for message in messages]
