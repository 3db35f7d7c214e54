"""The small files: their bytes are Kafka's, and what is not one of them is refused."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.log.checkpoints import decode_epochs, decode_offsets, encode_epochs, encode_offsets
from moldau.log.errors import CorruptFileError
from moldau.log.meta_properties import MetaProperties, decode_meta_properties, encode_meta_properties
from moldau.log.names import Fate, LogDirName, log_dir_name, marked_dir_name, offset_of, parse_log_dir_name
from moldau.log.partition_metadata import (
    decode_partition_metadata,
    decode_uuid,
    encode_partition_metadata,
    encode_uuid,
)

TOPICS = st.text("abcXYZ09._-", min_size=1, max_size=249)


def test_offsets_are_written_as_kafka_writes_them():
    assert encode_offsets({("compacted", 0): 9000}) == b"0\n1\ncompacted 0 9000\n"
    assert encode_offsets({}) == b"0\n0\n"
    assert encode_epochs([(0, 0), (3, 17)]) == b"0\n2\n0 0\n3 17\n"


@given(st.dictionaries(st.tuples(TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1)))
def test_offsets_round_trip(offsets):
    assert decode_offsets(encode_offsets(offsets), "file") == offsets


@pytest.mark.parametrize(
    "data",
    [b"", b"0", b"1\n0\n", b"0\n2\na 0 1\n", b"0\nx\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"\xff\xfe\n0\n"],
)
def test_a_damaged_checkpoint_is_told_apart(data):
    with pytest.raises(CorruptFileError, match="file"):
        decode_offsets(data, "file")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_checkpoint_or_corrupt(data):
    for decode in (decode_offsets, decode_epochs, decode_partition_metadata, decode_meta_properties):
        try:
            decode(data, "file")
        except CorruptFileError:
            pass


def test_partition_metadata_is_kafkas():
    data = b"version: 0\ntopic_id: YsOiZ9syTf-_pSkKodZVWQ"
    assert encode_partition_metadata(decode_partition_metadata(data, "file")) == data


@given(st.binary(min_size=16, max_size=16))
def test_ids_round_trip(value):
    assert decode_uuid(encode_uuid(value)) == value


def test_meta_properties_of_kafka_are_read():
    data = (
        b"#\n#Wed Nov 18\nnode.id=1\ndirectory.id=rL7CdJ-4ZbVj-u9eAkp8Hw\nversion=1\n"
        b"cluster.id=mOldAuGoldenCluster000A\n"
    )
    properties = decode_meta_properties(data, "meta.properties")
    assert (properties.node_id, properties.cluster_id, properties.version) == (
        1,
        "mOldAuGoldenCluster000A",
        1,
    )
    assert encode_uuid(properties.directory_id) == "rL7CdJ-4ZbVj-u9eAkp8Hw"
    assert decode_meta_properties(encode_meta_properties(properties), "again") == properties


def test_properties_we_do_not_know_survive():
    properties = MetaProperties(cluster_id="c", node_id=3, other={"future.thing": "1"})
    assert decode_meta_properties(encode_meta_properties(properties), "file") == properties


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"version=1\nnode.id=1\n", "cluster.id is missing"),
        (b"version=1\ncluster.id=c\n", "node.id is missing"),
        (b"version=7\n", "version"),
        (b"version=1\ncluster.id=c\nnode.id=x\n", "node.id"),
        (b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=short\n", "directory.id"),
    ],
)
def test_a_broken_meta_properties_names_the_property(data, reason):
    with pytest.raises(CorruptFileError, match=reason):
        decode_meta_properties(data, "file")


@given(TOPICS, st.integers(0, 2**31 - 1), st.sampled_from(Fate), st.randoms(use_true_random=False))
def test_directory_names_round_trip(topic, partition, fate, random):
    if fate is Fate.CURRENT:
        assert parse_log_dir_name(log_dir_name(topic, partition)) == LogDirName(topic, partition, fate)
        return
    name = marked_dir_name(topic, partition, fate, Random(random.random()))
    parsed = parse_log_dir_name(name)
    assert parsed is not None
    assert topic.startswith(parsed.topic)
    assert (parsed.partition, parsed.fate) == (partition, fate)
    assert len(name) <= 255 or fate is Fate.FUTURE


@pytest.mark.parametrize("name", ["topic", "-0", "topic-", "topic-x", "topic-0-delete", "lost+found", "a-²"])
def test_other_directories_are_left_alone(name):
    assert parse_log_dir_name(name) is None


def test_files_are_named_by_twenty_digits():
    assert offset_of("00000000000000002168.log") == 2168
    assert offset_of("leader-epoch-checkpoint") is None
    assert offset_of("quorum.state") is None
