"""Snapshots and formatted directories against the ones that Kafka wrote."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from moldau.log.errors import CorruptFileError
from moldau.metadata import records
from moldau.metadata.features import bootstrap_features, bootstrap_records
from moldau.metadata.framing import MetadataRecord
from moldau.raft.format import (
    BOOTSTRAP_CHECKPOINT,
    METADATA_LOG,
    FormatError,
    format_directories,
    read_bootstrap_records,
    read_meta_properties,
)
from moldau.raft.snapshots import (
    SnapshotId,
    list_snapshots,
    parse_snapshot_name,
    read_snapshot,
    snapshot_name,
    write_snapshot,
)
from moldau.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from moldau.sim.files import SimFileSystem
from moldau.wire.ids import Uuid

GOLDEN = Path(__file__).parent / "golden"
STANDALONE = VoterEndpoint("CONTROLLER", "127.0.0.1", 29193)


def golden(name: str) -> tuple[SimFileSystem, str]:
    files = SimFileSystem()
    files.write_atomically("/x.checkpoint", (GOLDEN / name).read_bytes())
    return files, "/x.checkpoint"


def format_one(files: SimFileSystem, **options: object) -> dict[str, Uuid]:
    return format_directories(
        files, ["/a", "/b"], metadata_directory="/a", cluster_id="c", node_id=1, random=Random(1), now_ms=5,
        **options,
    )  # fmt: skip


def test_the_bootstrap_checkpoint_of_kafka_starts_a_cluster_with_our_features() -> None:
    files, path = golden("bootstrap.checkpoint")
    snapshot = read_snapshot(files, path)
    assert snapshot.messages == [record.message for record in bootstrap_records()]
    assert (snapshot.timestamp_ms, snapshot.voters) == (0, None)


def test_ours_differs_from_kafkas_in_times_and_checksums_alone() -> None:
    files = SimFileSystem()
    format_one(files)
    ours, theirs = (
        files.read_bytes(f"/a/{BOOTSTRAP_CHECKPOINT}"),
        (GOLDEN / "bootstrap.checkpoint").read_bytes(),
    )
    assert len(ours) == len(theirs)
    for start, size in ((0, 83), (83, 253), (336, 75)):
        for first, last in ((0, 17), (21, 27), (43, size)):
            assert ours[start + first : start + last] == theirs[start + first : start + last]


def test_the_first_snapshot_of_a_dynamic_quorum_names_its_voter() -> None:
    files, path = golden("dynamic.checkpoint")
    theirs = read_snapshot(files, path)
    ids = format_one(files, standalone=STANDALONE)
    ours = read_snapshot(files, f"/a/{METADATA_LOG}/{snapshot_name(SnapshotId(0, 0))}")
    assert theirs.voters is not None and ours.voters is not None
    assert (ours.kraft_version, theirs.kraft_version) == (1, 1)
    assert ours.voters[1].endpoints == theirs.voters[1].endpoints == (STANDALONE,)
    assert ours.voters[1].key == ReplicaKey(1, ids["/a"])
    assert ours.voters[1].kraft_versions == theirs.voters[1].kraft_versions


def test_a_snapshot_comes_back_with_its_records_and_voters() -> None:
    files = SimFileSystem()
    voters = VoterSet([Voter(key=ReplicaKey(1, Uuid(b"D" * 16)), endpoints=(STANDALONE,))])
    written = [
        MetadataRecord(records.TopicRecord(name=f"t{n}", topic_id=Uuid(bytes([n % 256]) * 16)), 0)
        for n in range(25_000)
    ]
    size = write_snapshot(
        files, "/s.checkpoint", written, epoch=3, now_ms=9, last_contained_timestamp_ms=7, voters=voters
    )
    snapshot = read_snapshot(files, "/s.checkpoint")
    assert snapshot.messages == [record.message for record in written]
    assert (snapshot.voters, snapshot.timestamp_ms) == (voters, 7)
    assert files.file_size("/s.checkpoint") == size
    assert files.list_dir("/") == ["s.checkpoint"]


@pytest.mark.parametrize("operation", ["truncate", "write", "sync"])
def test_a_snapshot_that_found_no_room_leaves_nothing_behind(operation: str) -> None:
    files = SimFileSystem()
    files.faults.fail_next(errno.ENOSPC, operation=operation)
    with pytest.raises(OSError):
        write_snapshot(files, "/s.checkpoint", bootstrap_records(), epoch=1, now_ms=0)
    assert files.list_dir("/") == []


def test_a_snapshot_cut_anywhere_is_not_taken_for_a_whole_one() -> None:
    files, path = golden("bootstrap.checkpoint")
    data = files.read_bytes(path)
    for size in range(len(data)):
        files.write_atomically(path, data[:size])
        with pytest.raises(CorruptFileError):
            read_snapshot(files, path)


def test_snapshots_are_found_by_name_and_ordered() -> None:
    files = SimFileSystem()
    files.make_dirs("/d")
    for name in ("00000000000000000020-0000000002.checkpoint", "00000000000000000003-0000000001.checkpoint",
                 "00000000000000000004-0000000001.checkpoint.part", "bootstrap.checkpoint"):  # fmt: skip
        files.write_atomically(f"/d/{name}", b"")
    assert list_snapshots(files, "/d") == [SnapshotId(3, 1), SnapshotId(20, 2)]
    assert parse_snapshot_name(snapshot_name(SnapshotId(5, 6))) == SnapshotId(5, 6)


def test_formatting_says_whose_each_directory_is() -> None:
    files = SimFileSystem()
    ids = format_one(files)
    assert set(ids) == {"/a", "/b"} and ids["/a"] != ids["/b"]
    for directory, id in ids.items():
        properties = read_meta_properties(files, directory)
        assert properties is not None
        assert (properties.cluster_id, properties.node_id, properties.directory_id) == ("c", 1, id)
    assert not files.exists(f"/b/{BOOTSTRAP_CHECKPOINT}")
    assert read_bootstrap_records(files, "/a") == bootstrap_records()


def test_a_formatted_directory_is_left_alone() -> None:
    files = SimFileSystem()
    format_one(files)
    with pytest.raises(FormatError, match="already formatted"):
        format_one(files)
    assert format_one(files, ignore_formatted=True) == {}


def test_directories_of_another_cluster_are_not_formatted_along() -> None:
    files = SimFileSystem()
    format_one(files)
    with pytest.raises(FormatError, match="belongs to node 1 of cluster c"):
        format_directories(
            files, ["/a"], metadata_directory="/a", cluster_id="other", node_id=1, random=Random(0), now_ms=0,
            ignore_formatted=True,
        )  # fmt: skip


def test_the_features_of_a_new_cluster_are_those_of_kafka_4_3() -> None:
    assert bootstrap_features() == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }
    assert bootstrap_features(21) == {"metadata.version": 21}
