from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.dump_files import UnknownFile, read_items
from moldau.coordinator.record import CoordinatorRecord, encode_key, encode_value
from moldau.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from moldau.log.checkpoints import encode_epochs, encode_offsets
from moldau.log.errors import CorruptFileError
from moldau.log.meta_properties import MetaProperties, encode_meta_properties
from moldau.log.partition_metadata import encode_partition_metadata
from moldau.log.producer_snapshot import encode_snapshot
from moldau.log.producer_state import BatchMetadata, ProducerEntry
from moldau.metadata.features import bootstrap_records
from moldau.metadata.framing import encode_record
from moldau.records.builder import build_batch
from moldau.records.compression import Codec
from moldau.records.control import ControlType, EndTxnMarker, build_end_txn_batch
from moldau.records.record import Record
from moldau.runtime.files import RealFileSystem
from moldau.wire.codec import ProtocolError, encode
from moldau.wire.errors import KafkaError
from moldau.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from tests.cli.conftest import moldau

SEGMENT = "00000000000000000000"
TIME = 1_700_000_000_000


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    first = build_batch(
        [
            Record(0, TIME, b"k", b"a\nb", (("h", b"x"), ("i", None))),
            Record(0, TIME + 5, None, b"\xff", ()),
        ],
        codec=Codec.GZIP,
        producer_id=9,
        producer_epoch=1,
        base_sequence=4,
        is_transactional=True,
        leader_epoch=3,
    )
    second = build_end_txn_batch(
        EndTxnMarker(ControlType.ABORT, 7),
        producer_id=9,
        producer_epoch=1,
        timestamp=TIME,
        base_offset=2,
    )
    path = directory / f"{SEGMENT}.log"
    path.write_bytes(first + second)
    return path


def lines(*arguments: object) -> list[str]:
    result = moldau("dump", *map(str, arguments))
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


def coordinator_segment(tmp_path: Path, topic: str, *records: Record) -> Path:
    directory = tmp_path / f"{topic}-7"
    directory.mkdir()
    path = directory / f"{SEGMENT}.log"
    path.write_bytes(build_batch(records))
    return path


def test_what_coordinators_keep_is_decoded(tmp_path: Path) -> None:
    key = OffsetCommitKey(group="g", topic="orders", partition=2)
    value = OffsetCommitValue(offset=5, leader_epoch=1, metadata="ž", commit_timestamp=TIME)
    kept = CoordinatorRecord(key, value, 3)
    path = coordinator_segment(
        tmp_path,
        "__consumer_offsets",
        Record(0, TIME, bytes(encode_key(kept)), bytes(encode_value(kept) or b"")),
        Record(0, TIME, bytes(encode_key(kept)), None),
        Record(0, TIME, b"\x00\x63", b"\x00\x00"),
    )
    shown = moldau("dump", "--records", str(path)).stdout.splitlines()[3:]
    told_key = '{"type":"1","data":{"group":"g","topic":"orders","partition":2}}'
    told_value = (
        f'{{"version":"3","data":{{"offset":5,"leaderEpoch":1,"metadata":"ž","commitTimestamp":{TIME}}}}}'
    )
    assert [line.partition("headerKeys: [] ")[2] for line in shown] == [
        f"key: {told_key} payload: {told_value}",
        f"key: {told_key} payload: <DELETE>",
        "key: Unknown record type 99 at offset 2, skipping.",
    ]
    (document,) = json.loads(moldau("dump", "--records", "--json", str(path)).stdout)
    first, second, third = document["items"][1]["records"]
    assert (first["key"], first["payload"]) == (json.loads(told_key), json.loads(told_value))
    assert (second["key"], second["payload"], third["unknown_type"]) == (json.loads(told_key), None, 99)
    # Without --records they are counted, not read.
    assert "key:" not in moldau("dump", "--deep", str(path)).stdout


def test_what_members_told_each_other_is_decoded_where_it_can_be(tmp_path: Path) -> None:
    subscription = b"\x00\x00" + encode(ConsumerProtocolSubscription(topics=["orders"]), 0)
    members = [
        MemberMetadata(member_id=name, client_id="c", client_host="/h", subscription=told, assignment=b"\xff")
        for name, told in (("a", bytes(subscription)), ("b", b""))
    ]
    kept = CoordinatorRecord(
        GroupMetadataKey(group="g"), GroupMetadataValue(protocol_type="consumer", members=members), 3
    )
    path = coordinator_segment(
        tmp_path,
        "__consumer_offsets",
        Record(0, TIME, bytes(encode_key(kept)), bytes(encode_value(kept) or b"")),
    )
    (document,) = json.loads(moldau("dump", "--records", "--json", str(path)).stdout)
    told = document["items"][1]["records"][0]["payload"]["data"]["members"]
    assert [member["subscription"] for member in told] == [{"topics": ["orders"], "userData": None}, ""]
    assert [member["assignment"] for member in told] == ["/w==", "/w=="]


def test_a_damaged_record_of_a_coordinator_is_told_of(tmp_path: Path) -> None:
    path = coordinator_segment(tmp_path, "__consumer_offsets", Record(0, TIME, None, b"x"))
    result = moldau("dump", "--records", str(path))
    assert (result.exit_code, "has no key" in result.stderr) == (1, True)


def test_batches_are_shown_as_kafka_shows_them(segment: Path) -> None:
    size = len(segment.read_bytes()) - 78
    title, start, first, second = lines(segment)
    assert (title, start) == (f"Dumping {segment}", "Log starting offset: 0")
    assert first.startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 4 lastSequence: 5 producerId: 9 producerEpoch: 1 "
        "partitionLeaderEpoch: 3 isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty "
        f"position: 0 CreateTime: {TIME + 5} size: {size} magic: 2 compresscodec: gzip crc: "
    )
    assert first.endswith(" isvalid: true")
    assert f"isControl: true deleteHorizonMs: OptionalLong.empty position: {size} " in second


def test_records_are_shown_without_and_with_their_content(segment: Path) -> None:
    deep = [line for line in lines(segment, "--deep") if line.startswith("|")]
    assert deep == [
        f"| offset: 0 CreateTime: {TIME} keySize: 1 valueSize: 3 sequence: 4 headerKeys: [h,i]",
        f"| offset: 1 CreateTime: {TIME + 5} keySize: -1 valueSize: 1 sequence: 5 headerKeys: []",
        f"| offset: 2 CreateTime: {TIME} keySize: 4 valueSize: 6 sequence: -1 headerKeys: []"
        " endTxnMarker: ABORT coordinatorEpoch: 7",
    ]
    shown = [line for line in lines(segment, "--records") if line.startswith("|")]
    assert shown == [deep[0] + " key: k payload: a\\nb", deep[1] + " payload: \\xff", deep[2]]


def test_json_has_the_same(segment: Path) -> None:
    (file,) = json.loads("\n".join(lines(segment, "--records", "--json")))
    title, first, second = file["items"]
    assert (file["file"], title) == (str(segment), {"startOffset": 0})
    assert (first["isTransactional"], first["deleteHorizonMs"], first["isvalid"]) == (True, None, True)
    assert [(record["key"], record["value"]) for record in first["records"]] == [
        ("k", "a\nb"),
        (None, {"base64": "/w=="}),
    ]
    assert first["records"][0]["headers"] == [["h", "x"], ["i", None]]
    assert second["records"][0]["control"] == {"type": "ABORT", "coordinatorEpoch": 7}


def test_metadata_is_decoded(tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    path = directory / f"{SEGMENT}.log"
    records = [
        Record(0, 0, None, encode_record(record.message, record.version)) for record in bootstrap_records()
    ]
    path.write_bytes(build_batch(records))
    shown = lines(path, "--records")
    assert shown[3].endswith(
        'payload: {"type":"FEATURE_LEVEL_RECORD","version":0,'
        '"data":{"name":"metadata.version","featureLevel":30}}'
    )
    path.write_bytes(build_batch([Record(0, 0, None, b"\x01\x7f\x00")]))
    result = moldau("dump", str(path), "--records")
    assert result.exit_code == 1
    assert "unknown metadata record type 127" in result.stderr


def test_a_wrong_checksum_is_shown_and_told(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    result = moldau("dump", str(segment))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].endswith("isvalid: false")
    assert result.stderr.startswith(f"moldau: {segment}: batch at position ")


@pytest.mark.parametrize("cut", [1, 20, 77])
def test_a_torn_tail_is_told_after_what_is_whole(segment: Path, cut: int) -> None:
    data = segment.read_bytes()
    segment.write_bytes(data[:-cut])
    result = moldau("dump", str(segment))
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 3
    position = len(data) - 78
    assert result.stderr == (
        f"moldau: {segment}: {78 - cut} bytes from position {position} on are no whole batch\n"
    )


def test_indexes_are_held_against_the_segment(segment: Path) -> None:
    index = segment.with_suffix(".index")
    position = len(segment.read_bytes()) - 78
    index.write_bytes(struct.pack(">iiii", 1, 0, 2, position) + bytes(16))
    assert lines(index) == [f"Dumping {index}", "offset: 1 position: 0", f"offset: 2 position: {position}"]
    assert lines(index, "--index-sanity-check")[1] == f"{index} passed sanity check."
    for entries, problem in [
        ((1, 0, 1, position), f"offset 1 at position {position} is not above the entry before it"),
        ((0, 0, 0, 0), None),
        ((2, 0, 3, position), "index offset 2, log offset 1"),
        ((1, 3), "offset 1 points to position 3, where no batch starts"),
        ((1, 1 << 20), f"offset 1 points to position {1 << 20}, where no batch starts"),
    ]:
        index.write_bytes(struct.pack(f">{len(entries)}i", *entries))
        result = moldau("dump", str(index), "--index-sanity-check")
        assert result.exit_code == (problem is not None)
        assert problem is None or result.stderr == f"moldau: {index}: {problem}\n"
    index.write_bytes(bytes(9))
    assert moldau("dump", str(index)).exit_code == 1


def test_time_indexes(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000100.timeindex"
    path.write_bytes(struct.pack(">qiqi", TIME, 3, TIME + 1, 4) + bytes(12))
    assert lines(path)[1:] == [f"timestamp: {TIME} offset: 103", f"timestamp: {TIME + 1} offset: 104"]
    path.write_bytes(struct.pack(">qiqi", TIME, 3, TIME, 4))
    result = moldau("dump", str(path), "--index-sanity-check")
    assert result.exit_code == 1
    assert f"timestamp {TIME} at offset 104 is not above the entry before it" in result.stderr


def test_time_indexes_are_held_against_the_segment(segment: Path) -> None:
    path, index = segment.with_suffix(".timeindex"), segment.with_suffix(".index")
    index.write_bytes(struct.pack(">ii", 1, 0))
    for entries, problem in [
        ((TIME + 5, 1), None),
        ((0, 0), None),
        ((TIME + 4, 1), f"time index timestamp {TIME + 4}, log timestamp {TIME + 5}"),
        ((TIME, 0), "time index offset 0 is not the last offset of a batch"),
        ((TIME + 5, 1, TIME + 6, 2), f"time index timestamp {TIME + 6}, log timestamp {TIME}"),
        ((TIME + 5, 1, TIME + 6, 3), "time index offset 3 is not the last offset of a batch"),
    ]:
        path.write_bytes(struct.pack(">" + "qi" * (len(entries) // 2), *entries))
        for options in ([], ["--index-sanity-check"]):
            result = moldau("dump", str(path), *options)
            assert result.exit_code == (problem is not None)
            assert result.stderr == (f"moldau: {path}: {problem}\n" if problem else "")


def test_small_files(tmp_path: Path) -> None:
    topic_id = bytes(15) + b"\x09"
    entry = ProducerEntry(2, 5, TIME, 11, BatchMetadata(9, 19, 9, TIME))
    contents: dict[str, tuple[bytes, str]] = {
        "00000000000000000020.snapshot": (
            bytes(encode_snapshot({4: entry})),
            "producerId: 4 producerEpoch: 2 coordinatorEpoch: 5 currentTxnFirstOffset: OptionalLong[11] "
            f"lastTimestamp: {TIME} firstSequence: 0 lastSequence: 9 lastOffset: 19 offsetDelta: 9 "
            f"timestamp: {TIME}",
        ),
        f"{SEGMENT}.txnindex": (
            struct.pack(">hqqqq", 0, 1, 12, 22, 23),
            "version: 0 producerId: 1 firstOffset: 12 lastOffset: 22 lastStableOffset: 23",
        ),
        "leader-epoch-checkpoint": (encode_epochs([(0, 7)]), "epoch: 0 startOffset: 7"),
        "recovery-point-offset-checkpoint": (
            encode_offsets({("a", 1): 5}),
            "topic: a partition: 1 offset: 5",
        ),
        "partition.metadata": (encode_partition_metadata(topic_id), "topicId: AAAAAAAAAAAAAAAAAAAACQ"),
        "meta.properties": (
            encode_meta_properties(MetaProperties(cluster_id="c", node_id=3, directory_id=topic_id)),
            "version: 1 clusterId: c nodeId: 3 directoryId: AAAAAAAAAAAAAAAAAAAACQ",
        ),
        "quorum-state": (
            b'{"leaderId":1,"leaderEpoch":4,"votedId":-1,"data_version":1}',
            "leaderId: 1 leaderEpoch: 4 votedId: -1 data_version: 1",
        ),
    }
    for name, (content, text) in contents.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert lines(path) == [f"Dumping {path}", text]
    marked = tmp_path / "00000000000000000020.snapshot.deleted"
    (tmp_path / "00000000000000000020.snapshot").rename(marked)
    assert lines(marked)[1].startswith("producerId: 4")


def test_files_that_cannot_be_shown_do_not_keep_others_from_it(tmp_path: Path, segment: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("x")
    missing = tmp_path / f"{SEGMENT}.log"
    result = moldau("dump", str(other), str(missing), str(tmp_path), str(segment), "--json")
    assert result.exit_code == 1
    assert [len(file["items"]) for file in json.loads(result.stdout)] == [0, 0, 0, 3]
    assert result.stderr.splitlines() == [
        f"moldau: {other} is not named like a file of a data directory",
        f"moldau: {missing} does not exist",
        f"moldau: {tmp_path} is a directory",
    ]


NAMES = [
    f"{SEGMENT}.log",
    f"{SEGMENT}.index",
    f"{SEGMENT}.timeindex",
    f"{SEGMENT}.txnindex",
    f"{SEGMENT}.snapshot",
    f"{SEGMENT}-0000000000.checkpoint",
    "bootstrap.checkpoint",
    "leader-epoch-checkpoint",
    "replication-offset-checkpoint",
    "partition.metadata",
    "meta.properties",
    "quorum-state",
]


def read(path: Path) -> None:
    try:
        for _ in read_items(RealFileSystem(), str(path), deep=True, content=True):
            pass
    except (CorruptFileError, KafkaError, ProtocolError, UnknownFile):
        pass


@pytest.mark.parametrize("name", NAMES)
def test_any_bytes_are_shown_or_told(name: str, tmp_path: Path) -> None:
    path = tmp_path / name

    @given(st.binary(max_size=300))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        read(path)

    check()


def test_a_segment_with_any_byte_changed_is_shown_or_told(segment: Path) -> None:
    whole = segment.read_bytes()
    random = Random(5)
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= random.randrange(1, 256)
        segment.write_bytes(changed)
        read(segment)
