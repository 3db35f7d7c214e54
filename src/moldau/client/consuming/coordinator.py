"""Who coordinates a group: found when somebody needs it, forgotten when it turns out to be somebody else."""

from __future__ import annotations

from collections.abc import Callable

from moldau.client.consuming.asking import Ask, Backoff, Effect, may_pass
from moldau.client.errors import error_of
from moldau.wire.errors import ErrorCode, KafkaError, error_code
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

_ONE_KEY_MAX = 3
_GROUP = 0
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class Coordinator:
    def __init__(
        self, group_id: str, *, spread: Callable[[], float], retry_backoff_ms: int, retry_backoff_max_ms: int
    ) -> None:
        self.group_id = group_id
        self.node_id: int | None = None
        self.address: tuple[int, str, int] | None = None
        """Where it is, for whoever connects; metadata need not have told of it."""
        self.is_needed = False
        self.failure: KafkaError | None = None
        """Why it is not known, as long as that may pass."""
        self.error: KafkaError | None = None
        """Why it will not be known."""
        self._is_asked = False
        self._backoff = Backoff(retry_backoff_ms, retry_backoff_max_ms, spread)

    def step(self, now_ms: int) -> tuple[list[Effect], int | None]:
        if self.node_id is not None or not self.is_needed or self._is_asked or self.error is not None:
            return [], None
        if self._backoff.until_ms > now_ms:
            return [], self._backoff.until_ms
        self._is_asked = True
        request = FindCoordinatorRequest(key=self.group_id, key_type=_GROUP)
        return [
            Ask(
                self,
                None,
                None,
                FindCoordinatorRequest,
                lambda _: request,
                FindCoordinatorResponse,
                _ONE_KEY_MAX,
            )
        ], None

    def on_response(self, now_ms: int, _: None, response: FindCoordinatorResponse) -> None:
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            reason = response.error_message or f"the coordinator of group {self.group_id!r}"
            self.on_failure(now_ms, None, error_of(code, reason))
            return
        self._is_asked = self.is_needed = False
        self.failure = None
        self.node_id = response.node_id
        self.address = (response.node_id, response.host, response.port)

    def on_failure(self, now_ms: int, _: None, error: KafkaError) -> None:
        self._is_asked = False
        self._backoff.failed(now_ms)
        if may_pass(error):
            self.failure = error
        else:
            self.error = error

    def lost(self, now_ms: int, error: KafkaError) -> bool:
        """Whether an error says that the coordinator is another one, or cannot be reached. It is looked for
        again, after a pause if that keeps happening."""
        if error.code not in _MOVED and error.code not in (
            ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.BROKER_NOT_AVAILABLE,
        ):
            return False
        if self.node_id is not None:
            self.node_id = None
            self._backoff.failed(now_ms)
        self.failure = error
        return True

    def answered(self) -> None:
        self._backoff.succeeded()
        self.failure = None
