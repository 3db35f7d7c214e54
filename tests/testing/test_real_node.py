"""The node as a process: what a test can do to it, and that it goes when its test does."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import moldau.testing
from moldau.testing.nodes import Node, NodeError


def values(node: Node, topic: str) -> list[str]:
    return [record.text for record in node.collect(topic)]


def test_topics_and_records(moldau: Node) -> None:
    orders = moldau.topic("orders", partitions=3, retention_ms=100_000)
    assert orders.startswith("orders-") and moldau.topics() == [orders]
    moldau.produce(orders, "a", "b", key="k", headers=[("h", "v")], timestamp=1_700_000_000_000)
    moldau.produce(orders, '{"id": 7}', partition=2)
    records = moldau.collect(orders, 3)
    assert {record.text for record in records} == {"a", "b", '{"id": 7}'}
    by_partition = [record for record in records if record.partition == 2 and record.text[0] == "{"]
    assert by_partition[0].json == {"id": 7}
    moldau.delete_topic(orders)
    assert moldau.topics() == []


def test_the_next_test_finds_nothing_of_the_last(moldau_node: Node) -> None:
    kept = moldau_node.create_topic("of-the-session")
    with moldau_node.isolated() as mine:
        mine.create_topic("mine")
        mine.delay(seconds=100)
        mine.disk_full()
        mine.pause()
    assert moldau_node.topics() == [kept]
    with moldau_node.isolated() as mine:
        mine.kill()
    assert moldau_node.is_running
    moldau_node.delete_topic(kept)


def test_a_crash_a_stop_and_a_pause(moldau: Node) -> None:
    orders = moldau.topic("orders")
    address = moldau.bootstrap
    moldau.produce(orders, "a")
    moldau.kill()
    assert not moldau.is_running
    with pytest.raises(NodeError, match=r"not running: call restart\(\)"):
        moldau.topics()
    moldau.restart()
    moldau.produce(orders, "b")
    moldau.stop()
    moldau.restart()
    moldau.restart()
    assert moldau.bootstrap == address
    assert values(moldau, orders) == ["a", "b"]
    moldau.pause()
    with socket.create_connection((moldau.host, moldau.port), timeout=10):
        pass  # the kernel still takes connections
    with pytest.raises(NodeError, match=r"paused: call resume\(\)"):
        moldau.fail_next("Produce", error=6)
    moldau.resume()
    assert values(moldau, orders) == ["a", "b"]


def test_connections_are_dropped(moldau: Node) -> None:
    with socket.create_connection((moldau.host, moldau.port)) as connection:
        connection.settimeout(10)
        moldau.topics()  # whatever came before is accepted
        assert moldau.drop_connections() == 1
        assert connection.recv(1) == b""
    assert moldau.drop_connections() == 0


def test_faults_are_told_by_their_names(moldau: Node) -> None:
    with pytest.raises(ValueError, match="no API"):
        moldau.fail_next("Prodce", error="NOT_COORDINATOR")
    with pytest.raises(ValueError, match="no error"):
        moldau.fail_next("Produce", error="NOT_A_COORDINATOR")
    with pytest.raises(NodeError, match="a rule applies once at least"):
        moldau.fail_next("Produce", error="NOT_COORDINATOR", times=0)


def test_a_node_that_ends_by_itself_is_told() -> None:
    with pytest.raises(NodeError, match="ended by itself"), moldau.testing.node() as node:
        os.kill(node.process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, node.process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(NodeError, match="ended by itself"):
            node.topics()


def test_a_node_that_ended_by_itself_is_there_for_the_next_test() -> None:
    with moldau.testing.node() as node:
        with pytest.raises(NodeError, match="ended by itself"), node.isolated():
            os.kill(node.process.pid, signal.SIGKILL)
            os.waitid(os.P_PID, node.process.pid, os.WEXITED | os.WNOWAIT)
        with node.isolated() as mine:
            assert mine.topics() == []


def test_on_a_loop() -> None:
    async def main() -> Path:
        async with moldau.testing.node(options={"num.partitions": "4"}) as node:
            topic = await asyncio.to_thread(node.topic)
            await asyncio.to_thread(node.produce, topic, "hello")
            (record,) = await asyncio.to_thread(node.collect, topic, 1)
            assert record.value == b"hello"
            return node.data_dir

    assert not asyncio.run(main()).exists()


def test_a_cluster_of_one() -> None:
    with moldau.testing.cluster() as cluster:
        assert cluster.bootstrap == cluster.nodes[0].bootstrap
    for count in (0, 3):
        with pytest.raises(ValueError, match="nodes"):
            moldau.testing.cluster(nodes=count)


def test_the_node_ends_with_its_test(tmp_path: Path) -> None:
    program = """
        import moldau.testing, sys
        with moldau.testing.node() as node:
            print(node.process.pid, node.data_dir, flush=True)
            sys.stdin.read()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as test:
        assert test.stdout is not None
        pid, data_dir = test.stdout.readline().decode().split()
        test.kill()
        test.wait()
        watch = os.pidfd_open(int(pid)) if Path(f"/proc/{pid}").exists() else None
        if watch is not None:
            import select

            assert select.select([watch], [], [], 30)[0], "the node has survived its test"
            os.close(watch)
    assert (Path(data_dir) / ".kafka_cleanshutdown").exists()
