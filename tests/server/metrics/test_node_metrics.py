"""What a node's page says, on a simulated node: right numbers, Kafka's names, the whole catalog."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from struct import pack

import pytest

from moldau.config.broker import BrokerConfig
from moldau.log.errors import LogDirError
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.runtime.process import ProcessUsage, read_process_usage
from moldau.server.metrics import catalog
from moldau.server.metrics.chunks import CHUNK
from moldau.server.metrics.collector import Collector, Sources
from moldau.server.metrics.document import to_markdown
from moldau.server.metrics.page import Page
from moldau.server.node import StartError
from moldau.wire import codec
from moldau.wire.errors import ErrorCode
from moldau.wire.messages import produce
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.server.api.test_transactions_api import add, end, init
from tests.server.api.test_transactions_api import started as transactional_node
from tests.server.api.txn_clients import append, marker, transactional_batch, write_markers
from tests.server.metrics.scraper import HttpClient, Samples, parse, sample
from tests.server.sim_node import DIRECTORIES, ONE_REPLICA, PROPERTIES, SimNode

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"
PORT = 9404


@pytest.fixture
def node() -> Iterator[SimNode]:
    with SimNode(moldau_metrics_port=str(PORT)) as node:
        yield node


def scrape(node: SimNode) -> Samples:
    async def get() -> Samples:
        client = await HttpClient.connect(node.runtime, PORT)
        status, _, content = await client.get("/metrics")
        client.stream.close()
        assert status == 200
        return parse(content.decode())

    samples: Samples = node.run(get())
    return samples


def test_the_page_in_the_docs_is_made_from_the_catalog() -> None:
    assert DOCS.read_text() == to_markdown(), (
        "run `python -m moldau.server.metrics.document > docs/metrics.md`"
    )


def test_every_metric_is_declared_well() -> None:
    names = [family.name for family in catalog.FAMILIES]
    assert len(names) == len(set(names))
    declared = {value for value in vars(catalog).values() if isinstance(value, catalog.Family)}
    assert declared - set(catalog.FAMILIES) == set()
    for family in catalog.FAMILIES:
        assert family.doc.endswith(".") and family.unit
        assert (family.type == "counter") == family.name.endswith("_total")
        assert bool(family.mbean) == family.name.startswith("kafka_")
        for label in family.labels:
            assert not family.mbean or f"{label}=" in family.mbean.lower()


def test_every_declared_metric_is_shown_and_no_other() -> None:
    with SimNode(**ONE_REPLICA) as sim:
        sim.create_topic("orders")
        sim.produce("orders", [1, 2, 3])
        sim.commit("billing", {("orders", 0): 1})
        fetched = FetchTopic(topic="orders", partitions=[FetchPartition(partition=0)])
        sim.send(FetchRequest(topics=[fetched]), 7)
        node = sim.node
        # What a call without a wire does not count.
        fetch = next(each for each in node.dispatcher.metrics() if each.name == "Fetch")
        fetch.requests[17] = 2
        fetch.errors[0] += 2
        sources = Sources(
            services=node.services,
            dispatcher=node.dispatcher,
            quorum=node.quorum,
            acceptors=[(endpoint.name, acceptor) for endpoint, acceptor in node._acceptors],
            flushes=node._maintenance.flushes,
            cleaner=node._cleaner,
            broker_state=lambda: 3,
            process_usage=usage(),
        )
        collector = Collector(sources)

        async def twice() -> bytes:
            await collector.render()
            await asyncio.sleep(10)
            return await collector.render()

        samples = parse(sim.run(twice()).decode())
        shown = {name for name, _ in samples}
        declared = {
            family.name + ("_count" if family.type == "summary" else "") for family in catalog.FAMILIES
        }
        assert declared - shown == set()
        assert sample(samples, "kafka_network_socketserver_networkprocessoravgidlepercent") == 0.75
        assert sample(samples, "python_gc_collections_total", generation="2") == 3


def usage():  # type: ignore[no-untyped-def]
    """A process whose loop is busy for a quarter of ten seconds between two looks."""
    cpu_s = iter((1.0, 3.5))

    def read() -> ProcessUsage:
        return ProcessUsage(
            cpu_s=9.0,
            thread_cpu_s=next(cpu_s),
            start_time_s=1e9,
            resident_bytes=1 << 20,
            virtual_bytes=1 << 21,
            open_fds=7,
            max_fds=1024,
            collections=(1, 2, 3),
            collected_objects=(4, 5, 6),
        )

    return read


def test_traffic_is_counted_for_each_topic_and_for_all(node: SimNode) -> None:
    node.create_topic("orders", 2)
    node.create_topic("idle")
    node.produce("orders", [1, 2, 3], 0)
    node.produce("orders", [1, 2], 1)
    samples = scrape(node)
    messages_in = "kafka_server_brokertopicmetrics_messagesin_total"
    assert sample(samples, messages_in, topic="orders") == 5
    assert sample(samples, messages_in) == 5
    assert (messages_in, frozenset({("topic", "idle")})) not in samples
    assert sample(samples, "kafka_server_brokertopicmetrics_totalproducerequests_total") == 2
    assert sample(samples, "kafka_log_log_logendoffset", topic="orders", partition="1") == 2
    assert sample(samples, "kafka_log_log_numlogsegments", topic="idle", partition="0") == 1
    size = sum(node.partition("orders", index).log.size_bytes for index in (0, 1))  # type: ignore[union-attr]
    assert sample(samples, "kafka_server_brokertopicmetrics_bytesin_total") == size


def test_sums_do_not_go_back_when_a_topic_is_deleted(node: SimNode) -> None:
    node.create_topic("orders")
    node.produce("orders", [1, 2, 3])
    node.services.replicas.remove_topic("orders")
    samples = scrape(node)
    assert sample(samples, "kafka_server_brokertopicmetrics_messagesin_total") == 3
    assert all(("topic", "orders") not in labels for _, labels in samples)


def test_a_healthy_node_of_one(node: SimNode) -> None:
    node.create_topic("orders", 3)
    samples = scrape(node)
    expected = {
        "kafka_server_replicamanager_partitioncount": 3,
        "kafka_server_replicamanager_leadercount": 3,
        "kafka_server_replicamanager_atminisrpartitioncount": 3,
        "kafka_server_replicamanager_underreplicatedpartitions": 0,
        "kafka_server_replicamanager_underminisrpartitioncount": 0,
        "kafka_server_replicamanager_offlinereplicacount": 0,
        "kafka_controller_kafkacontroller_activecontrollercount": 1,
        "kafka_controller_kafkacontroller_activebrokercount": 1,
        "kafka_controller_kafkacontroller_globaltopiccount": 1,
        "kafka_controller_kafkacontroller_globalpartitioncount": 3,
        "kafka_controller_kafkacontroller_offlinepartitionscount": 0,
        "kafka_log_logmanager_offlinelogdirectorycount": 0,
        "kafka_server_raft_metrics_current_leader": 1,
        "kafka_server_kafkaserver_brokerstate": 3,
        "kafka_controller_kafkacontroller_lastappliedrecordoffset": node.node.quorum.end_offset - 1,
        "kafka_controller_kafkacontroller_lastcommittedrecordoffset": node.node.quorum.end_offset - 1,
        "kafka_controller_kafkacontroller_lastappliedrecordlagms": 0,
    }
    assert {name: sample(samples, name) for name in expected} == expected


@pytest.mark.parametrize(("replica_count", "is_under"), [(1, False), (2, True), (3, True)])
def test_a_topic_asks_for_no_more_replicas_in_sync_than_it_has(
    node: SimNode, replica_count: int, is_under: bool
) -> None:
    node.create_topic("orders", min_insync_replicas="2")
    partition = node.partition("orders")
    partition.become_leader(1, partition.leader_epoch, 1, replica_count)
    samples = scrape(node)
    assert sample(samples, "kafka_server_replicamanager_underminisrpartitioncount") == is_under
    assert sample(samples, "kafka_server_replicamanager_atminisrpartitioncount") == (not is_under)


def test_a_failed_directory_shows(node: SimNode) -> None:
    node.create_topic("orders", 4)
    lost = next(p for p in node.services.replicas if p.log.log_dir == DIRECTORIES[1])
    assert lost.log is not None
    node.services.on_log_dir_failure(LogDirError(DIRECTORIES[1], OSError(5, "Input/output error")))
    samples = scrape(node)
    assert sample(samples, "kafka_log_logmanager_offlinelogdirectorycount") == 1
    assert sample(samples, "kafka_log_logmanager_logdirectoryoffline", logdirectory=DIRECTORIES[1]) == 1
    assert sample(samples, "kafka_log_logmanager_logdirectoryoffline", logdirectory=DIRECTORIES[0]) == 0
    assert sample(samples, "kafka_server_replicamanager_offlinereplicacount") >= 1


def test_transactions_that_nobody_ends_show(node: SimNode) -> None:
    node.create_topic("orders", 2)
    timeout_s = node.config.transactions.transaction_max_timeout_ms / 1000 + 300
    first_timestamp = node.runtime.clock.now_ms()
    append(node, "orders", transactional_batch(timestamp=first_timestamp))
    late, ids = (
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        "kafka_server_replicamanager_produceridcount",
    )
    node.run(asyncio.sleep(timeout_s - 10))
    samples = scrape(node)
    assert (sample(samples, late), sample(samples, ids)) == (0, 1)
    node.run(asyncio.sleep(20))
    assert sample(scrape(node), late) == 1
    write_markers(node, marker({"orders": [0]}))
    assert sample(scrape(node), late) == 0


def test_transactions_are_counted_until_they_are_complete() -> None:
    names = (
        "moldau_transactions_open",
        "moldau_transactions_decided",
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize",
    )
    with transactional_node(moldau_metrics_port=str(PORT)) as node:

        def counts() -> list[float]:
            samples = scrape(node)
            return [sample(samples, name) for name in names]

        assert counts() == [0, 0, 0, 0]
        producer = init(node)
        add(node, producer, ("t", 0))
        assert counts() == [1, 0, 0, 0]
        write = node.services.txn_markers.write_marker
        node.services.txn_markers.write_marker = lambda *_, **__: ErrorCode.NOT_LEADER_OR_FOLLOWER
        end(node, producer)
        assert counts() == [0, 1, 1, 0]
        node.services.txn_markers.write_marker = write
        node.run(asyncio.sleep(2))
        assert counts() == [0, 0, 0, 0]


def test_changes_of_the_replicas_in_sync_are_counted_by_the_leader(node: SimNode) -> None:
    node.create_topic("orders")
    partition = node.partition("orders")
    for in_sync_count in (3, 2, 1, 2):
        partition.become_leader(1, partition.leader_epoch, in_sync_count, 3)
    samples = scrape(node)
    assert sample(samples, "kafka_server_replicamanager_isrexpands_total") == 2
    assert sample(samples, "kafka_server_replicamanager_isrshrinks_total") == 2


def test_more_partitions_than_fit_a_chunk_are_all_there(node: SimNode) -> None:
    node.create_topic("orders", CHUNK + 3)
    samples = scrape(node)
    logs = {labels for name, labels in samples if name == "kafka_log_log_size"}
    assert len(logs) == CHUNK + 3


def test_the_loop_turns_while_a_page_is_made(node: SimNode) -> None:
    node.create_topic("orders", 2 * CHUNK)
    turns = 0

    async def scenario() -> None:
        nonlocal turns
        rendering = asyncio.ensure_future(node.node._collector.render())
        while not rendering.done():
            turns += 1
            await asyncio.sleep(0)

    node.run(scenario())
    assert turns >= 4  # two chunks of replicas, two of the cluster's partitions


def test_requests_are_counted_and_timed_with_or_without_a_response(node: SimNode) -> None:
    node.create_topic("orders")
    batch = build_batch([Record(0, 1, b"key", b"value")])

    async def scenario() -> None:
        stream = await node.runtime.network.connect("localhost", 9092)
        for topic, acks in (("orders", 1), ("orders", 0), ("nope", 1), ("orders", 7)):
            stream.send([produce_frame(topic, batch, acks)])
            await asyncio.sleep(0.1)
        stream.close()

    node.run(scenario())
    samples = scrape(node)
    requests = "kafka_network_requestmetrics_requests_total"
    assert sample(samples, requests, request="Produce", version="7") == 4
    for stage in ("requestqueue", "local", "remote", "throttle", "responsequeue", "responsesend", "total"):
        assert sample(samples, f"kafka_network_requestmetrics_{stage}timems_count", request="Produce") == 4
    errors = "kafka_network_requestmetrics_errors_total"
    codes = {
        name: value
        for (family, labels), value in samples.items()
        if family == errors and ("request", "Produce") in labels
        for label, name in labels
        if label == "error"
    }
    assert codes == {"NONE": 1, "UNKNOWN_TOPIC_OR_PARTITION": 1, "INVALID_REQUIRED_ACKS": 1}
    assert sample(samples, "kafka_server_brokertopicmetrics_messagesin_total", topic="orders") == 2
    assert sample(samples, "kafka_server_brokertopicmetrics_failedproducerequests_total") == 0
    assert (
        sample(
            samples,
            "kafka_server_socket_server_metrics_connection_close_total",
            listener="PLAINTEXT",
            networkprocessor="0",
        )
        == 1
    )


def produce_frame(topic: str, batch: bytes, acks: int) -> bytes:
    request = produce.ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            produce.TopicProduceData(
                name=topic, partition_data=[produce.PartitionProduceData(index=0, records=batch)]
            )
        ],
    )
    body = bytearray(pack(">hhih", 0, 7, 1, -1))
    codec.encode(request, 7, body)
    return pack(">i", len(body)) + bytes(body)


def test_flushes_are_timed(node: SimNode) -> None:
    node.create_topic("orders", flush_ms="1")
    node.produce("orders", [1])
    node.simulation.advance(5)
    assert sample(scrape(node), "kafka_log_logflushstats_logflushrateandtimems_count") >= 1


def test_the_page_outlives_a_restart_and_ends_with_the_node(node: SimNode) -> None:
    node.restart()
    assert sample(scrape(node), "moldau_info", version="0.1.0", node_id="1", cluster_id=cluster(node)) == 1
    node.stop()
    with pytest.raises(ConnectionRefusedError):
        scrape(node)


def cluster(node: SimNode) -> str:
    cluster_id: str = node.services.cluster_id
    return cluster_id


def test_a_taken_port_is_told_in_one_line() -> None:
    with SimNode() as node:
        node.stop()
        taken = {"moldau.metrics.host": "localhost", "moldau.metrics.port": "9092"}
        node.config = BrokerConfig.parse({**PROPERTIES, **taken})
        with pytest.raises(
            StartError, match=r"^cannot serve metrics on localhost:9092: Address already in use$"
        ):
            node.start(node.simulation.restart("localhost"))


def test_values_of_labels_are_escaped() -> None:
    page = Page()
    page.add(catalog.LOG_DIRECTORY_OFFLINE, 1, 'a"b\\c\nd')
    assert page.render().decode().splitlines()[-1] == (
        'kafka_log_logmanager_logdirectoryoffline{logdirectory="a\\"b\\\\c\\nd"} 1'
    )


def test_the_process_is_measured() -> None:
    usage = read_process_usage()
    assert usage.cpu_s > 0 and usage.thread_cpu_s > 0
    assert read_process_usage().thread_cpu_s > usage.thread_cpu_s
    assert usage.max_fds > 0
    assert len(usage.collections) == len(usage.collected_objects) == 3
    if usage.resident_bytes is not None:
        assert 0 < usage.resident_bytes <= (usage.virtual_bytes or 0)
