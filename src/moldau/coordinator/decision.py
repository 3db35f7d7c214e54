"""What a coordinator's machine says in answer to an event: what to write, and whom to answer.

    decide_x(now_ms, request) -> Decision(records, reply)   reads only
    apply(record)                                           changes what records describe, never refuses

The driver writes the records, applies them at once, so that the next decision sees them, and lets replies
out when they are committed. What is not in the log (who waits for a rebalance, when a member was last heard
of) a machine changes itself while it decides; it is lost with the leadership, and the protocols allow for
that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from moldau.coordinator.record import Encodable
from moldau.wire.errors import KafkaError

R = TypeVar("R")

NO_PRODUCER = (-1, -1)


class Waiter(Generic[R]):
    """Someone who has asked. A machine that cannot answer at once keeps it, and names it in the `answers`
    of a later decision. Answered once; what comes after that is dropped."""

    __slots__ = ("_on_done", "answer", "failure")

    def __init__(self) -> None:
        self.answer: R | None = None
        self.failure: KafkaError | None = None
        self._on_done: Callable[[], None] | None = None

    @property
    def is_done(self) -> bool:
        return self.answer is not None or self.failure is not None

    def give(self, answer: R) -> None:
        if not self.is_done:
            self.answer = answer
            self._done()

    def fail(self, failure: KafkaError) -> None:
        if not self.is_done:
            self.failure = failure
            self._done()

    def when_done(self, then: Callable[[], None]) -> None:
        """`then` is called once, at once if there is an answer already."""
        if self.is_done:
            then()
        else:
            assert self._on_done is None, "one listener is enough"
            self._on_done = then

    def _done(self) -> None:
        if self._on_done is not None:
            on_done, self._on_done = self._on_done, None
            on_done()

    def result(self) -> R:
        """Raises the KafkaError that it failed with."""
        if self.failure is not None:
            raise self.failure
        assert self.answer is not None
        return self.answer


Answer = tuple[Waiter[Any], Any]
"""A waiter, and its response or the KafkaError that it gets instead."""


class Decision(NamedTuple, Generic[R]):
    """`reply` is for the one who asked; without one he waits, as a `Waiter` that the machine was given
    and has kept. `answers` are for those who waited. All leave when the records are committed.

    `then` is called when the records are committed, or with the error because of which they are not written;
    its decision is carried out next. Without it, an error is the reply and the answer of all.

    `is_atomic`: the records are one batch, which is there whole or not at all. Otherwise there may be as many
    batches as are needed, and a crash or a full disk may come between them: what was written stays, and the
    one who asked is told of the error, and asks again.

    `producer`: (id, epoch) of the transaction that the records belong to.

    `sends`: what is to be done elsewhere because of it, once the records are committed and the replies have
    left. The driver of the shard knows how; it comes back with what it hears."""

    records: Sequence[Encodable] = ()
    reply: R | None = None
    answers: Sequence[Answer] = ()
    then: Callable[[KafkaError | None], Decision[Any]] | None = None
    is_atomic: bool = True
    producer: tuple[int, int] = NO_PRODUCER
    sends: Sequence[Any] = ()


NOTHING: Decision[Any] = Decision()
"""Nothing to write, nobody to answer."""
