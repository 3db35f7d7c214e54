"""A restart with many groups: from the launch of the process until their offsets can be fetched again.

Ten thousand groups have committed ten partitions each. One group of each partition of `__consumer_offsets` is
asked for its offsets, all in one request, over and over from the launch on, until no partition is still
being loaded. `loading_s` is the part of that from the first answer, whatever it said, on.
"""

from __future__ import annotations

import time

from bench import frames, group_frames, topics
from bench.brokers import Broker
from bench.loads import Sample, Subject, Unshared
from bench.loads.commit import find_coordinators

_TOPIC = "offsets-of"
_GROUPS = 10_000
_PARTITIONS = 10
_OFFSETS_PARTITIONS = 50  # offsets.topic.num.partitions
_IN_FLIGHT = 50


class LoadGroups(Unshared):
    name = "load-groups"
    needs_java = False
    on_stub = False

    def run(self, subject: Subject, scale: float) -> Sample:
        groups = [f"loaded-{number}" for number in range(int(_GROUPS * scale))]
        with subject.fresh() as broker:
            topics.create_wide(broker.bootstrap, _TOPIC, _PARTITIONS)
            commit_all(broker.bootstrap, groups)
            broker.stop()
            return until_loaded(broker, one_of_each_partition(groups))


def commit_all(bootstrap: str, groups: list[str]) -> None:
    """All partitions by each group; over one connection, some requests in flight."""
    find_coordinators(bootstrap, one_of_each_partition(groups))
    error_at = group_frames.commit_error_at(_TOPIC)
    with frames.connect(bootstrap) as sock:
        for sent in range(len(groups) + _IN_FLIGHT):
            if sent < len(groups):
                sock.sendall(group_frames.offset_commit(groups[sent], _TOPIC, range(_PARTITIONS), sent))
            if sent >= _IN_FLIGHT:
                answer = frames.receive(sock)
                if answer[error_at : error_at + 2] != b"\0\0":
                    code = int.from_bytes(answer[error_at : error_at + 2], "big", signed=True)
                    raise frames.BrokerAnswered("OffsetCommit", code)


def one_of_each_partition(groups: list[str]) -> list[str]:
    """Of the partitions that these groups are spread over."""
    return list({partition_of(group): group for group in groups}.values())


def partition_of(group: str) -> int:
    """Java's hash of the string, made positive, modulo the partitions."""
    code = 0
    for unit in group.encode("ascii"):
        code = (31 * code + unit) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % _OFFSETS_PARTITIONS


def until_loaded(broker: Broker, sample: list[str], timeout_s: float = 120) -> Sample:
    request = group_frames.offset_fetch(sample)
    answered_at = 0.0
    started = time.monotonic()
    broker.launch()
    while time.monotonic() - started < timeout_s:
        try:
            with frames.connect(broker.bootstrap) as sock:
                while time.monotonic() - started < timeout_s:
                    found = group_frames.fetched_offsets(frames.call(sock, request))
                    now = time.monotonic()
                    answered_at = answered_at or now
                    if is_loaded(found, len(sample)):
                        return {"seconds": now - started, "loading_s": now - answered_at}
                    time.sleep(0.005)
        except OSError:
            pass  # not listening yet
        time.sleep(0.002)
    raise TimeoutError(f"{broker.name} has not loaded its groups in {timeout_s:.0f} s")


def is_loaded(found: dict[bytes, group_frames.FetchedGroup], groups: int) -> bool:
    """Whether all have answered; what they then tell has to be all that they have."""
    for group in found.values():
        if group.error_code in group_frames.NOT_HERE_YET:
            return False
        if group.error_code:
            raise frames.BrokerAnswered("OffsetFetch", group.error_code)
    offsets = sum(group.offsets for group in found.values())
    if offsets != groups * _PARTITIONS:
        raise ValueError(f"{offsets} offsets are left of those of {groups} groups")
    return True
