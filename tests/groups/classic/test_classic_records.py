"""Records of classic groups: as Apache Kafka 4.3 writes them, and read in every version there was."""

from __future__ import annotations

from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from moldau.groups.classic.group import NO_TIMESTAMP, ClassicState
from moldau.groups.classic.records import group_record, read_group
from moldau.groups.group import Client
from moldau.groups.records import RECORD_TYPES, GroupMetadataKey, GroupMetadataValue, MemberMetadata
from moldau.records.batch import iterate_headers
from moldau.records.record import Record, read_records
from moldau.wire.errors import ErrorCode
from tests.groups.classic.classic_members import GROUP, SESSION_MS, ClassicDriver

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "consumer_offsets" / "1.log"
NAME = "gold-classic"


def golden() -> list[Record]:
    """The records of the group: it came to be, one consumer joined, committed and left."""
    data = memoryview(GOLDEN.read_bytes())
    records = [
        record
        for position, header in iterate_headers(data)
        for record in read_records(data[position : position + header.size])
    ]
    return [record for record in records if record.key == b"\0\2\0\x0c" + NAME.encode()]


class Chosen(Random):
    """Makes the id that was made then."""

    def __init__(self, uuid: UUID) -> None:
        super().__init__()
        self.uuid = uuid

    def getrandbits(self, k: int) -> int:
        return self.uuid.int


def test_the_same_life_is_written_as_kafka_wrote_it_byte_for_byte() -> None:
    records = golden()
    values = [RECORD_TYPES.decode(record.key or b"", record.value).value for record in records]
    created, assigned, left = values
    [member] = assigned.members
    driver = ClassicDriver(
        now_ms=created.current_state_timestamp, group_initial_rebalance_delay_ms=0, group_max_size=1
    )
    driver.environment.random = Chosen(UUID(member.member_id.removeprefix("rdkafka-")))
    options = {
        "group_id": NAME,
        "client": Client("rdkafka", "/127.0.0.1"),
        "session_ms": member.session_timeout,
        "rebalance_ms": member.rebalance_timeout,
        "protocols": [("range", member.subscription), ("roundrobin", member.subscription)],
    }
    told = driver.send_join("", **options).result()
    assert told.member_id == member.member_id
    driver.now_ms = assigned.current_state_timestamp
    joined = driver.send_join(told.member_id, **options)
    driver.advance(0)
    assert joined.result().generation_id == assigned.generation
    driver.send_sync(member.member_id, 1, {member.member_id: member.assignment}, group_id=NAME)
    driver.now_ms = left.current_state_timestamp
    driver.send_leave(member.member_id, group_id=NAME)
    assert driver.log == [(record.key, record.value) for record in records]


def value(version: int) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m",
        current_state_timestamp=123 if version >= 2 else NO_TIMESTAMP,
        members=[
            MemberMetadata(
                member_id="m",
                group_instance_id="one" if version >= 3 else None,
                client_id="client",
                client_host="/10.0.0.1",
                rebalance_timeout=30_000 if version >= 1 else -1,
                session_timeout=SESSION_MS,
                subscription=b"s",
                assignment=b"a",
            )
        ],
    )


@pytest.mark.parametrize("version", range(5))
def test_a_group_of_any_version_is_read_and_its_members_go_on(version: int) -> None:
    driver = ClassicDriver()
    driver.write(GroupMetadataKey(group=GROUP), value(version), version)
    driver.reload()
    group = driver.group()
    assert (group.state, group.generation, group.leader_id) == (ClassicState.STABLE, 7, "m")
    assert group.state_since_ms == (123 if version >= 2 else NO_TIMESTAMP)
    assert group.members["m"].rebalance_timeout_ms == (30_000 if version >= 1 else SESSION_MS)
    assert driver.beat("m", 7, instance_id="one" if version >= 3 else None) == ErrorCode.NONE
    assert driver.send_join("m", protocols=[("range", b"s")]).result().generation_id == 8


def test_what_is_read_is_written_again_alike() -> None:
    record = group_record(read_group(GROUP, value(3)))
    assert (record.key, record.value, record.version) == (GroupMetadataKey(group=GROUP), value(3), 3)


def test_the_last_record_of_a_group_counts() -> None:
    driver = ClassicDriver()
    driver.write(GroupMetadataKey(group=GROUP), value(3), 3)
    driver.write(GroupMetadataKey(group=GROUP), None)
    assert driver.replayed().groups.get(GROUP) is None
    driver.write(
        GroupMetadataKey(group=GROUP), GroupMetadataValue(generation=9, protocol=None, leader=None), 3
    )
    driver.reload()
    assert driver.group().state is ClassicState.EMPTY and driver.group().generation == 9


def test_a_group_that_had_offsets_before_it_had_members_is_that_group() -> None:
    driver = ClassicDriver()
    driver.shard.classic.create_group(GROUP)
    driver.settle(2)
    driver.reload()
    assert len(driver.group().members) == 2
