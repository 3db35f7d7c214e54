"""`moldau perf` beside the tools of Apache Kafka 4.3, on one broker of it: their lines, names and numbers."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.kafka import KafkaServer, java_tool
from moldau.perf.measure.linger import CLASSIC, METRICS, Step
from tests.support.node import COMMAND, KEEP, unique_name

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(150),
    pytest.mark.xdist_group("beside kafka"),
]

RECORDS = 600  # of each step: 3 s
NUMBER = re.compile(r"\d[\d.,]*(E-?\d+)?")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, kafka_classpath: str) -> Iterator[str]:
    with KafkaServer(tmp_path_factory.mktemp("kafka") / "data", properties=KEEP) as running:
        yield running.bootstrap


def tool(name: str, *arguments: str) -> str:
    done = java_tool(f"org.apache.kafka.tools.{name}", *arguments, timeout_s=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def perf(*arguments: str) -> str:
    done = subprocess.run(
        [str(COMMAND), "perf", *arguments], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shape(output: str) -> list[str]:
    """The lines without their numbers; of lines that follow each other and look alike, one."""
    lines = [NUMBER.sub("#", line).rstrip() for line in output.splitlines()]
    return [line for place, line in enumerate(lines) if place == 0 or line != lines[place - 1]]


def test_the_lines_are_kafkas(kafka: str) -> None:
    topic = unique_name()
    write = ["--topic", topic, "--num-records", "2500", "--record-size", "50", "--throughput", "1000"]
    write += ["--bootstrap-server", kafka, "--warmup-records", "900", "--reporting-interval", "500"]
    write += ["--producer-props", "linger.ms=1", "acks=1"]
    with ThreadPoolExecutor() as pool:
        theirs, ours = pool.map(
            lambda run: run(), [lambda: tool("ProducerPerformance", *write), lambda: perf("produce", *write)]
        )
    # Kafka's tool says that --producer-props is an older name. How many intervals there are is no matter.
    assert set(shape(ours)) == {line for line in shape(theirs) if "deprecated" not in line}
    assert shape(ours)[0].startswith("Warmup") and " steady state " in shape(ours)[-1]

    read = ["--topic", topic, "--num-records", "5000", "--bootstrap-server", kafka]
    late = ["--topic", topic, "--num-records", "5001", "--timeout", "1000", "--bootstrap-server", kafka]
    detailed = [*read, "--show-detailed-stats", "--reporting-interval", "1"]
    for arguments in (read, late, detailed):
        assert shape(perf("consume", *arguments)) == shape(tool("ConsumerPerformance", *arguments)), arguments

    new = [
        "--num-records",
        "30",
        "--producer-acks",
        "all",
        "--record-size",
        "10",
        "--bootstrap-server",
        kafka,
    ]
    theirs = tool("EndToEndLatency", *new, "--topic", topic + "-a")
    ours = perf("latency", *new, "--topic", topic + "-b")
    assert shape(ours.replace(topic, "t-")) == [
        line.replace('-a"', '-b"') for line in shape(theirs.replace(topic, "t-"))
    ]


def metrics(output: str) -> dict[str, float]:
    """By group and name, of a table of metrics."""
    found = re.findall(r"^([\w-]+:[\w-]+):\{.*\} +: (NaN|-?\d+\.\d{3})$", output, re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_the_experiment_gives_the_same_numbers_as_kafkas_tool(kafka: str) -> None:
    topic = unique_name()
    common = ["--topic", topic, "--num-records", str(RECORDS), "--record-size", "1000", "--throughput", "200"]
    common += ["--bootstrap-server", kafka]

    def theirs(step: Step) -> dict[str, float]:
        options = [f"linger.ms={step.linger_ms}", f"batch.size={step.batch_size}"]
        output = tool("ProducerPerformance", *common, "--print-metrics", "--command-property", *options)
        return metrics(output)

    perf("produce", *common[:2], *common[4:], "--num-records", "1")  # makes the topic
    with ThreadPoolExecutor(max_workers=2) as pool:
        expected = list(pool.map(theirs, CLASSIC))
    outcomes = json.loads(perf("lab", "linger", *common, "--together", "--json"))["steps"]

    # A machine that is busy for a while lets records come together, as they do while Java starts: what has
    # room for them takes them. What is full is as full there as here.
    rooms = {CLASSIC[0]: 3.0, CLASSIC[1]: 1.25, CLASSIC[2]: 2.0, CLASSIC[3]: 1.5}
    for step, outcome, kafkas in zip(CLASSIC, outcomes, expected, strict=True):
        busy = {"request-latency-avg", *(["record-queue-time-avg"] if step.linger_ms == 0 else [])}
        for name in METRICS.keys() - busy:
            ours, java = outcome["metrics"][name], kafkas[f"producer-metrics:{name}"]
            room = {"outgoing-byte-rate": 1.25, "record-queue-time-avg": 3.0}.get(name, rooms[step])
            assert java / room - 5 <= ours <= java * room + 5, (step, name, ours, java)


def test_the_metrics_have_kafkas_names(kafka: str) -> None:
    topic = unique_name()
    write = ["--topic", topic, "--num-records", "10", "--record-size", "10", "--throughput", "-1"]
    write += ["--bootstrap-server", kafka, "--print-metrics"]
    theirs, ours = metrics(tool("ProducerPerformance", *write)), metrics(perf("produce", *write))
    assert ours.keys() <= theirs.keys()
    assert ours["producer-metrics:record-send-total"] == theirs["producer-metrics:record-send-total"] == 10
    assert {f"producer-metrics:{name}" for name in METRICS} <= ours.keys()
    read = ["--topic", topic, "--num-records", "20", "--bootstrap-server", kafka, "--print-metrics"]
    theirs, ours = metrics(tool("ConsumerPerformance", *read)), metrics(perf("consume", *read))
    assert ours.keys() <= theirs.keys()
    total = "consumer-fetch-manager-metrics:records-consumed-total"
    assert ours[total] == theirs[total] == 20


def test_transactions_are_counted_and_timed(kafka: str) -> None:
    arguments = ["--topic", unique_name(), "--partitions", "3", "--num-transactions", "20"]
    arguments += ["--records-per-transaction", "7", "--record-size", "10", "--bootstrap-server", kafka]
    told = json.loads(perf("txn", *arguments, "--abort-every", "5", "--warmup-transactions", "5", "--json"))
    assert (told["committed"], told["aborted"], told["partitions"]) == (12, 3, 3)
    assert told["send"]["count"] == told["end"]["count"] == told["response"]["count"] == 15
    assert told["transactions_per_second"] * 7 == pytest.approx(told["records_per_second"], rel=0.01)
    transactional = [
        "--topic",
        arguments[1],
        "--num-records",
        "300",
        "--record-size",
        "10",
        "--throughput",
        "300",
    ]
    line = perf(
        "produce", *transactional, "--bootstrap-server", kafka, "--transaction-duration-ms", "200", "--plain"
    )
    assert line.startswith("300 records sent, ")


def test_a_group_goes_on_where_it_was(kafka: str) -> None:
    topic, group = unique_name(), unique_name("group")
    perf(
        "produce",
        "--topic",
        topic,
        "--num-records",
        "50",
        "--payload-monotonic",
        "--throughput",
        "-1",
        "-b",
        kafka,
    )
    read = ["--topic", topic, "--group", group, "--bootstrap-server", kafka, "--timeout", "2000"]
    first = json.loads(perf("consume", *read, "--num-records", "50", "--json"))
    perf(
        "produce",
        "--topic",
        topic,
        "--num-records",
        "5",
        "--payload-monotonic",
        "--throughput",
        "-1",
        "-b",
        kafka,
    )
    then = json.loads(perf("consume", *read, "--num-records", "5", "--json"))
    assert (first["summary"]["records"], then["summary"]["records"]) == (50, 5)
