"""The processes that the benchmarks run: the stub with real producers, and Apache Kafka itself."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from bench import frames, procfs, topics
from bench.brokers import Stub
from bench.kafka import KafkaServer, java_tool
from bench.loads.one_record import generate as generate_one_record
from bench.loads.raw_fetch import generate as generate_fetches

ONE_RECORD = frames.batch([b"x" * 100], 0)


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory):
    with Stub(tmp_path_factory.mktemp("stub") / "broker") as stub:
        yield stub


@pytest.mark.parametrize("batch_bytes", [100, 3_000_000])
def test_the_stub_acknowledges_frames_that_come_in_pieces_and_together(stub: Stub, batch_bytes: int):
    request = frames.produce("t", frames.batch([b"x" * batch_bytes], 0))
    with frames.connect(stub.bootstrap) as sock:
        for piece in (request[:3], request[3:50], request[50:] + request + request[:70], request[70:]):
            sock.sendall(piece)
        assert [frames.produce_error(frames.receive(sock), "t") for _ in range(3)] == [0, 0, 0]


def test_the_stub_does_not_answer_acks_0(stub: Stub):
    with frames.connect(stub.bootstrap) as sock:
        sock.sendall(frames.produce("t", ONE_RECORD, acks=0))
        assert frames.described(frames.call(sock, frames.metadata("t"))).brokers == 1


def test_the_stub_closes_on_what_it_does_not_know(stub: Stub):
    with frames.connect(stub.bootstrap) as sock:
        sock.sendall(frames.frame(99, 0, b""))
        assert sock.recv(1) == b""


@pytest.mark.parametrize("acks", ["1", "all"])
def test_librdkafka_produces_to_the_stub(stub: Stub, acks: str):
    errors = []
    producer = Producer(
        {"bootstrap.servers": stub.bootstrap, "acks": acks, "enable.idempotence": acks == "all"}
    )
    for _ in range(100):
        producer.produce("t", b"value", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None] * 100


@pytest.mark.parametrize(("connections", "in_flight"), [(1, 5), (7, 1)])
def test_the_one_record_generator_counts_every_answer(stub: Stub, connections: int, in_flight: int):
    sample = generate_one_record(
        stub.bootstrap, "t", pid=stub.pid, connections=connections, in_flight=in_flight, requests=1003
    )
    assert sample["requests_per_s"] > 0


def test_cpu_and_memory_are_those_of_the_whole_tree():
    busy = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    # A shell that stays, with the busy process as its child.
    command = ["sh", "-c", '"$0" -c "$1"; exit', sys.executable, busy]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        shell.stdout.readline()
        assert len(procfs.tree(shell.pid)) == 2
        assert procfs.cpu_seconds(shell.pid) >= 0.15
        assert procfs.resident_bytes(shell.pid) > procfs.resident_bytes(os.getpid()) / 100
        shell.communicate(b"\n")


@pytest.mark.java
def test_kafka_formats_starts_crashes_and_comes_back(tmp_path: Path):
    server = KafkaServer(tmp_path / "data")
    with server:
        topics.create(server.bootstrap, "t")
        records = topics.fill(server.bootstrap, "t", 300_000, 1000)
        sample = generate_fetches(server.bootstrap, "t", pid=server.pid, out_bytes=3_000_000)
        assert sample["mb_per_s"] > 0
        server.kill()
        server.start()
        shown = java_tool(
            "org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", server.bootstrap, "--topic", "t"
        )
        assert shown.stdout.split() == [f"t:0:{records}"], shown.stderr
        topics.delete(server.bootstrap, "t")
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=1):
        pass
