"""A log directory that Apache Kafka 4.3.0 wrote: opened, read, and its indexes built again byte for byte."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import pytest
from log_samples import NOW_MS, config, open_log, records_from

from moldau.log.directory import LogDirectory
from moldau.log.open_files import OpenFiles
from moldau.records.batch import iterate_headers
from moldau.runtime.files import RealFileSystem

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
REBUILT = {".index", ".timeindex", ".txnindex", ".snapshot"}
SETTINGS = config(index_interval_bytes=1024)  # as its broker had it
EXPECTED = json.loads((GOLDEN / "expected-records.json").read_text())


@pytest.fixture
def path(tmp_path):
    return Path(shutil.copytree(GOLDEN / "logdir", tmp_path / "logdir"))


def load(path):
    directory = LogDirectory.open(RealFileSystem(), OpenFiles(), str(path), Random(1))
    directory.load({}, SETTINGS, NOW_MS)
    return directory


def as_json(record):
    def encoded(value):
        return None if value is None else value.hex()

    headers = [[name, encoded(value)] for name, value in record.headers]
    return [record.offset, record.timestamp, encoded(record.key), encoded(record.value), headers]


def contents(path):
    return {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("is_clean", [True, False])
def test_records_are_what_a_consumer_read(path, is_clean):
    if not is_clean:
        (path / ".kafka_cleanshutdown").unlink()
        (path / "recovery-point-offset-checkpoint").unlink()
    directory = load(path)
    assert directory.had_clean_shutdown is is_clean
    assert directory.properties.cluster_id == "mOldAuGoldenCluster000A"
    for topic, end in (("codecs", 500), ("txn", 72)):
        log = directory.logs[topic, 0]
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, end, end)
        assert [as_json(record) for record in records_from(log)] == EXPECTED[f"{topic}-0"]


def test_transactions_are_what_kafka_indexed(path):
    log = load(path).logs["txn", 0]
    aborted = log.aborted_transactions(0, 72)
    assert [(txn.first_offset, txn.last_offset) for txn in aborted] == [(12, 22), (36, 46), (60, 70)]
    assert log.last_stable_offset == 72
    assert log.producers.producers[1].last_sequence == 59


def test_opening_and_closing_changes_nothing(path):
    before = contents(path)
    load(path).close(broker_epoch=11)
    after = contents(path)
    assert after.pop(Path(".lock")) == b""
    assert after == before


def test_indexes_and_snapshots_are_rebuilt_byte_for_byte(path):
    before = contents(path)
    for file in path.rglob("*"):
        if (
            file.suffix in (".timeindex", ".txnindex", ".index", ".snapshot")
            or file.name == "leader-epoch-checkpoint"
        ):
            file.unlink()
    (path / ".kafka_cleanshutdown").unlink()
    (path / "recovery-point-offset-checkpoint").unlink()
    load(path).close(broker_epoch=11)
    after = contents(path)
    del after[Path(".lock")]
    assert after == before


def test_appending_again_what_kafka_appended_gives_the_same_files(path, tmp_path):
    """Batch by batch, so that index entries fall where Kafka's do."""
    for topic in ("codecs-0", "txn-0"):
        source = batches_of(path / topic)
        log = open_log(RealFileSystem(), SETTINGS, log_dir=str(tmp_path / topic))
        for batch in source:
            log.append_as_follower(batch, NOW_MS)
        log.flush(NOW_MS)
        log.close()
        written = tmp_path / topic / "topic-0"
        names = [file.name for file in (path / topic).iterdir() if file.name != "partition.metadata"]
        assert {name: (written / name).read_bytes() for name in names} == {
            name: (path / topic / name).read_bytes() for name in names
        }


def batches_of(directory):

    data = bytearray((directory / f"{0:020d}.log").read_bytes())
    view = memoryview(data)
    return [view[position : position + header.size] for position, header in iterate_headers(view)]
