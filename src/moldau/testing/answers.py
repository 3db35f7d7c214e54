"""The response by which a broker tells a client that a request failed, of any API in any version.

It is derived from the declarations of the messages: entries of the request (topics, partitions, groups,
resources) are paired with those of the response whose identifying fields have the same names, and the error
goes where the response has room for it. Values that would tell of a success are -1, as brokers send them.
"""

from __future__ import annotations

from typing import Any

from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode
from moldau.wire.schema import INT32, INT64, STRING, Field, Message, Primitive, Struct

# There is room in each entry, too, but clients expect what goes wrong with a group or with a share session to
# be told of the request.
_AS_A_WHOLE = frozenset(
    {ApiKey.LEAVE_GROUP, ApiKey.OFFSET_FETCH, ApiKey.SHARE_ACKNOWLEDGE, ApiKey.SHARE_FETCH}
)
# Kafka's messages have several words for one thing.
_SAME = {"index": "partition_index", "partition": "partition_index", "topic": "name", "topic_name": "name"}
_ERROR_CODES = ("error_code", "partition_error_code")
_NOT_IDENTIFYING = frozenset({*_ERROR_CODES, "error_message"})


def failed(
    request: Message, response: type[Message], version: int, error: ErrorCode, *, whole: bool = False
) -> Message | None:
    """None where this version of the response cannot tell of an error."""
    has_room = _error_field(response, version) is not None
    if not (has_room and (whole or response.API_KEY in _AS_A_WHOLE)):
        answer, told = _of_entries(request, response, version, error)
        # A request about nothing is answered with nothing, where that is all that can be said.
        if told or (not has_room and _has_pairs(request, response, version)):
            return answer  # type: ignore[return-value]
    if not has_room:
        return None
    answer = response()
    _tell(answer, request, version, error, copied=STRING)
    return answer


def mark_failed(response: Message, version: int, error: ErrorCode) -> bool:
    """Turns a good answer into one that tells of the error in each of its entries, or as a whole if it has
    none. False if it has no room for that."""
    told = False
    for field in _carried(type(response), version).values():
        if field.is_array and not isinstance(field.type, Primitive) and _has_room(field.type, version):
            for entry in getattr(response, field.name) or ():
                told = _mark_entry(entry, version, error) or told
    own = _error_field(type(response), version)
    if not told and own is not None:
        setattr(response, own, int(error))
        told = True
    return told


def _mark_entry(entry: Any, version: int, error: ErrorCode) -> bool:
    carried = _carried(type(entry), version)
    own = _error_field(type(entry), version)
    if own is not None:
        setattr(entry, own, int(error))
        for field in carried.values():
            if field.is_array and not isinstance(field.type, Primitive):
                setattr(entry, field.name, [])
        return True
    told = False
    for field in carried.values():
        if field.is_array and not isinstance(field.type, Primitive):
            for inner in getattr(entry, field.name) or ():
                told = _mark_entry(inner, version, error) or told
    return told


def _of_entries(source: Struct, kind: type[Struct], version: int, error: ErrorCode) -> tuple[Struct, bool]:
    """A struct that has no room for the error itself, and whether those in it have told it."""
    answer, told = kind(), False
    for field in _carried(kind, version).values():
        if not field.is_array or isinstance(field.type, Primitive) or not _has_room(field.type, version):
            continue
        paired = _paired(source, field.type, version)
        if paired is None:
            continue
        entries: list[Struct] = []
        for item in getattr(source, paired.name) or ():
            entry, entry_told = _entry(item, paired, field.type, version, error)
            entries.append(entry)
            told = told or entry_told
        setattr(answer, field.name, entries)
    return answer, told


def _entry(
    item: Any, paired: Field, kind: type[Struct], version: int, error: ErrorCode
) -> tuple[Struct, bool]:
    """The response's entry for one of the request's, which is a struct or just a name."""
    if isinstance(paired.type, Primitive):
        identity = _identity(kind, paired.type, version)
        assert identity is not None, "they would not have been paired"
        answer = kind()
        _tell(answer, None, version, error)
        setattr(answer, identity.name, item)
        return answer, True
    if _error_field(kind, version) is not None:
        answer = kind()
        _tell(answer, item, version, error)
        return answer, True
    answer, told = _of_entries(item, kind, version, error)
    _copy(answer, item, version)
    return answer, told


def _tell(
    answer: Any, source: Struct | None, version: int, error: ErrorCode, copied: Primitive | None = None
) -> None:
    for field in _carried(type(answer), version).values():
        if field.name in _ERROR_CODES:
            setattr(answer, field.name, int(error))
        elif field.name == "error_message":
            answer.error_message = f"{error.name}, as the test asked for"
        elif field.is_array or field.name == "throttle_time_ms":
            continue
        elif field.type in (INT32, INT64) and field.default_value() == 0:
            setattr(answer, field.name, -1)
    if source is not None:
        _copy(answer, source, version, copied)


def _copy(answer: Struct, source: Struct, version: int, only: Primitive | None = None) -> None:
    """What both have, by its name: who is meant."""
    there = {_SAME.get(name, name): field for name, field in _carried(type(source), version).items()}
    for name, field in _carried(type(answer), version).items():
        same = there.get(_SAME.get(name, name))
        if same is None or field.is_array or not isinstance(field.type, Primitive):
            continue
        if same.type is not field.type or only not in (None, field.type) or name in _NOT_IDENTIFYING:
            continue
        value = getattr(source, same.name)
        if value is not None or version in field.nullable:
            setattr(answer, name, value)


def _paired(source: Struct, kind: type[Struct], version: int) -> Field | None:
    """The array of the request whose entries the response's are about."""
    best: Field | None = None
    most = 0
    names = _identifying(kind, version)
    for field in _carried(type(source), version).values():
        if not field.is_array:
            continue
        if isinstance(field.type, Primitive):
            score = 1 if _identity(kind, field.type, version) is not None else 0
        else:
            score = 2 * len(names & _identifying(field.type, version))
        if score > most:
            best, most = field, score
    return best


def _identifying(kind: type[Struct], version: int) -> set[str]:
    return {
        _SAME.get(name, name)
        for name, field in _carried(kind, version).items()
        if not field.is_array and name not in _NOT_IDENTIFYING
    }


def _has_pairs(source: Struct, kind: type[Struct], version: int) -> bool:
    return any(
        field.is_array
        and not isinstance(field.type, Primitive)
        and _has_room(field.type, version)
        and _paired(source, field.type, version) is not None
        for field in _carried(kind, version).values()
    )


def _identity(kind: type[Struct], type: Primitive, version: int) -> Field | None:
    """The field by which an entry says which it is, where the request has just a list of those."""
    for field in _carried(kind, version).values():
        if field.type is type and not field.is_array and field.name not in _NOT_IDENTIFYING:
            return field
    return None


def _has_room(kind: type[Struct], version: int) -> bool:
    return _error_field(kind, version) is not None or any(
        field.is_array and not isinstance(field.type, Primitive) and _has_room(field.type, version)
        for field in _carried(kind, version).values()
    )


def _error_field(kind: type[Struct], version: int) -> str | None:
    carried = _carried(kind, version)
    return next((name for name in _ERROR_CODES if name in carried), None)


def _carried(kind: type[Struct], version: int) -> dict[str, Field]:
    return {field.name: field for field in kind.__fields__ if version in field.versions}
