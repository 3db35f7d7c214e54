"""What `moldau dump` prints of Kafka's own files is what Kafka's tool prints, to the letter."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from moldau.coordinator.record import CoordinatorRecord, encode_key, encode_value
from moldau.metadata.features import bootstrap_records
from moldau.metadata.framing import encode_record
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.txn.records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from tests.cli.conftest import moldau

GOLDEN = Path(__file__).parent.parent / "data" / "golden"


def kafka_dump(classpath: str, files: list[Path], *options: str) -> str:
    command = ["java", "-cp", classpath, "org.apache.kafka.tools.DumpLogSegments"]
    command += ["--files", ",".join(map(str, files)), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.java
def test_the_words_are_those_of_kafkas_tool(kafka_classpath: str, tmp_path: Path) -> None:
    segments = []
    for name in ("txn-0", "codecs-0"):
        (tmp_path / name).mkdir()
        segments.append(tmp_path / name / f"{0:020d}.log")
        shutil.copy(GOLDEN / f"{name}.log", segments[-1])
    ours = moldau("dump", "--deep", *map(str, segments)).stdout
    assert ours == kafka_dump(kafka_classpath, segments, "--deep-iteration")

    (tmp_path / "__cluster_metadata-0").mkdir()
    metadata = tmp_path / "__cluster_metadata-0" / f"{0:020d}.log"
    records = [
        Record(0, 0, None, encode_record(record.message, record.version)) for record in bootstrap_records()
    ]
    metadata.write_bytes(build_batch(records))
    ours = moldau("dump", "--records", str(metadata)).stdout
    assert ours == kafka_dump(kafka_classpath, [metadata], "--cluster-metadata-decoder")


def transaction_records() -> list[Record]:
    """Of an id that begins, writes and is forgotten, in both versions, and of a type that is not known."""
    key = TransactionLogKey(transactional_id="billing-ž")
    common: dict[str, Any] = {
        "producer_id": 7,
        "producer_epoch": 3,
        "transaction_timeout_ms": 60_000,
        "transaction_last_update_timestamp_ms": 5,
        "transaction_start_timestamp_ms": -1,
    }
    begun = TransactionLogValue(**common, transaction_status=0, transaction_partitions=None)
    ongoing = TransactionLogValue(
        **common,
        previous_producer_id=6,
        client_transaction_version=2,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="orders", partition_ids=[0, 2])],
    )
    records = [
        CoordinatorRecord(key, begun, 0),
        CoordinatorRecord(key, begun, 1),
        CoordinatorRecord(key, ongoing, 1),
        CoordinatorRecord(key, None),
    ]
    encoded = [(bytes(encode_key(each)), encode_value(each)) for each in records]
    encoded.append((b"\0\x63future", b"\0\0"))
    return [Record(0, 0, each, None if value is None else bytes(value)) for each, value in encoded]


@pytest.mark.java
def test_what_coordinators_keep_is_decoded_as_by_kafkas_tool(kafka_classpath: str, tmp_path: Path) -> None:
    def segment(topic: str, content: bytes) -> Path:
        path = tmp_path / f"{topic}-0" / f"{0:020d}.log"
        path.parent.mkdir()
        path.write_bytes(content)
        return path

    of_groups = segment(
        "__consumer_offsets",
        b"".join((GOLDEN / "consumer_offsets" / f"{number}.log").read_bytes() for number in (0, 1)),
    )
    of_transactions = segment("__transaction_state", build_batch(transaction_records()))
    for path, option in ((of_groups, "--offsets-decoder"), (of_transactions, "--transaction-log-decoder")):
        ours = moldau("dump", "--records", str(path))
        assert (ours.exit_code, ours.stderr) == (0, "")
        assert ours.stdout == kafka_dump(kafka_classpath, [path], option)


@pytest.mark.java
@pytest.mark.parametrize("option", [None, "deep", "index-sanity-check"])
def test_every_kind_of_file_is_shown_as_kafkas_tool_shows_it(
    kafka_classpath: str, tmp_path: Path, option: str | None
) -> None:
    data = tmp_path / "data"  # looking must not be able to change what others read
    shutil.copytree(GOLDEN / "logdir", data)
    assert moldau("format", "--data-dir", str(data / "new")).exit_code == 0
    kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
    files = sorted(path for path in data.rglob("*") if path.suffix in kinds)
    assert {path.suffix for path in files} == set(kinds)
    theirs = {None: [], "deep": ["--deep-iteration"]}.get(option, [f"--{option}"])
    ours = moldau("dump", *([f"--{option}"] if option else []), *map(str, files))
    assert (ours.exit_code, ours.stderr) == (0, "")
    assert ours.stdout == kafka_dump(kafka_classpath, files, *theirs)
