"""What the rules of a consumer want from outside: requests to be sent, metadata, and calls of the program.

An `Ask` is answered to its `owner` exactly once: by `on_response` or by `on_failure`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from moldau.client.errors import BlockedTooLongError
from moldau.client.producing.operations import Operation
from moldau.client.topology import TopicPartition
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.schema import Message

FETCH_LANE = "fetch"
GROUP_LANE = "group"
"""A broker answers a connection in order, and a request that waits there keeps what is behind it waiting. So
what may wait has connections of its own."""


class Owner(Protocol):
    """Whoever asks. `about` is what it wrote on the question."""

    def on_response(self, now_ms: int, about: Any, response: Any) -> None: ...
    def on_failure(self, now_ms: int, about: Any, error: KafkaError) -> None: ...


class Ask(NamedTuple):
    """A request to a node, or to any. Its layout depends on the version that both sides know."""

    owner: Owner
    about: Any
    node_id: int | None
    request: type[Message]
    message: Callable[[int], Message]
    response: type[Message]
    version_max: int | None = None
    timeout_ms: int | None = None
    lane: str = ""


class RefreshMetadata(NamedTuple):
    """Ask the cluster about topics; None is all of them."""

    topics: tuple[str, ...] | None


Effect: TypeAlias = Ask | RefreshMetadata


class Revoked(NamedTuple):
    """The program is to finish with these. They are still the member's until that has been done."""

    places: Sequence[TopicPartition]


class Lost(NamedTuple):
    """They are somebody else's already."""

    places: Sequence[TopicPartition]


class Assigned(NamedTuple):
    """New ones, maybe none."""

    places: Sequence[TopicPartition]


Change: TypeAlias = Revoked | Lost | Assigned
"""What becomes of an assignment. The program is told in `poll`, and the rules wait until it has been."""


class Call(Operation):
    """What the program waits for, until `deadline_ms`; `result` is what it is told."""

    __slots__ = ("deadline_ms", "result")

    def __init__(self, name: str, deadline_ms: int | None = None) -> None:
        super().__init__(name)
        self.deadline_ms = deadline_ms
        self.result: Any = None

    def end(self, finished: list[Call], error: KafkaError | None = None) -> None:
        if not self.is_done:
            self.is_done = True
            self.error = error
            finished.append(self)


def may_pass(error: KafkaError) -> bool:
    """Whether to go on after a failed request. A node that is not known may be, when metadata come."""
    return error.code.retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE


def too_late(call: Call, failure: KafkaError | None) -> KafkaError:
    reason = f"{call.name} took too long"
    return BlockedTooLongError(
        ErrorCode.REQUEST_TIMED_OUT, reason if failure is None else f"{reason}: {failure.message or failure}"
    )


class Backoff:
    """The pauses between repetitions, doubled each time. They are spread by `spread`, a factor that the
    one who has chance at hand gives, so that clients that failed together do not come back together."""

    __slots__ = ("_attempts", "_first_ms", "_max_ms", "_spread", "until_ms")

    def __init__(self, first_ms: int, max_ms: int, spread: Callable[[], float]) -> None:
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._spread = spread
        self._attempts = 0
        self.until_ms = 0

    def failed(self, now_ms: int) -> None:
        pause_ms = min(self._first_ms << min(self._attempts, 16), self._max_ms)
        self._attempts += 1
        self.until_ms = now_ms + int(pause_ms * self._spread())

    def succeeded(self) -> None:
        self._attempts = 0
        self.until_ms = 0


def soonest(*moments_ms: int | None) -> int | None:
    return min((moment for moment in moments_ms if moment is not None), default=None)
