"""What shall go wrong with which requests: rules that a test adds, and the decision for each request.

Answerable for matching and counting. It does not know how a request is failed, held back or lost: that is
`front.py`; nor how a rule got here: that is `control.py`.

Rules are looked at in the order in which they were added. For one request at most one delay and one ending
apply, the first that match; what did not apply is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from moldau.wire.api import ApiKey, camel_name
from moldau.wire.errors import ErrorCode

RULES_MAX = 10_000
API_NAMES = {camel_name(key): key for key in ApiKey}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """Answered with the error, and nothing is done. `whole`: the error is told of the request as a whole,
    even where the response has room for one in each topic, partition or group."""

    error: ErrorCode
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Handled so much later. Its connection stands still meanwhile, as it does for a slow broker."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lose:
    """Done, but instead of the answer the client gets the end of its connection."""


Action = Fail | Delay | Lose


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Which requests are meant. None is any."""

    api: ApiKey | None = None
    topic: str | None = None
    client_id: str | None = None


class Verdict(NamedTuple):
    delay_s: float
    ending: Fail | Lose | None


NOTHING = Verdict(0.0, None)


class _Rule:
    __slots__ = ("action", "hits", "left", "match", "number")

    def __init__(self, number: int, match: Match, action: Action, times: int | None) -> None:
        self.number = number
        self.match = match
        self.action = action
        self.left = times  # None: without end
        self.hits = 0


class FaultRules:
    def __init__(self) -> None:
        self._rules: dict[int, _Rule] = {}
        self._last = 0
        self._hits: dict[int, int] = {}  # of all rules there ever were
        self.disk_is_full = False

    def add(self, match: Match, action: Action, times: int | None = None) -> int:
        """The rule's number. Raises ValueError."""
        if times is not None and times < 1:
            raise ValueError(f"times is {times}: a rule applies once at least")
        if isinstance(action, Delay) and not 0 < action.seconds < 1e6:
            raise ValueError(f"a delay of {action.seconds} seconds is none")
        if len(self._hits) >= RULES_MAX:
            raise ValueError(f"{RULES_MAX} rules were added; clear them")
        self._last += 1
        self._rules[self._last] = _Rule(self._last, match, action, times)
        self._hits[self._last] = 0
        return self._last

    def remove(self, number: int) -> None:
        self._rules.pop(number, None)

    def clear(self) -> None:
        """Everything works again, the disk too."""
        self._rules.clear()
        self._hits.clear()
        self.disk_is_full = False

    def hits(self, number: int) -> int:
        """To how many requests the rule has applied. 0 after `clear`."""
        return self._hits.get(number, 0)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def concern(self, api: ApiKey) -> bool:
        """Whether any rule may apply to requests of this API."""
        return any(rule.match.api in (None, api) for rule in self._rules.values())

    def may_fail(self, api: ApiKey) -> bool:
        """Whether a rule waits that would tell an error in each of the request's entries."""
        return any(
            isinstance(rule.action, Fail) and not rule.action.whole and rule.match.api in (None, api)
            for rule in self._rules.values()
        )

    def decide(self, api: ApiKey, client_id: str, mentions: Callable[[str], bool]) -> Verdict:
        """For one request; `mentions` tells whether it is about a topic."""
        delay_s: float | None = None
        ending: Fail | Lose | None = None
        for rule in list(self._rules.values()):
            is_delay = isinstance(rule.action, Delay)
            if (delay_s is not None) if is_delay else (ending is not None):
                continue
            match = rule.match
            if match.api not in (None, api) or match.client_id not in (None, client_id):
                continue
            if match.topic is not None and not mentions(match.topic):
                continue
            if isinstance(rule.action, Delay):
                delay_s = rule.action.seconds
            else:
                ending = rule.action
            self._count(rule)
        return Verdict(delay_s or 0.0, ending)

    def _count(self, rule: _Rule) -> None:
        self._hits[rule.number] += 1
        if rule.left is not None:
            rule.left -= 1
            if rule.left == 0:
                del self._rules[rule.number]


def api_named(name: str) -> ApiKey:
    """`Produce`, as Kafka's messages are called. Raises ValueError."""
    if name in API_NAMES:
        return API_NAMES[name]
    close = [known for known in API_NAMES if known.lower() == name.lower().replace("_", "")]
    hint = f"; do you mean {close[0]!r}?" if close else ""
    raise ValueError(f"Kafka has no API called {name!r}{hint}")


def error_named(error: ErrorCode | str | int) -> ErrorCode:
    """Raises ValueError."""
    try:
        code = ErrorCode[error] if isinstance(error, str) else ErrorCode(error)
    except (KeyError, ValueError):
        raise ValueError(f"Kafka has no error {error!r}") from None
    if code is ErrorCode.NONE:
        raise ValueError("NONE is no error")
    return code


def mentions(value: object, names: Collection[object]) -> bool:
    """Whether a request has one of `names` (a topic's name, its id) anywhere."""
    if isinstance(value, list):
        return any(mentions(item, names) for item in value)
    fields = getattr(value, "__fields__", None)
    if fields is not None:
        return any(mentions(getattr(value, field.name), names) for field in fields)
    return isinstance(value, str | bytes) and value in names
