"""The node as a process: what it says, how it ends, and with which exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from moldau.client.admin import LATEST_TIMESTAMP, Admin, NewTopic
from moldau.client.cluster import Cluster, TopicPartition, parse_addresses
from moldau.client.connection import connect
from moldau.client.fetch import Fetcher
from moldau.runtime.real import RealRuntime, run
from moldau.wire.errors import KafkaError
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.support.node import COMMAND, MoldauNode
from tests.support.producing import Message, Writer

PLACES = [TopicPartition("events", index) for index in range(4)]


def moldau(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(COMMAND), *arguments], capture_output=True, text=True, timeout=30, check=False)


@pytest.fixture
def node(tmp_path: Path) -> MoldauNode:
    return MoldauNode(tmp_path / "data")


def test_a_second_node_on_the_same_directory_says_so_in_one_line(node: MoldauNode) -> None:
    with node:
        second = moldau("up", "--data-dir", str(node.data_dir), "--port", "0")
    assert second.returncode == 1
    assert second.stdout == ""
    assert second.stderr.count("\n") == 1
    assert f"{node.data_dir}/.lock is locked: another node is running" in second.stderr


def test_a_taken_port_is_told_in_one_line_and_the_next_start_works(node: MoldauNode) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = moldau("up", "--data-dir", str(node.data_dir), "--port", str(port))
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert f"cannot listen on 127.0.0.1:{port}: " in refused.stderr
    with node:
        assert node.bootstrap


def test_a_directory_that_cannot_be_used_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    refused = moldau("up", "--data-dir", str(tmp_path / "file"), "--port", "0")
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert str(tmp_path / "file") in refused.stderr


def test_properties_that_are_wrong_are_told_all_at_once(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=one\nlog.dirs=/nowhere\nlog.segment.bytes=3\n"
        "no.such.option=1\ncompression.type=zip\nlisteners=PLAINTEXT://:9092,CONTROLLER://:0\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@localhost:0\n"
    )
    refused = moldau("broker", "--config", str(path))
    assert refused.returncode == 2
    for name in ("node.id", "log.segment.bytes", "compression.type"):
        assert any(name in line for line in refused.stderr.splitlines()), refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_metadata_directory_of_another_node_is_told_in_one_line(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    assert moldau("format", "--data-dir", str(taken)).returncode == 0
    refused = moldau(
        "up", "--data-dir", str(tmp_path / "data"), "--port", "0", "-o", f"metadata.log.dir={taken}"
    )
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert str(taken) in refused.stderr


def test_no_cluster_is_made_where_logs_are(node: MoldauNode) -> None:
    node.data_dir.mkdir()
    (node.data_dir / "lost+found").mkdir()
    with node:
        assert moldau("topic", "create", "events", "-b", node.bootstrap).returncode == 0
    (node.data_dir / "meta.properties").unlink()
    before = sorted(path.name for path in node.data_dir.iterdir())
    refused = moldau("up", "--data-dir", str(node.data_dir), "--port", "0")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert "and no meta.properties; restore that file" in refused.stderr
    assert sorted(path.name for path in node.data_dir.iterdir()) == before


@pytest.mark.parametrize("is_ignored", [False, True])
def test_a_terminal_that_goes_away_stops_the_node_cleanly_but_for_nohup(
    node: MoldauNode, is_ignored: bool
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    try:
        node.start()  # which inherits it
    finally:
        signal.signal(signal.SIGHUP, before)
    if is_ignored:
        os.kill(node.pid, signal.SIGHUP)
        assert moldau("topic", "list", "-b", node.bootstrap).returncode == 0
        node.stop()
    else:
        assert node.end(signal.SIGHUP) == 0
    assert (node.data_dir / ".kafka_cleanshutdown").exists()


def test_a_node_that_cannot_say_that_it_is_ready_stops_cleanly(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [str(COMMAND), "up", "--data-dir", str(tmp_path / "data"), "--port", "0"]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=30, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
def test_an_ipv6_address_is_told_as_it_has_to_be_written(tmp_path: Path) -> None:
    with MoldauNode(tmp_path / "data", arguments=["--host", "::1"]) as node:
        assert node.bootstrap.startswith("[::1]:")
        assert moldau("topic", "list", "-b", node.bootstrap).returncode == 0


class Writers:
    """Numbered records into all partitions at once, until the node goes away; `acked` are those it took."""

    def __init__(self, bootstrap: str) -> None:
        self.addresses = parse_addresses(bootstrap)
        self.acked: dict[TopicPartition, list[bytes]] = {place: [] for place in PLACES}

    async def write(self, runtime: RealRuntime, place: TopicPartition) -> None:
        async with Cluster(runtime, self.addresses, retry_timeout_s=0, request_timeout_s=10) as cluster:
            writer = Writer(runtime, cluster)
            for number in range(1_000_000):
                value = b"%d" % number + bytes(200)
                try:
                    await writer.produce(place.topic, [Message(value, partition=place.partition)])
                except KafkaError:
                    return
                self.acked[place].append(value)

    async def until_end_by(self, runtime: RealRuntime, node: MoldauNode, how: signal.Signals) -> None:
        writers = [asyncio.create_task(self.write(runtime, place)) for place in PLACES]
        while min(map(len, self.acked.values())) < 50:
            await asyncio.sleep(0.005)
        os.kill(node.pid, how)
        await asyncio.gather(*writers)


async def read_all(runtime: RealRuntime, bootstrap: str) -> dict[TopicPartition, list[bytes]]:
    found: dict[TopicPartition, list[bytes]] = {place: [] for place in PLACES}
    async with Cluster(runtime, parse_addresses(bootstrap)) as cluster:
        ends = await Admin(cluster).list_offsets(dict.fromkeys(PLACES, LATEST_TIMESTAMP))
        fetcher = Fetcher(runtime, cluster)
        fetcher.assign(dict.fromkeys(PLACES, 0))
        while sum(map(len, found.values())) < sum(ends[place].offset or 0 for place in PLACES):
            fetched = await fetcher.poll(1)
            if fetched is not None:
                found[fetched.place] += [record.value or b"" for record in fetched.records]
        await fetcher.close()
    return found


async def create_topics(runtime: RealRuntime, bootstrap: str, *topics: NewTopic) -> None:
    async with Cluster(runtime, parse_addresses(bootstrap)) as cluster:
        for topic in topics:
            await Admin(cluster).create_topic(topic)


def test_sigterm_in_the_middle_of_traffic_is_a_clean_end(node: MoldauNode) -> None:
    async def traffic(runtime: RealRuntime) -> None:
        topics = [NewTopic(name="events", partitions=4), NewTopic(name="quiet", partitions=1)]
        await create_topics(runtime, node.bootstrap, *topics)
        ((host, port),) = parse_addresses(node.bootstrap)
        poll = FetchRequest(
            max_wait_ms=60_000,
            min_bytes=1,
            topics=[
                FetchTopic(topic="quiet", partitions=[FetchPartition(partition=0, partition_max_bytes=100)])
            ],
        )
        connection = await connect(runtime.network, host, port)
        waiting = asyncio.create_task(connection.request(poll, FetchResponse, version=12))
        await writers.until_end_by(runtime, node, signal.SIGTERM)
        response = await waiting
        connection.close()
        assert [data.error_code for data in response.responses[0].partitions] == [0]

    node.start()
    writers = Writers(node.bootstrap)
    run(traffic)
    node.stop()  # it has been told already: this waits for exit code 0
    assert (node.data_dir / ".kafka_cleanshutdown").exists()
    with node:
        found = run(lambda runtime: read_all(runtime, node.bootstrap))
    for place, acked in writers.acked.items():
        # What was in progress was answered: there is nothing in the log that its writer does not know of.
        assert found[place] == acked


def test_sigkill_loses_nothing_that_was_acknowledged(node: MoldauNode) -> None:
    async def traffic(runtime: RealRuntime) -> None:
        await create_topics(runtime, node.bootstrap, NewTopic(name="events", partitions=4))
        await writers.until_end_by(runtime, node, signal.SIGKILL)

    node.start()
    writers = Writers(node.bootstrap)
    run(traffic)
    node.kill()
    assert not (node.data_dir / ".kafka_cleanshutdown").exists()
    with node:
        found = run(lambda runtime: read_all(runtime, node.bootstrap))
    for place, acked in writers.acked.items():
        assert found[place][: len(acked)] == acked
        assert len(found[place]) - len(acked) in (0, 1)


@pytest.mark.slow
def test_a_node_of_two_thousand_partitions_starts_again(node: MoldauNode) -> None:
    """After a clean stop it opens none of their files but what tells it where each log ends."""

    async def make(runtime: RealRuntime) -> None:
        topics = [NewTopic(name="events", partitions=4)]
        topics += [NewTopic(name=f"topic-{number}", partitions=250) for number in range(8)]
        await create_topics(runtime, node.bootstrap, *topics)

    async def count(runtime: RealRuntime) -> int:
        async with Cluster(runtime, parse_addresses(node.bootstrap)) as cluster:
            view = await Admin(cluster).describe_topics()
            return sum(p.leader == 1 for topic in view.topics.values() for p in topic.partitions)

    with node:
        run(make)
    with node:
        assert run(count) == 2004
        if Path("/proc").exists():
            assert len(os.listdir(f"/proc/{node.pid}/fd")) < 100
