"""`moldau perf`, in this process, against a broker in memory."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from moldau.wire.api import ApiKey
from tests.cli.conftest import moldau
from tests.client.fake_broker import FakeBroker

TOTAL = re.compile(
    r"(\d+) records sent, \d+\.\d{6} records/sec \(\d+\.\d\d MB/sec\), \d+\.\d\d ms avg latency, "
    r"\d+\.\d\d ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\.\n"
)
PRODUCE = ["perf", "produce", "--topic", "t", "--num-records", "50", "--throughput", "2000"]


@pytest.fixture
def address(broker: FakeBroker) -> str:
    broker.add_topic("t")
    return f"127.0.0.1:{broker.port}"


def document(*arguments: str) -> Any:
    result = moldau("perf", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_standard_output_has_kafkas_lines_and_the_rest_is_beside(address: str) -> None:
    result = moldau(*PRODUCE, "--record-size", "10", "--producer-props", "acks=1", "linger.ms=1")
    assert result.exit_code == 0, result.output
    assert TOTAL.fullmatch(result.stdout)
    assert "acks=1" in result.stderr and "linger.ms=1" in result.stderr and "response time" in result.stderr
    plain = moldau(*PRODUCE, "--record-size", "10", "--plain", "--print-metrics", "--warmup-records", "20")
    assert plain.stderr == ""
    assert plain.stdout.startswith("Warmup first 20 records. Steady state results will print after")
    assert "\n30 steady state records sent, " in plain.stdout
    assert "\nproducer-metrics:record-send-total:{client-id=perf-producer-client} " in plain.stdout


def test_options_come_from_a_file_and_from_the_command_line(address: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={address}\nacks=1\nlinger.ms=7\nkey.serializer=x\nunheard.of=1\n")
    told = moldau(
        *PRODUCE, "--payload-monotonic", "--producer.config", str(file), "--command-property", "linger.ms=3"
    )
    assert told.exit_code == 0, told.output
    assert "acks=1 " in told.stderr and "linger.ms=3 " in told.stderr
    assert "moldau: these options have no effect: unheard.of\n" in told.stderr


def test_values_come_from_a_file(address: str, tmp_path: Path) -> None:
    file = tmp_path / "values"
    file.write_text("one;two")
    result = moldau(*PRODUCE, "--payload-file", str(file), "--payload-delimiter", ";")
    assert result.stdout.startswith(
        f"Reading payloads from: {file}\nNumber of records read: 2\n50 records sent"
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--record-size", "10", "--payload-monotonic"], "exactly one of --record-size"),
        (["--record-size", "10", "--warmup-records", "50"], "less than --num-records"),
        (["--record-size", "10", "--producer-props", "acks"], "Invalid property: acks"),
        (["--record-size", "10", "--producer-props", "acks=7"], "acks"),
        (["--record-size", "10", "--throughput", "0"], "would never send"),
    ],
)
def test_what_makes_no_sense_is_refused(address: str, arguments: list[str], problem: str) -> None:
    result = moldau(*PRODUCE, *arguments)
    assert result.exit_code == 2 and problem in result.stderr


def test_a_produce_for_programs(address: str) -> None:
    told = document(*PRODUCE[1:], "--record-size", "10", "--warmup-records", "10")
    assert told["summary"]["records"] == 50 and told["steady_state"]["records"] == 40
    assert told["service"]["count"] == told["response"]["count"] == 40
    assert told["settings"]["partitions"] == 1 and told["settings"]["producer"]["acks"] == "all"
    assert told["failures"] == {}


def test_records_that_are_refused_are_an_error(address: str, broker: FakeBroker) -> None:
    broker.overrides[ApiKey.PRODUCE] = lambda _: None
    late = ["delivery.timeout.ms=300", "request.timeout.ms=200", "linger.ms=0"]
    result = moldau(*PRODUCE, "--record-size", "10", "--producer-props", *late)
    assert result.exit_code == 1
    assert re.search(
        r"moldau: 50 records were not written, the first for: REQUEST_TIMED_OUT: .* within 300 ms",
        result.stderr,
    )
    assert result.stdout.startswith("0 records sent, 0.000000 records/sec")


def test_a_topic_is_consumed(address: str) -> None:
    moldau(*PRODUCE, "--record-size", "10", "--plain")
    line = (
        r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}, ){2}\d+\.\d{4}, \d+\.\d{4}, 50, \d+\.\d{4}, \d+, \d+, "
        r"(\d+\.\d{4}|Infinity), (\d+\.\d{4}|Infinity)\n"
    )
    common = ["perf", "consume", "--topic", "t", "--bootstrap-server", address]
    result = moldau(*common, "--num-records", "50", "--print-metrics")
    header, rest = result.stdout.split("\n", 1)
    assert header.startswith("start.time, end.time, data.consumed.in.MB") and re.match(line, rest)
    assert "consumer-fetch-manager-metrics:records-consumed-total:{client-id=perf-consumer-client}" in rest
    short = moldau(*common, "--messages", "60", "--timeout", "300", "--hide-header", "--date-format", "SSS")
    assert short.stdout.startswith(
        "WARNING: Exiting before consuming the expected number of records: timeout (300 ms)"
    )
    detailed = moldau(*common, "--num-records", "50", "--show-detailed-stats", "--reporting-interval", "1")
    assert detailed.stdout.startswith("time, threadId, ")  # and lines, if it took a millisecond
    told = document(*common[1:], "--num-records", "50")
    assert told["summary"]["records"] == 50 and not told["timed_out"]


def test_topics_are_consumed_by_a_pattern(address: str, broker: FakeBroker) -> None:
    broker.add_topic("tt")
    for topic in ("t", "tt"):
        moldau(*PRODUCE, "--record-size", "10", "--plain", "--topic", topic)
    assert document("consume", "--include", "t+", "--num-records", "100")["summary"]["records"] == 100
    assert moldau("perf", "consume", "--include", "x.*", "--num-records", "1").exit_code == 1
    assert moldau("perf", "consume", "--include", "(", "--num-records", "1").exit_code == 2
    assert moldau("perf", "consume", "--num-records", "1").exit_code == 2


def test_latency_is_timed_in_turn_and_at_a_pace(address: str) -> None:
    common = [
        "latency",
        "--topic",
        "new",
        "--producer-acks",
        "all",
        "--record-size",
        "10",
        "--num-records",
        "20",
    ]
    result = moldau("perf", *common, "--plain")
    assert re.fullmatch(
        r'Topic "new" does not exist\. Will create topic with 1 partition\(s\) and replication factor = 1\n'
        r"0\t[\d.E-]+\nAvg latency: \d+\.\d{4} ms\nPercentiles: 50th = \d+, 99th = \d+, 99\.9th = \d+\n",
        result.stdout,
    ), result.output
    told = document(*common, "--throughput", "500", "--warmup-records", "5")
    assert told["read"]["count"] == told["acknowledged"]["count"] == 15
    assert moldau("perf", *common, "--throughput", "5", "--record-size", "3").exit_code == 2


def test_the_experiment_is_told_drawn_and_explained(address: str, broker: FakeBroker, tmp_path: Path) -> None:
    picture = tmp_path / "plot.svg"
    scaled = ["--num-records", "40", "--throughput", "400", "--record-size", "100", "--together"]
    result = moldau(
        "perf", "lab", "linger", *scaled, "--step", "0,1000", "--step", "50,1000", "--svg", str(picture)
    )
    assert result.exit_code == 0, result.output
    assert re.search(r"^RECORDS-PER-REQUEST-AVG +[\d.]+ +[\d.]+$", result.stdout, re.MULTILINE)
    assert (
        "linger 50, batch 1000 │█" in result.stdout
        and "2. linger 50, batch 1000: 40 records" in result.stdout
    )
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    assert "moldau-perf-lab" not in broker.topics
    assert moldau("perf", "lab", "linger", "--step", "5").exit_code == 2
