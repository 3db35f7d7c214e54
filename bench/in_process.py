"""`python -m bench.in_process`: what requests of groups, produce and fetch cost Moldau itself, from frame to
frame.

A node is started in this process, and its dispatcher is given frames in a loop: no socket, no generator and
no other process takes part. Of many rounds the fastest counts, so that a figure comes out the same on a
machine that has other work, and tells of a change of a few percent. Unlike everything else here it knows
Moldau from the inside, and compares it with nothing but itself.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from bench import frames, group_frames
from bench.kafka import free_port
from bench.loads.commit import PARTITIONS
from moldau.config.broker import BrokerConfig
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.runtime.real import RealRuntime, run
from moldau.server.main import format_new_directories
from moldau.server.node import Node

_TOPIC = "in-process"
_GROUPS = [f"in-process-{number}" for number in range(1000)]
_MEMBER = b"3d0f2c6e-59f2-4b0e-8f0a-6a4c7c1f2b11"
_ROUNDS = 60
_REQUESTS = 200  # of a round


_Case = tuple[str, Callable[[], Sequence[bytes | bytearray]]]


class _Connection:
    """As much of one as a dispatcher asks for. A reply that comes later is kept."""

    peer_host, peer_port, state = "127.0.0.1", 1, "PLAINTEXT"
    closed = False

    def __init__(self) -> None:
        self.client_id: str | None = None
        self.client_software = ("bench", "1")
        self.on_closed: object = None
        self.timers: list[object] = []
        self.later: asyncio.Queue[Any] = asyncio.Queue()

    def reply(self, reply: Any) -> None:
        self.later.put_nowait(reply)

    def time_parked(self, *_: object) -> None:
        pass


class _Asker:
    def __init__(self, node: Node) -> None:
        self._dispatch: Any = node.dispatcher.dispatch
        self._connection = _Connection()

    async def ask(self, request: bytes) -> bytearray:
        """The payload of the answer."""
        reply = self._dispatch(self._connection, memoryview(request)[4:], 0.0)
        if not isinstance(reply, bytes | bytearray):
            reply = await self._connection.later.get()
        return bytearray(reply[4:])

    def fastest_us(self, make: Callable[[], Sequence[bytes | bytearray]]) -> float:
        """Of one request. They are of a kind that is answered at once; `make` makes those of a round."""
        dispatch, connection, best = self._dispatch, self._connection, float("inf")
        for _ in range(_ROUNDS):
            views = [memoryview(request)[4:] for request in make()]
            views = views * -(-_REQUESTS // len(views))
            reply = dispatch(connection, views[0], 0.0)
            assert isinstance(reply, bytearray | bytes | list), "it is not answered at once"
            started = time.perf_counter()
            for view in views[1:]:
                dispatch(connection, view, 0.0)
            best = min(best, (time.perf_counter() - started) / (len(views) - 1))
            connection.timers.clear()
        return best * 1e6


async def measure(runtime: RealRuntime, directory: Path, patterns: Sequence[str]) -> None:
    config = BrokerConfig.parse(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{free_port()}",
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},CONTROLLER://127.0.0.1:{free_port()}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(directory),
            "offsets.topic.replication.factor": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
    )
    format_new_directories(runtime, config)
    node = await Node.start(runtime, config)
    try:
        asker = _Asker(node)
        await _prepare(asker)
        classic, consumer = await _join_classic(asker), await _join_consumer(asker)
        gc.collect()
        gc.freeze()
        for name, make in (*_group_cases(classic, consumer), *_data_cases(node)):
            if not patterns or any(fnmatch(name, pattern) for pattern in patterns):
                print(f"{name:24} {asker.fastest_us(make):7.2f} µs", flush=True)
    finally:
        gc.unfreeze()
        await node.stop()


def _group_cases(classic: bytes, consumer: bytes) -> Iterator[_Case]:
    commit, everything = group_frames.offset_commit, range(PARTITIONS)

    def same(name: str, requests: list[bytes]) -> _Case:
        return name, lambda: requests

    yield same("commit-one-group", [commit(_GROUPS[0], _TOPIC, [index], 1_000_000) for index in everything])
    yield same("commit-1000-groups", [commit(group, _TOPIC, [1], 1_000_000) for group in _GROUPS])
    yield same("commit-10-partitions", [commit(group, _TOPIC, everything, 1_000_000) for group in _GROUPS])
    yield same("fetch-offsets", [group_frames.offset_fetch([group]) for group in _GROUPS])
    yield same("heartbeat-classic", [classic])
    yield same("heartbeat-consumer", [consumer])


def _data_cases(node: Node) -> Iterator[_Case]:
    """A partition for each. The leader writes into the batches that it gets, so each round has its own."""
    records = [Record(0, 1_700_000_000_000, b"key", bytes(1000))]
    plain = frames.produce(_TOPIC, build_batch(records), partition=0)
    yield "produce", lambda: [bytearray(plain) for _ in range(_REQUESTS)]
    large = frames.produce(_TOPIC, build_batch(records * 16), partition=0)
    yield "produce-16k", lambda: [bytearray(large) for _ in range(_REQUESTS)]
    yield "fetch", lambda: [frames.fetch(_TOPIC, 0, max_bytes=1100)]
    yield "produce-idempotent", _Producer(1, records).requests
    transactional = _Producer(2, records, transactional_id="bench")
    transactional.begin(node)
    yield "produce-transactional", transactional.requests


class _Producer:
    """Numbers its batches; it writes to the partition with the number of its id."""

    def __init__(self, id: int, records: Sequence[Record], transactional_id: str | None = None) -> None:
        self._id = id
        self._records = records
        self._transactional_id = transactional_id
        self._sequence = 0

    def begin(self, node: Node) -> None:
        """A transaction, of which no coordinator is told."""
        partition = node.services.partition(_TOPIC, self._id)
        now_ms = time.time_ns() // 1_000_000
        verification = partition.leader_log().producers.trust(self._id, 0, now_ms)
        partition.append_transactional(memoryview(self._batch()), 1, now_ms, verification)

    def requests(self) -> list[bytearray]:
        return [
            bytearray(
                frames.produce(
                    _TOPIC, self._batch(), partition=self._id, transactional_id=self._transactional_id
                )
            )
            for _ in range(_REQUESTS)
        ]

    def _batch(self) -> bytearray:
        batch = build_batch(
            self._records,
            producer_id=self._id,
            producer_epoch=0,
            base_sequence=self._sequence,
            is_transactional=self._transactional_id is not None,
        )
        self._sequence += 1
        return bytearray(batch)


async def _prepare(asker: _Asker) -> None:
    """The topics, and a coordinator for each group."""
    created = await asker.ask(frames.create_topic(_TOPIC, PARTITIONS))
    assert not frames.create_topic_error(created, _TOPIC)
    while group_frames.first_error(await asker.ask(group_frames.find_coordinator(_GROUPS[0]))):
        await asyncio.sleep(0.01)
    for group in _GROUPS:
        request = group_frames.offset_commit(group, _TOPIC, [0], 0)
        error_at = group_frames.commit_error_at(_TOPIC)
        while (await asker.ask(request))[error_at : error_at + 2] != b"\0\0":
            await asyncio.sleep(0.01)


async def _join_classic(asker: _Asker) -> bytes:
    """A heartbeat of the only member of a stable group."""
    member_id = b""
    for _ in range(2):  # the first time it is told its id
        request = group_frames.join_group("classic", member_id, [_TOPIC], 60_000)
        joined = group_frames.joined(await asker.ask(request))
        member_id = joined.member_id
    assert not joined.error_code
    share = {member_id: group_frames.assignment(_TOPIC, range(PARTITIONS))}
    synced = await asker.ask(group_frames.sync_group("classic", joined.generation, member_id, share))
    assert not group_frames.first_error(synced)
    return group_frames.heartbeat("classic", joined.generation, member_id)


async def _join_consumer(asker: _Asker) -> bytes:
    """The same in the consumer protocol: the member has what it was assigned, and there is nothing new."""
    joining = group_frames.consumer_group_heartbeat(
        "consumer", _MEMBER, 0, topics=[_TOPIC], owned={}, rebalance_timeout_ms=60_000
    )
    told = group_frames.beaten(await asker.ask(joining))
    owning = group_frames.consumer_group_heartbeat("consumer", _MEMBER, told.epoch, owned=told.assigned)
    told = group_frames.beaten(await asker.ask(owning))
    assert told.epoch > 0
    return group_frames.consumer_group_heartbeat("consumer", _MEMBER, told.epoch)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.in_process", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="NAME", help="a request, or a pattern")
    patterns = parser.parse_args().only
    with tempfile.TemporaryDirectory(prefix="bench-in-process-") as parent:
        run(lambda runtime: measure(runtime, Path(parent) / "data", patterns))


if __name__ == "__main__":
    main()
