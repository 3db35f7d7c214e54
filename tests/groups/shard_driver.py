"""A group shard on virtual time, driven as the coordinator drives it: what is decided is written, applied,
and answered when it is committed. Its log holds encoded records, so that a reload reads what was written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from moldau.config.broker import BrokerConfig
from moldau.coordinator.decision import Decision, Waiter
from moldau.coordinator.record import CoordinatorRecord, Encodable
from moldau.groups.environment import GroupEnvironment
from moldau.groups.group import Client
from moldau.groups.records import RECORD_TYPES
from moldau.groups.shard import GroupShard
from moldau.metadata.image import ClusterImage
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.schema import Message

CLIENT = Client("client", "/127.0.0.1")
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
}


class ShardDriver:
    def __init__(self, *, seed: int = 0, now_ms: int = 1_000_000, **properties: object) -> None:
        given = {name.replace("_", "."): str(value) for name, value in properties.items()}
        self.environment = GroupEnvironment(
            config=BrokerConfig.parse({**_PROPERTIES, **given}), image=ClusterImage(), random=Random(seed)
        )
        self.now_ms = now_ms
        self.log: list[tuple[bytes, bytes | None]] = []
        self.write_failure: KafkaError | None = None
        self.is_committing = True
        self.expired_count = 0
        """Events of timers."""
        self._uncommitted: deque[tuple[Decision[Any], Waiter[Any] | None]] = deque()
        self.shard = GroupShard(0, self.environment)
        self._carry_out(self.shard.on_loaded(now_ms), None)
        self._timers_without_groups = len(self.shard.timers)

    @property
    def timer_count(self) -> int:
        """Of the groups that there are."""
        return len(self.shard.timers) - self._timers_without_groups

    def submit(self, decide: Callable[[GroupShard, int, Waiter[Any]], Decision[Any]]) -> Waiter[Any]:
        waiter: Waiter[Any] = Waiter()
        try:
            decision = decide(self.shard, self.now_ms, waiter)
        except KafkaError as failure:
            waiter.fail(failure)
        else:
            self._carry_out(decision, waiter)
        return waiter

    def advance(self, by_ms: int) -> None:
        """Time passes, and everything happens when it is due."""
        until_ms = self.now_ms + by_ms
        while (next_ms := self.shard.timers.next_ms()) is not None and next_ms <= until_ms:
            self.now_ms = max(self.now_ms, next_ms)
            event = self.shard.timers.take_due(self.now_ms)
            if event is not None:
                self.expired_count += 1
                self._carry_out(self.shard.on_timer(self.now_ms, event), None)
        self.now_ms = until_ms

    def commit(self) -> None:
        """Everything that was written while `is_committing` was off."""
        self.is_committing = True
        while self._uncommitted:
            self._finish(*self._uncommitted.popleft())

    def replayed(self) -> GroupShard:
        """Another shard, on the same log."""
        shard = GroupShard(0, self.environment)
        for record in self.records():
            shard.apply(record, -1)
        return shard

    def reload(self) -> None:
        """The leadership is lost and comes back."""
        waiting = [*self.shard.on_unloaded()]
        for decision, waiter in self._uncommitted:
            waiting += [each for each, _ in decision.answers] + ([waiter] if waiter is not None else [])
        self._uncommitted.clear()
        for each in waiting:
            each.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
        self.shard = self.replayed()
        self._carry_out(self.shard.on_loaded(self.now_ms), None)

    def records(self) -> list[CoordinatorRecord]:
        decoded = [RECORD_TYPES.decode(key, value) for key, value in self.log]
        return [record for record in decoded if record is not None]

    def write(self, key: Message, value: Message | None, version: int = 0) -> None:
        """A record that somebody else has written."""
        record = CoordinatorRecord(key, value, version)
        self.log.append(record.encode())

    def _carry_out(self, decision: Decision[Any], waiter: Waiter[Any] | None) -> None:
        if decision.records and self.write_failure is not None:
            if decision.then is not None:
                self._carry_out(decision.then(self.write_failure), waiter)
                return
            for each in [waiter, *(each for each, _ in decision.answers)]:
                if each is not None:
                    each.fail(self.write_failure)
            return
        for record in decision.records:
            self.log.append(record.encode())
            self.shard.apply(self.records_of(record), -1)
        if self.is_committing or not (decision.records or self._uncommitted):
            self._finish(decision, waiter)
        else:
            self._uncommitted.append((decision, waiter))

    @staticmethod
    def records_of(record: Encodable) -> CoordinatorRecord:
        """As it is read back: what is applied is no object that the machine still holds."""
        decoded = RECORD_TYPES.decode(*record.encode())
        assert decoded is not None
        return decoded

    def _finish(self, decision: Decision[Any], waiter: Waiter[Any] | None) -> None:
        if waiter is not None and decision.reply is not None:
            waiter.give(decision.reply)
        for each, answer in decision.answers:
            if isinstance(answer, KafkaError):
                each.fail(answer)
            else:
                each.give(answer)
        if decision.then is not None:
            self._carry_out(decision.then(None), None)
