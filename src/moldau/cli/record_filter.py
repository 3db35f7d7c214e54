"""Which records `moldau consume` prints: by key, by header, by what their JSON says.

A path is names with dots and indexes in brackets, as in `order.items[0].price`; `[*]` is any element, and
`["a.b"]` a name with dots in it. What it leads to is compared as JSON, or as text where that is not JSON.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from moldau.records.record import Record

Test = Callable[[Record], bool]
Step = str | int | None
"""A name, an index, or None for any element."""

_STEP = re.compile(r'\.?([^\s.\[\]="]+)|\[(\d+|\*)\]|\[("(?:[^"\\]|\\.)*")\]')


class FilterError(ValueError):
    """What was given is no filter."""


def every(tests: Sequence[Test]) -> Test | None:
    """None where there is nothing to test."""
    if not tests:
        return None
    return lambda record: all(test(record) for test in tests)


def by_key(pattern: str) -> Test:
    """The key has the regular expression in it. Raises FilterError."""
    found = _pattern(pattern)
    return lambda record: record.key is not None and found.search(record.key) is not None


def by_header(text: str) -> Test:
    """`NAME`: there is such a header; `NAME=PATTERN`: one whose value has the expression in it."""
    name, equals, pattern = text.partition("=")
    if not name:
        raise FilterError(f"{text!r} names no header")
    if not equals:
        return lambda record: any(header == name for header, _ in record.headers)
    found = _pattern(pattern)
    return lambda record: any(
        header == name and value is not None and found.search(value) is not None
        for header, value in record.headers
    )


def by_json(text: str) -> Test:
    """`PATH`: the value is JSON that has something there; `PATH=VALUE`: it has this."""
    steps, position = _parse_path(text)
    if position == len(text):
        return lambda record: any(True for _ in _found(record, steps))
    if text[position] != "=" or not steps:
        raise FilterError(f"{text!r} is neither PATH nor PATH=VALUE")
    raw = text[position + 1 :]
    wanted = _wanted(raw)
    # Quotes are for shells to eat: 7 is also the text "7".
    return lambda record: any(_is_same(value, wanted) or value == raw for value in _found(record, steps))


def _pattern(text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(os.fsencode(text))
    except re.error as error:
        raise FilterError(f"{text!r} is no regular expression: {error}") from None


def _parse_path(text: str) -> tuple[list[Step], int]:
    """The steps, and where they end."""
    position = 1 if text.startswith("$") else 0
    steps: list[Step] = []
    while match := _STEP.match(text, position):
        name, index, quoted = match.groups()
        try:
            if quoted is not None:
                steps.append(str(json.loads(quoted)))
            elif index is not None:
                steps.append(None if index == "*" else int(index))
            else:
                steps.append(name)
        except ValueError:
            raise FilterError(f"{text!r}: {match.group()} is no name") from None
        position = match.end()
    return steps, position


def _wanted(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _is_same(value: Any, wanted: Any) -> bool:
    """As JSON is: true is not 1."""
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)


def _found(record: Record, steps: Sequence[Step]) -> Iterator[Any]:
    if record.value is None:
        return iter(())
    try:
        document = json.loads(record.value)
    except (ValueError, RecursionError):
        return iter(())
    return _walk(document, steps)


def _walk(value: Any, steps: Sequence[Step]) -> Iterator[Any]:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    match value:
        case dict() if isinstance(step, str) and step in value:
            yield from _walk(value[step], rest)
        case list() if isinstance(step, int) and step < len(value):
            yield from _walk(value[step], rest)
        case list() if step is None:
            for item in value:
                yield from _walk(item, rest)
        case dict() if step is None:
            for item in value.values():
                yield from _walk(item, rest)
