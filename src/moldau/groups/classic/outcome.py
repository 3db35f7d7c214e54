"""What an event leads to, gathered on its way through the parts of the classic protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moldau.coordinator.decision import Answer, Decision, Waiter
from moldau.coordinator.record import CoordinatorRecord
from moldau.wire.errors import KafkaError
from moldau.wire.schema import Message

After = Callable[["KafkaError | None", "Outcome"], None]


class Outcome:
    """`after` is called when the records are committed, or with the error because of which they are not
    written, and with the outcome of that. What is answered beside it is so in either case."""

    __slots__ = ("after", "answers", "records")

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.answers: list[Answer] = []
        self.after: After | None = None

    def answer(self, waiter: Waiter[Any] | None, response: Message) -> None:
        if waiter is not None:
            self.answers.append((waiter, response))

    def decision(self, reply: Message | None = None) -> Decision[Any]:
        return Decision(
            records=self.records,
            reply=reply,
            answers=self.answers,
            then=None if self.after is None else self._go_on,
        )

    def _go_on(self, failure: KafkaError | None) -> Decision[Any]:
        assert self.after is not None
        following = Outcome()
        if failure is not None:
            following.answers += self.answers
        self.after(failure, following)
        return following.decision()
