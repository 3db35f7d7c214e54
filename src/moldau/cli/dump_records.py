"""Records of Kafka's own topics for people: the cluster's metadata, and what coordinators keep of groups,
transactions and share groups.

Answerable for JSON in the form that Kafka's tools print. Types are those of the rooms that write the records,
imported when a segment of their topic is shown.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from importlib import import_module
from struct import Struct as Layout
from struct import error
from typing import Any, NamedTuple

from moldau.cli.output import json_bytes
from moldau.records.record import Record
from moldau.wire.codec import ProtocolError, decode
from moldau.wire.ids import uuid_to_string
from moldau.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from moldau.wire.schema import Message, Primitive, Struct

METADATA_TOPIC = "__cluster_metadata"

_COORDINATORS = {
    "__consumer_offsets": "moldau.groups.records",
    "__transaction_state": "moldau.txn.records",
    "__share_group_state": "moldau.share.records",
}
CONSUMER_PROTOCOL = "consumer"
_EMBEDDED: dict[str, type[Message]] = {
    "subscription": ConsumerProtocolSubscription,
    "assignment": ConsumerProtocolAssignment,
}
_VERSION = Layout(">h")


class Content(NamedTuple):
    """What is in a record, as text and as JSON."""

    text: str
    fields: dict[str, Any]


Decoder = Callable[[Record], Content]
"""Raises ProtocolError for what is no record of the topic."""


def decoder_of(topic: str | None) -> Decoder:
    if topic == METADATA_TOPIC:
        return _metadata
    module = _COORDINATORS.get(topic or "")
    return _users_own if module is None else _coordinator(module)


def _users_own(record: Record) -> Content:
    headers = [[header_name(name), json_bytes(value)] for name, value in record.headers]
    fields = {"headers": headers, "key": json_bytes(record.key), "value": json_bytes(record.value)}
    texts = []
    if record.key is not None:
        texts.append(f"key: {_text(record.key)}")
    if record.value is not None:
        texts.append(f"payload: {_text(record.value)}")
    return Content(" ".join(texts), fields)


def _metadata(record: Record) -> Content:
    payload = metadata_json(record.value or b"")
    return Content(f"payload: {compact(payload)}", {"payload": payload})


def metadata_json(data: bytes) -> dict[str, Any]:
    from moldau.metadata.framing import decode_record

    record = decode_record(data)
    return {
        "type": _screaming(type(record.message).__name__),
        "version": record.version,
        "data": struct_json(record.message, record.version),
    }


def _coordinator(module: str) -> Decoder:
    types = import_module(module).RECORD_TYPES

    def decode_record(record: Record) -> Content:
        if record.key is None:
            raise ProtocolError(f"the record at offset {record.offset} has no key")
        found = types.decode(record.key, record.value)
        if found is None:
            kind = int.from_bytes(record.key[:2], "big", signed=True)
            return Content(
                f"key: Unknown record type {kind} at offset {record.offset}, skipping.",
                {"unknown_type": kind},
            )
        key = {"type": str(found.key.API_KEY), "data": struct_json(found.key, 0)}
        if found.value is None:
            return Content(f"key: {compact(key)} payload: <DELETE>", {"key": key, "payload": None})
        data = struct_json(found.value, found.version)
        if data.get("protocolType") == CONSUMER_PROTOCOL:
            for member in data["members"]:
                _show_embedded(member)
        payload = {"version": str(found.version), "data": data}
        return Content(f"key: {compact(key)} payload: {compact(payload)}", {"key": key, "payload": payload})

    return decode_record


def _show_embedded(member: dict[str, Any]) -> None:
    """What consumers and their leader have told each other through a classic group, which the broker did not
    read: bytes in the record, and left so where they are not what they should be. Later versions only add at
    the end."""
    for name, declared in _EMBEDDED.items():
        told = base64.b64decode(member[name])
        try:
            version = min(_VERSION.unpack_from(told)[0], declared.VERSIONS.last)
            message, _ = decode(declared, version, told, _VERSION.size)
        except (error, ProtocolError):
            continue
        member[name] = struct_json(message, version)


def struct_json(value: Struct, version: int) -> dict[str, Any]:
    """What the version carries, tagged fields only where they are not the default."""
    found: dict[str, Any] = {}
    for field in value.__fields__:
        if version not in field.versions:
            continue
        content = getattr(value, field.name)
        if field.tag is not None and version in field.tagged and field.is_default(content):
            continue
        convert = field.type if isinstance(field.type, Primitive) else None
        if field.is_array and content is not None:
            found[_camel(field.name)] = [_value_json(item, convert, version) for item in content]
        else:
            found[_camel(field.name)] = _value_json(content, convert, version)
    return found


def _value_json(value: Any, primitive: Primitive | None, version: int) -> Any:
    if value is None:
        return None
    if primitive is None:
        return struct_json(value, version)
    if primitive.name == "uuid":
        return uuid_to_string(value)
    if primitive.name in ("bytes", "records"):
        return base64.b64encode(value).decode()
    return value


def header_name(name: str) -> str:
    """As JSON can have it: what is not UTF-8 is replaced."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def printable(text: str) -> str:
    """On one line: what would move the cursor is escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _text(data: bytes) -> str:
    return printable(data.decode("utf-8", "backslashreplace"))


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _screaming(name: str) -> str:
    """FeatureLevelRecord is FEATURE_LEVEL_RECORD."""
    return "".join(
        f"_{char}" if char.isupper() and place else char for place, char in enumerate(name)
    ).upper()
