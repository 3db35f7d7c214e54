"""Messages built by chance, for any declared class and version, and the plain values that kio's stand for.

A sample sets only the fields that the version carries: the others keep their defaults, as after decoding. It
is built from a plain Random rather than by hypothesis: there are six hundred message versions, and drawing
each field of them on its own would cost more than all the coding.
"""

from __future__ import annotations

import dataclasses
import datetime
import sys
import uuid
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, TypeVar

from kio.index import load_payload_module
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.static.constants import EntityType

from moldau.wire.api import ApiKey, request_type, response_type
from moldau.wire.ids import ZERO_UUID
from moldau.wire.schema import OWN_TAGS_FROM, RECORDS, Field, Message, Primitive, Struct

S = TypeVar("S", bound=Struct)

RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
    # What kio reads into durations and points in time, which hold fewer values than the bytes can.
    "timedelta_i32": (0, 2**31 - 1),
    "timedelta_i64": (0, 2**40),
    "datetime_i64": (0, 2**41),
}
TEXTS = ["", "a", "topic", "ř𝛿", "x" * 126, "x" * 127, "x" * 128, "x" * 20_000]
TEXT_WEIGHTS = [9, 9, 9, 9, 2, 2, 2, 1]
KIO_ERROR_CODES = [code.value for code in KioErrorCode]


def api_messages() -> Iterator[type[Message]]:
    for key in ApiKey:
        yield request_type(key)
        yield response_type(key)


def versions_of(message: type[Message]) -> range:
    return range(message.VERSIONS.first, message.VERSIONS.last + 1)


def sample(cls: type[S], version: int, random: Random, kio: type | None = None) -> S:
    """A message of one version; with `kio`, its class of the same version, only such as it can hold."""
    kio_fields = {} if kio is None else _fields_by_name(kio)
    values = {}
    for field in cls.__fields__:
        is_own = field.tag is not None and field.tag >= OWN_TAGS_FROM
        if version not in field.versions or (kio is not None and is_own):
            continue
        # A tenth of the fields keep their default: that is when a tagged one is left out.
        can_be_default = field.type is not RECORDS or version in field.nullable
        if not can_be_default or random.random() < 0.9:
            kio_field = next((kio_fields[n] for n in names_in_kio(field.name) if n in kio_fields), None)
            assert kio is None or kio_field is not None, f"kio has no {field.name} in {kio}"
            values[field.name] = _value(field, version, random, kio_field, kio)
    return cls(**values)


def names_in_kio(name: str) -> tuple[str, ...]:
    """kio drops the unit of what it reads into a duration or a point in time, and marks keywords."""
    return name, name.removesuffix("_ms"), name + "_"


def _value(
    field: Field, version: int, random: Random, kio_field: dataclasses.Field[Any] | None, kio: type | None
) -> Any:
    if version in field.nullable and random.random() < 0.2:
        return None
    kafka_type = kio_field.metadata.get("kafka_type") if kio_field is not None else None

    def one() -> Any:
        if isinstance(field.type, Primitive):
            return _scalar(kafka_type or field.type.name, random)
        return sample(field.type, version, random, kio_field and _kio_struct(kio_field, kio))

    return [one() for _ in range(random.randrange(3))] if field.is_array else one()


def _scalar(name: str, random: Random) -> Any:
    if name in RANGES:
        first, last = RANGES[name]
        return random.choice([first, last, min(max(0, first), last), random.randint(first, last)])
    match name:
        case "error_code":
            return random.choice(KIO_ERROR_CODES)
        case "bool":
            return random.random() < 0.5
        case "float64":
            return random.choice([0.0, -1.5, float("inf"), random.random()])
        case "uuid":
            return random.choice([ZERO_UUID, random.randbytes(16)])
        case "string":
            return random.choices(TEXTS, TEXT_WEIGHTS)[0]
        case _:
            return random.choices(TEXTS, TEXT_WEIGHTS)[0].encode("utf-16")


@cache
def kio_type(message: type[Message], version: int) -> type:
    kind = EntityType.request if message.__name__.endswith("Request") else EntityType.response
    found: type = getattr(load_payload_module(message.API_KEY, version, kind), message.__name__)
    return found


@cache
def _fields_by_name(kio: type) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(kio)}


@cache
def _kio_struct(field: dataclasses.Field[Any], owner: type) -> type:
    """The dataclass in an annotation such as `tuple[Topic, ...] | None`."""
    annotation = field.type
    if isinstance(annotation, str):
        annotation = eval(annotation, vars(sys.modules[owner.__module__]))
    return next(_dataclasses_in(annotation))


def _dataclasses_in(annotation: Any) -> Iterator[type]:
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _dataclasses_in(argument)


EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


def plain(value: Any) -> Any:
    """Our message, or kio's, as dicts, lists and scalars: what both say, however they hold it."""
    if isinstance(value, Struct):
        return {field.name: plain(getattr(value, field.name)) for field in value.__fields__}
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, KioErrorCode):
        return value.value
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, datetime.timedelta):
        return value // MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // MILLISECOND
    return value


def damage(frame: bytearray, random: Random) -> None:
    """Overwrites a few bytes, most often lengths, with values that mean something, and cuts or adds some."""
    for _ in range(random.randrange(4)):
        if frame:
            value = random.choice([0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)])
            frame[random.randrange(len(frame))] = value
    match random.randrange(4):
        case 0:
            del frame[random.randrange(len(frame) + 1) :]
        case 1:
            frame += random.randbytes(random.randrange(1, 9))
