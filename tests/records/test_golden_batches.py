"""Kafka's own bytes: decoded to what Kafka's consumer read, and built again byte for byte."""

import json

import pytest
from record_samples import GOLDEN, golden_batches

from moldau.records.batch import check_crc, parse_header
from moldau.records.builder import build_batch
from moldau.records.compression import Codec
from moldau.records.control import ControlType, EndTxnMarker, build_end_txn_batch, read_end_txn_marker
from moldau.records.record import Record, read_records

EXPECTED = json.loads((GOLDEN / "expected-records.json").read_text())


def as_json(record: Record) -> list[object]:
    def encoded(value: bytes | None) -> str | None:
        return None if value is None else value.hex()

    headers = [[name, encoded(value)] for name, value in record.headers]
    return [record.offset, record.timestamp, encoded(record.key), encoded(record.value), headers]


@pytest.mark.parametrize("name", ["codecs-0", "txn-0"])
def test_records_are_what_a_consumer_read(name: str):
    decoded = [
        as_json(record)
        for batch in golden_batches(f"{name}.log")
        if not parse_header(batch).is_control
        for record in read_records(batch)
    ]
    assert decoded == EXPECTED[name]


def test_every_codec_is_there():
    batches = golden_batches("codecs-0.log")
    assert [parse_header(batch).codec for batch in batches] == list(Codec)


def rebuild(batch: memoryview, codec: Codec) -> bytes:
    header = parse_header(batch)
    return build_batch(
        list(read_records(batch)),
        base_offset=header.base_offset,
        codec=codec,
        timestamp_type=header.timestamp_type,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        leader_epoch=header.leader_epoch,
    )


@pytest.mark.parametrize("name", ["plain-0-head.log", "txn-0.log", "codecs-0.log"])
def test_uncompressed_batches_are_rebuilt_to_the_same_bytes(name: str):
    plain = [batch for batch in golden_batches(name) if parse_header(batch).codec == Codec.NONE]
    assert plain
    for batch in plain:
        check_crc(batch, parse_header(batch))
        assert rebuild(batch, Codec.NONE) == batch


def test_compressed_batches_are_rebuilt_to_the_same_records():
    for batch in golden_batches("codecs-0.log"):
        rebuilt = rebuild(batch, Codec(parse_header(batch).codec))
        check_crc(batch, parse_header(batch))
        assert list(read_records(rebuilt)) == list(read_records(batch))


def test_transaction_markers_are_read_and_rebuilt():
    markers = []
    for batch in golden_batches("txn-0.log"):
        header = parse_header(batch)
        if header.is_control:
            (record,) = read_records(batch)
            marker = read_end_txn_marker(record)
            markers.append(marker)
            rebuilt = build_end_txn_batch(
                marker,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                timestamp=record.timestamp,
                base_offset=header.base_offset,
                leader_epoch=header.leader_epoch,
            )
            assert rebuilt == batch
    assert markers == [EndTxnMarker(ControlType.COMMIT, 0), EndTxnMarker(ControlType.ABORT, 0)] * 3
