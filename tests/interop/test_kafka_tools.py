"""Apache Kafka's own command-line tools against a node, and its dump tool over the node's files."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from random import Random

import pytest

from bench.kafka import REPOSITORY, java_tool, kafka_classpath
from tests.interop.conftest import create_topic
from tests.support.clients import CLIENTS, CODECS, Confluent, Record
from tests.support.node import unique_name

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("kafka_classpath"),
]

TOOLS = "org.apache.kafka.tools."
TOOL_TIMEOUT_S = 40


@pytest.fixture(autouse=True)
def quick_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of a tool's time is its start; the better compiler never pays off."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -Xshare:auto")


def tool(name: str, *arguments: str, code: int = 0) -> str:
    """What the tool prints; that it ended with `code`."""
    done = java_tool(name, *arguments, timeout_s=TOOL_TIMEOUT_S)
    printed = done.stdout + done.stderr
    assert done.returncode == code, f"{name} {' '.join(arguments)}: code {done.returncode}\n{printed}"
    return printed


def test_topics_are_made_shown_changed_and_deleted(node):
    name = unique_name()
    at = ["--bootstrap-server", node.bootstrap]
    topics = TOOLS + "TopicCommand"
    create = ["--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=1000000"]
    assert f"Created topic {name}." in tool(topics, *at, *create)
    assert f"Topic '{name}' already exists" in tool(topics, *at, *create, code=1)
    assert name in tool(topics, *at, "--list").splitlines()
    tool(topics, *at, "--alter", "--topic", name, "--partitions", "3")
    described = tool(topics, *at, "--describe", "--topic", name)
    assert re.search(
        rf"Topic: {name}\tTopicId: \S{{22}}\tPartitionCount: 3\tReplicationFactor: 1\t"
        r"Configs: .*retention.ms=1000000",
        described,
    )
    assert described.count("Leader: 1\tReplicas: 1\tIsr: 1") == 3
    tool(topics, *at, "--delete", "--topic", name)
    assert "does not exist" in tool(topics, *at, "--describe", "--topic", name, code=1)


def test_options_of_topics_brokers_and_loggers(node, new_topic):
    name = new_topic()
    at = ["--bootstrap-server", node.bootstrap]
    configs = "kafka.admin.ConfigCommand"
    for entity, option, value in (
        (["--entity-type", "topics", "--entity-name", name], "max.message.bytes", "54321"),
        (["--entity-type", "brokers", "--entity-name", "1"], "log.cleaner.backoff.ms", "14999"),
        (["--entity-type", "brokers", "--entity-default"], "log.retention.ms", "987654321"),
    ):
        assert "Completed updating" in tool(
            configs, *at, "--alter", *entity, "--add-config", f"{option}={value}"
        )
        assert f"{option}={value}" in tool(configs, *at, "--describe", *entity)
        tool(configs, *at, "--alter", *entity, "--delete-config", option)
        assert f"{option}={value}" not in tool(configs, *at, "--describe", *entity)
    everything = tool(configs, *at, "--describe", "--all", "--entity-type", "topics", "--entity-name", name)
    assert (
        "cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}"
        in everything
    )
    everything = tool(configs, *at, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")
    assert "node.id=1 sensitive=false synonyms={STATIC_BROKER_CONFIG:node.id=1}" in everything
    loggers = ["--entity-type", "broker-loggers", "--entity-name", "1"]
    found = re.search(r"^\s*(\S+)=(\w+) sensitive", tool(configs, *at, "--describe", *loggers), re.MULTILINE)
    assert found
    tool(configs, *at, "--alter", *loggers, "--add-config", f"{found.group(1)}=DEBUG")
    assert f"{found.group(1)}=DEBUG" in tool(configs, *at, "--describe", *loggers)
    tool(configs, *at, "--alter", *loggers, "--delete-config", found.group(1))
    bad = ["--entity-type", "topics", "--entity-name", name, "--add-config", "retention.ms=soon"]
    assert "Invalid value soon for configuration retention.ms" in tool(configs, *at, "--alter", *bad, code=1)


def test_console_producer_and_consumer(node, new_topic):
    name = new_topic()
    command = ["java", "-Xmx256m", "-cp", kafka_classpath(), TOOLS + "ConsoleProducer"]
    command += ["--bootstrap-server", node.bootstrap, "--topic", name, "--compression-codec", "zstd"]
    # The names of these flags change from one release to the next; their short forms do not.
    command += [
        flag
        for setting in ("parse.key=true", "parse.headers=true", "null.marker=NULL")
        for flag in ("--reader-property", setting)
    ]
    lines = "a:1,b:2\tkey\tvalue\nh:x\tgone\tNULL\nh:y\tłódź\tżółw\n"
    done = subprocess.run(
        command, input=lines, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    found = [record[:3] for _, record in Confluent().read(node.bootstrap, name)]
    assert found == [
        (b"key", b"value", (("a", b"1"), ("b", b"2"))),
        (b"gone", None, (("h", b"x"),)),
        ("łódź".encode(), "żółw".encode(), (("h", b"y"),)),
    ]
    arguments = ["--topic", name, "--partition", "0", "--offset", "1", "--max-messages", "2"]
    arguments += ["--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"]
    read = tool(TOOLS + "consumer.ConsoleConsumer", "--bootstrap-server", node.bootstrap, *arguments)
    assert "h:x\tgone\tnull\nh:y\tłódź\tżółw\n" in read
    assert "Processed a total of 2 messages" in read


def test_offsets_deletion_and_directories(node, new_topic, tmp_path):
    name = new_topic()
    records = [Record(None, b"%d" % number, (), 1000 + number) for number in range(100)]
    CLIENTS["confluent-kafka"].write(node.bootstrap, name, records)
    at = ["--bootstrap-server", node.bootstrap]
    wanted = tmp_path / "delete.json"
    wanted.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": name, "partition": 0, "offset": 40}]})
    )
    assert f"partition: {name}-0\tlow_watermark: 40" in tool(
        TOOLS + "DeleteRecordsCommand", *at, "--offset-json-file", str(wanted)
    )
    for spec, offset in (("earliest", 40), ("latest", 100), ("max-timestamp", 99), ("1050", 50), ("-4", 40)):
        printed = tool(TOOLS + "GetOffsetShell", *at, "--topic", name, "--time", spec)
        assert f"{name}:0:{offset}" in printed.splitlines(), f"{spec}: {printed}"
    printed = tool(TOOLS + "LogDirsCommand", *at, "--describe", "--topic-list", name)
    told = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    (directory,) = told["brokers"][0]["logDirs"]
    assert (directory["logDir"], directory["error"]) == (str(node.data_dir), None)
    (partition,) = directory["partitions"]
    segment = node.data_dir / f"{name}-0" / f"{0:020d}.log"
    assert partition == {
        "partition": f"{name}-0",
        "size": segment.stat().st_size,
        "offsetLag": 0,
        "isFuture": False,
    }


def test_the_cluster_describes_itself(node):
    at = ["--bootstrap-server", node.bootstrap]
    meta = (node.data_dir / "meta.properties").read_text()
    found = re.search(r"^cluster\.id=(.*)$", meta, re.MULTILINE)
    assert found
    assert f"Cluster ID: {found.group(1)}" in tool(TOOLS + "ClusterTool", "cluster-id", *at)
    features = tool(TOOLS + "FeatureCommand", *at, "describe")
    assert re.search(r"metadata\.version\s.*FinalizedVersionLevel: 4\.3-IV0", features)
    status = tool(TOOLS + "MetadataQuorumCommand", *at, "describe", "--status")
    assert re.search(r"LeaderId:\s+1\n", status)
    assert f"ClusterId:              {found.group(1)}" in status
    replication = tool(TOOLS + "MetadataQuorumCommand", *at, "describe", "--replication")
    assert re.search(r"^1\s.*Leader\s*$", replication, re.MULTILINE)


def test_performance_tools_run_to_their_end(node, new_topic):
    name = new_topic()
    produced = tool(
        TOOLS + "ProducerPerformance",
        *("--topic", name, "--num-records", "20000", "--record-size", "500", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={node.bootstrap}", "acks=all", "compression.type=lz4"),
    )
    assert "20000 records sent" in produced
    program = str(REPOSITORY / "bench" / "java" / "AssignedConsumerPerf.java")
    consumed = tool(program, node.bootstrap, name, "20000", "2")
    assert consumed.count("records=20000 ") == 2


def test_the_dump_tool_reads_every_file(own_node):
    name = create_topic(own_node, segment_bytes=str(1 << 20), index_interval_bytes="1000")
    random = Random(1)
    for codec in CODECS:
        # Large enough to fill a segment, and worth compressing: clients send as it is what gets no smaller.
        records = [Record(b"%d" % number, random.randbytes(800) + b"text " * 60) for number in range(300)]
        for first in range(0, 300, 30):
            CLIENTS["kafka-python"].write(
                own_node.bootstrap, name, records[first : first + 30], codec=codec, idempotent=True
            )
    data = own_node.data_dir
    own_node.restart()
    own_node.stop()
    assert len(list((data / f"{name}-0").glob("*.log"))) > 1
    partition, metadata = data / f"{name}-0", data / "__cluster_metadata-0"
    dumped = dump(partition, "*.log", "--deep-iteration", "--print-data-log")
    assert dumped.count("| offset: ") == 1500
    assert "isvalid: false" not in dumped
    for codec in CODECS:
        assert f"compresscodec: {codec}" in dumped
    sanity = dump(partition, "*index", "--index-sanity-check")
    assert sanity.count("passed sanity check.") == len(list(partition.glob("*index")))
    deep = dump(partition, "*index", "--deep-iteration")
    assert re.search(r"offset: \d+ position: \d+", deep)
    assert not re.search(r"mismatch|non-consecutive|out of order|Mismatches|not found", deep, re.IGNORECASE)
    assert "producerId: " in dump(partition, "*.snapshot")
    dumped = dump(metadata, "*.log", "--cluster-metadata-decoder", "--skip-record-metadata")
    for kind in ("REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD"):
        assert kind in dumped
    assert not re.search("Could not decode|Exception", dumped)
    dumped = dump(data, "**/*.checkpoint", "--cluster-metadata-decoder")
    assert "SnapshotHeader" in dumped
    assert not re.search("Could not decode|Exception", dumped)
    config = data.with_name("server.properties")
    config.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        f"controller.quorum.voters=1@127.0.0.1:9093\nlog.dirs={data}\n"
    )
    told = tool("kafka.tools.StorageTool", "info", "--config", str(config))
    assert str(data) in told
    assert "Found problem" not in told


def dump(directory: Path, pattern: str, *arguments: str) -> str:
    """What DumpLogSegments says of all files of a pattern; there is at least one."""
    files = sorted(str(path) for path in directory.glob(pattern))
    assert files, f"no {pattern} in {directory}"
    return tool(TOOLS + "DumpLogSegments", "--files", ",".join(files), *arguments)
