"""One member of a stable group of fifty falls silent: the time until the others have its partitions.

Fifty members, each with a connection, are driven from one process, as simple as members can be: they beat at
a fixed interval, and do at once what an answer asks of them. The one that dies stops between two heartbeats
and keeps its connection, so that nothing but its session timeout gives it away. It is over when all others
are of one generation (classic) or epoch (consumer) and have all partitions, each once.
"""

from __future__ import annotations

import json
import select
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from bench import frames, group_frames
from bench.brokers import SESSION_MS
from bench.loads import Sample, Subject, Unshared, child, child_arguments, topic_of
from bench.loads.commit import find_coordinators

_MEMBERS = 50
_PARTITIONS = 200
_SESSION_S = SESSION_MS / 1000
_INTERVAL_S = 0.1
_STABLE_FOR_S = 1.5  # before one dies; also longer than a consumer group's least time between assignments


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance(Unshared):
    name: str
    protocol: str
    needs_java: bool = False
    on_stub: bool = False

    def run(self, subject: Subject, scale: float) -> Sample:
        broker = subject.running
        with topic_of(broker, self.name, _PARTITIONS) as topic:
            return child("rebalance", bootstrap=broker.bootstrap, topic=topic, protocol=self.protocol)


class Member(ABC):
    """What one member knows, and how it goes on from an answer."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.member_id = b""
        self.epoch = 0
        self.partitions: list[int] | None = None
        """None while it does not know what it has."""

    @abstractmethod
    def first(self) -> bytes: ...

    @abstractmethod
    def beat(self) -> bytes: ...

    @abstractmethod
    def on_answer(self, payload: bytearray) -> bytes | None:
        """What has to be sent at once; None to beat when it is time."""


class ClassicMember(Member):
    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self._on_answer: Callable[[bytearray], bytes | None] = self._on_joined

    def first(self) -> bytes:
        self._on_answer, self.partitions = self._on_joined, None
        group = self.group
        return group_frames.join_group(group.name, self.member_id, [group.topic], SESSION_MS)

    def beat(self) -> bytes:
        self._on_answer = self._on_beaten
        return group_frames.heartbeat(self.group.name, self.epoch, self.member_id)

    def on_answer(self, payload: bytearray) -> bytes | None:
        return self._on_answer(payload)

    def _on_joined(self, payload: bytearray) -> bytes | None:
        joined = group_frames.joined(payload)
        if joined.error_code == group_frames.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return self.first()
        _check("JoinGroup", joined.error_code)
        self.epoch = joined.generation
        shares = {
            member: group_frames.assignment(self.group.topic, range(place, _PARTITIONS, len(joined.members)))
            for place, member in enumerate(joined.members)
        }
        self._on_answer = self._on_synced
        return group_frames.sync_group(self.group.name, self.epoch, self.member_id, shares)

    def _on_synced(self, payload: bytearray) -> bytes | None:
        error = group_frames.first_error(payload)
        if error == group_frames.REBALANCE_IN_PROGRESS:
            return self.first()
        _check("SyncGroup", error)
        self.partitions = group_frames.synced(payload)
        return None

    def _on_beaten(self, payload: bytearray) -> bytes | None:
        error = group_frames.first_error(payload)
        if error == group_frames.REBALANCE_IN_PROGRESS:
            return self.first()
        _check("Heartbeat", error)
        return None


class ConsumerMember(Member):
    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.member_id = str(uuid.uuid4()).encode()
        self._owned: dict[bytes, list[int]] = {}

    def first(self) -> bytes:
        group = self.group
        return group_frames.consumer_group_heartbeat(
            group.name,
            self.member_id,
            0,
            topics=[group.topic],
            owned={},
            rebalance_timeout_ms=SESSION_MS,
        )

    def beat(self) -> bytes:
        return group_frames.consumer_group_heartbeat(self.group.name, self.member_id, self.epoch)

    def on_answer(self, payload: bytearray) -> bytes | None:
        _check("ConsumerGroupHeartbeat", group_frames.first_error(payload))
        told = group_frames.beaten(payload)
        self.epoch = told.epoch
        if told.assigned is None or told.assigned == self._owned:
            return None
        self._owned = told.assigned
        self.partitions = [index for indexes in told.assigned.values() for index in indexes]
        return group_frames.consumer_group_heartbeat(
            self.group.name, self.member_id, self.epoch, owned=self._owned
        )


class Group:
    """Drives its members over their connections."""

    def __init__(self, bootstrap: str, topic: str, kind: type[Member], stack: ExitStack) -> None:
        self.name = self.topic = topic
        self.members = [kind(self) for _ in range(_MEMBERS)]
        self._sockets = [stack.enter_context(frames.connect(bootstrap, timeout_s=30)) for _ in self.members]
        self._by_number = {sock.fileno(): place for place, sock in enumerate(self._sockets)}
        self._poll = stack.enter_context(select.epoll())
        for number in self._by_number:
            self._poll.register(number, select.EPOLLIN)
        now = self._begun_s = time.monotonic()
        self._next_s = [now + self._phase_s(place) for place in range(_MEMBERS)]
        self._is_waiting = [False] * _MEMBERS
        self._has_begun = [False] * _MEMBERS
        self._silent: set[int] = set()
        self.last_answer_s = [now] * _MEMBERS

    @staticmethod
    def _phase_s(place: int) -> float:
        """Members beat evenly over the interval, whatever they do in between: how long it takes until the
        last of them has heard of something must not depend on how the group was formed."""
        return place * _INTERVAL_S / _MEMBERS

    def silence(self, place: int) -> None:
        """Once its last heartbeat is answered."""
        self.run_until(lambda: not self._is_waiting[place])
        self._silent.add(place)

    def is_stable(self) -> bool:
        alive = [member for place, member in enumerate(self.members) if place not in self._silent]
        if len({member.epoch for member in alive}) != 1 or any(each.partitions is None for each in alive):
            return False
        owned = [index for member in alive for index in member.partitions or ()]
        return len(owned) == _PARTITIONS == len(set(owned))

    def run_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self.run_until(lambda: time.monotonic() >= until)

    def run_until(self, is_over: Callable[[], bool], timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_over():
            now = time.monotonic()
            if now > deadline:
                raise TimeoutError(f"{self.name} has not become stable in {timeout_s:.0f} s")
            self._send_due(now)
            for number, _ in self._poll.poll(0.001):
                self._on_readable(self._by_number[number])

    def _send_due(self, now: float) -> None:
        for place, next_s in enumerate(self._next_s):
            if now >= next_s and not self._is_waiting[place] and place not in self._silent:
                member = self.members[place]
                self._send(place, member.beat() if self._has_begun[place] else member.first())
                self._has_begun[place] = True

    def _send(self, place: int, request: bytes) -> None:
        self._is_waiting[place] = True
        now = time.monotonic()
        self._next_s[place] = now + _INTERVAL_S - (now - self._begun_s - self._phase_s(place)) % _INTERVAL_S
        self._sockets[place].sendall(request)

    def _on_readable(self, place: int) -> None:
        payload = frames.receive(self._sockets[place])
        self._is_waiting[place] = False
        self.last_answer_s[place] = time.monotonic()
        following = self.members[place].on_answer(payload)
        if following is not None:
            self._send(place, following)


def generate(bootstrap: str, topic: str, *, protocol: str) -> Sample:
    find_coordinators(bootstrap, [topic])
    kind = {"classic": ClassicMember, "consumer": ConsumerMember}[protocol]
    with ExitStack() as stack:
        group = Group(bootstrap, topic, kind, stack)
        begun_s = time.monotonic()
        group.run_until(group.is_stable)
        formed_s = time.monotonic() - begun_s
        group.run_for(_STABLE_FOR_S)
        if not group.is_stable():
            raise RuntimeError("the group does not stay stable")
        dying = _MEMBERS // 2
        group.silence(dying)
        epoch, last_s = group.members[0].epoch, group.last_answer_s[dying]
        group.run_until(lambda: group.members[0].epoch > epoch and group.is_stable())
        total_s = time.monotonic() - last_s
    return {"seconds": total_s, "beyond_s": total_s - _SESSION_S, "formed_s": formed_s}


def _check(api: str, error_code: int) -> None:
    if error_code:
        raise frames.BrokerAnswered(api, error_code)


if __name__ == "__main__":
    print(json.dumps(generate(**child_arguments())))  # type: ignore[arg-type]
