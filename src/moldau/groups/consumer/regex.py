"""Patterns that members subscribe to: compiled as Kafka's RE2/J does, and matched with the topics there are.

RE2 matches in time linear in the text, whatever the pattern: a pattern comes from a client. It is imported
when the first pattern comes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from moldau.groups.consumer.records import ResolvedRegex
from moldau.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import re2

# Matched in one go: others get their turn in between.
MATCHES_AT_ONCE = 2000

# What RE2 and RE2/J say of the same mistakes.
_DESCRIPTIONS = (
    ("missing ]", "missing closing ]"),
    ("missing )", "missing closing )"),
    ("unexpected )", "regexp/syntax: internal error"),
    ("trailing \\", "trailing backslash at end of expression"),
    ("no argument for repetition operator", "missing argument to repetition operator"),
    ("bad repetition operator", "invalid nested repetition operator"),
    ("invalid repetition size", "invalid repeat count"),
    ("invalid named capture group", "invalid named capture"),
    ("invalid character class range", "invalid character class range"),
    ("invalid escape sequence", "invalid escape sequence"),
    ("invalid perl operator", "invalid or unsupported Perl syntax"),
)


def check_regex(regex: str) -> None:
    """Raises KafkaError if it is no pattern."""
    compiled(regex)


class Resolution:
    """Patterns that are being matched with the topics of one image, a part of them at a time."""

    def __init__(
        self, group_id: str, regexes: Collection[str], topics: Iterable[str], version: int, begun_ms: int
    ) -> None:
        self.group_id = group_id
        self._version = version
        self._begun_ms = begun_ms
        self._topics = iter(topics)
        self._matches: dict[str, set[str]] = {regex: set() for regex in regexes}
        self._at_once = max(1, MATCHES_AT_ONCE // max(1, len(regexes)))

    def go_on(self) -> bool:
        """Matches some more topics; whether those were the last."""
        patterns = [(compiled(regex), matches) for regex, matches in self._matches.items()]
        names = list(islice(self._topics, self._at_once))
        for pattern, matches in patterns:
            matches.update(name for name in names if pattern.fullmatch(name))
        return len(names) < self._at_once

    def result(self) -> dict[str, ResolvedRegex]:
        return {
            regex: ResolvedRegex(frozenset(matches), self._version, self._begun_ms)
            for regex, matches in self._matches.items()
        }


def compiled(regex: str) -> re2._Regexp:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        told = error.args[0] if error.args else b""
        text = told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
    description = next((ours for theirs, ours in _DESCRIPTIONS if text.startswith(theirs)), text)
    raise KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {description}.",
    )
