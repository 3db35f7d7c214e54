"""What an incremental change makes of a resource's overrides. Only texts: whether the result may stand is for
the config of the resource to say."""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from moldau.config.option import ConfigError, Option, Problem, Type


class Operation(IntEnum):
    """What to do with an override, with the protocol's codes."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One operation on one option. Only DELETE does without a value."""

    name: str
    operation: Operation
    value: str | None = None


def alter_incrementally(
    overrides: Mapping[str, str], changes: Iterable[Change], options: Mapping[str, Option[Any]]
) -> dict[str, str]:
    """`overrides` after `changes`; `options` are those of the resource, by name.

    APPEND and SUBTRACT work on lists alone, and where there is no override yet, on the option's default.
    Raises ConfigError with all that cannot be done; unknown names are left to the resource's own check.
    """
    altered = dict(overrides)
    problems: list[Problem] = []
    for change in changes:
        name, operation, value = change
        if operation is Operation.DELETE:
            altered.pop(name, None)
            continue
        option = options.get(name)
        if value is None:
            problems.append(Problem(name, f"Null value not supported for : {name}"))
        elif operation is Operation.SET:
            altered[name] = value
        elif option is None or option.type is not Type.LIST:
            message = f"Can't {operation.name} to key {name} because its type is not LIST."
            problems.append(Problem(name, message))
        else:
            # As Kafka does, the parts are compared as they are written, blanks and all.
            parts = [part for part in altered.get(name, option.default_text or "").split(",") if part]
            operands = _operands(value)
            if operation is Operation.APPEND:
                present = set(parts)
                parts += [part for part in dict.fromkeys(operands) if part not in present]
            else:
                parts = _without(parts, Counter(operands))
            altered[name] = ",".join(parts)
    if problems:
        raise ConfigError(tuple(problems))
    return altered


def _without(parts: list[str], gone: Counter[str]) -> list[str]:
    """As many of each part as `gone` says are gone, from the front."""
    left = []
    for part in parts:
        if gone[part]:
            gone[part] -= 1
        else:
            left.append(part)
    return left


def _operands(text: str) -> list[str]:
    """The parts of a value as Java splits it: without empty ones at its end, which stay elsewhere for the
    option's bounds to judge; but an empty text is one empty part."""
    if not text:
        return [text]
    parts = text.split(",")
    while parts and not parts[-1]:
        parts.pop()
    return parts
