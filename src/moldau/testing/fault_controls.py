"""The calls by which a test makes requests go wrong: the same for a real node and for a simulated one, which
say how a rule gets to the node."""

from __future__ import annotations

from abc import ABC, abstractmethod

from moldau.testing.faults import Action, Delay, Fail, Lose, Match, api_named, error_named
from moldau.wire.errors import ErrorCode


class Fault:
    """One rule that was added to a node."""

    def __init__(self, controls: FaultControls, number: int) -> None:
        self._controls = controls
        self._number = number

    @property
    def hits(self) -> int:
        """How many requests have met it."""
        return self._controls.hits_of(self._number)

    def clear(self) -> None:
        """It happens no more."""
        self._controls.remove_rule(self._number)


class FaultControls(ABC):
    @abstractmethod
    def add_rule(self, match: Match, action: Action, times: int | None) -> int:
        """The rule's number."""

    @abstractmethod
    def hits_of(self, number: int) -> int: ...

    @abstractmethod
    def remove_rule(self, number: int) -> None: ...

    def fail_next(
        self,
        api: str,
        *,
        error: ErrorCode | str | int,
        times: int = 1,
        topic: str | None = None,
        client_id: str | None = None,
        whole: bool = False,
    ) -> Fault:
        """The next `times` requests of this API are answered with the error, and nothing of them is done.
        With `topic` only those that mention it count; such a request fails for its other topics, too. The
        error is in each topic, partition or group of the answer, or with `whole` on top of it."""
        return self._add(api, topic, client_id, Fail(error=error_named(error), whole=whole), times)

    def delay(
        self,
        api: str | None = None,
        *,
        seconds: float,
        times: int | None = None,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Requests (of this API, or all) are handled so much later, until the fault is cleared."""
        return self._add(api, topic, client_id, Delay(seconds=seconds), times)

    def lose_next(
        self, api: str, *, times: int = 1, topic: str | None = None, client_id: str | None = None
    ) -> Fault:
        """The next `times` requests of this API are done, and their answers never arrive: the connection is
        closed instead."""
        return self._add(api, topic, client_id, Lose(), times)

    def _add(
        self, api: str | None, topic: str | None, client_id: str | None, action: Action, times: int | None
    ) -> Fault:
        match = Match(api=None if api is None else api_named(api), topic=topic, client_id=client_id)
        return Fault(self, self.add_rule(match, action, times))
