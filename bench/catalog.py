"""Which loads there are, what is read off them, and what Moldau is to reach."""

from __future__ import annotations

from dataclasses import dataclass

from bench.loads import Load
from bench.loads.client_consumers import ClientConsume
from bench.loads.clients import ClientProduce
from bench.loads.commit import Commit
from bench.loads.compact import ZSTD, Compact, LatencyBesideCompaction
from bench.loads.confluent import ConfluentConsume, ConfluentProduce
from bench.loads.java import JavaConsume, JavaConsumePerf, JavaProduce
from bench.loads.latency import Latency
from bench.loads.lifecycle import Memory, Start
from bench.loads.load_groups import LoadGroups
from bench.loads.one_record import OneRecord
from bench.loads.raw_fetch import RawFetch
from bench.loads.rebalance import Rebalance
from bench.loads.transactions import JavaTransactions, Transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A bound on the ratio Moldau / `versus`."""

    versus: str = "kafka"
    at_least: float | None = None
    at_most: float | None = None

    def met(self, ratio: float) -> bool:
        above = self.at_least is None or ratio >= self.at_least
        return above and (self.at_most is None or ratio <= self.at_most)

    def __str__(self) -> str:
        return f"≥ {self.at_least:.2f}" if self.at_least is not None else f"≤ {self.at_most:.3g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: a metric of a load, and its targets (none: for information)."""

    load: str
    metric: str
    title: str
    targets: tuple[Target, ...] = ()


LOADS: list[Load] = [
    JavaProduce(name="produce-1k", record_bytes=1000, records=1_000_000, acks="1"),
    JavaProduce(name="produce-1k-all", record_bytes=1000, records=1_000_000, acks="all"),
    JavaProduce(name="produce-100b", record_bytes=100, records=5_000_000, acks="1"),
    ConfluentProduce(name="produce-1k-confluent", record_bytes=1000, records=700_000),
    ConfluentProduce(name="produce-100b-confluent", record_bytes=100, records=2_000_000),
    ClientProduce(name="client-produce-100b", record_bytes=100, records=400_000),
    ClientProduce(name="client-produce-1k", record_bytes=1000, records=150_000),
    ClientConsume(name="client-consume-100b", record_bytes=100, records=500_000),
    OneRecord(name="one-record", connections=1, in_flight=5, requests=200_000),
    OneRecord(name="one-record-50", connections=50, in_flight=1, requests=200_000),
    JavaConsumePerf(),
    JavaConsume(),
    ConfluentConsume(),
    RawFetch(),
    Latency(),
    Commit(name="commit-one-group", groups=1, connections=4, commits=50_000),
    Commit(name="commit-1000-groups", groups=1000, connections=10, commits=50_000),
    JavaTransactions(name="transactions-java", kind="produce", clients=1, transactions=2000),
    JavaTransactions(name="transactions-java-10", kind="produce", clients=10, transactions=5000),
    JavaTransactions(name="transform-java-10", kind="transform", clients=10, transactions=5000),
    Transactions(name="transactions-1", connections=1, transactions=3000, offsets=False),
    Transactions(name="transactions-20", connections=20, transactions=10_000, offsets=False),
    Transactions(name="transactions-20-offsets", connections=20, transactions=10_000, offsets=True),
    Rebalance(name="rebalance-classic", protocol="classic"),
    Rebalance(name="rebalance-consumer", protocol="consumer"),
    LoadGroups(),
    Compact(name="compact-100b", value_bytes=100, records=3_000_000, keys=300_000),
    Compact(name="compact-1k", value_bytes=1000, records=400_000, keys=40_000),
    Compact(name="compact-100b-zstd", value_bytes=100, records=3_000_000, keys=300_000, codec=ZSTD),
    Compact(name="compact-1k-zstd", value_bytes=1000, records=400_000, keys=40_000, codec=ZSTD),
    LatencyBesideCompaction(name="latency-compact", value_bytes=100, records=6_000_000, keys=500_000),
    Start(),
    Memory(),
]

# Members learn of it when they beat, every 0.1 s, which is most of what is beyond the session.
_AS_SOON = (Target(at_most=1),)

_NO_SLOWER = (Target(at_least=1),)
_FASTER_PRODUCE = (Target(at_least=1.2), Target(versus="stub", at_least=0.85))

ROWS = [
    Row(
        load="produce-1k", metric="records_per_s", title="produce 1 KB, Java, acks=1", targets=_FASTER_PRODUCE
    ),
    Row(
        load="produce-1k-all",
        metric="records_per_s",
        title="produce 1 KB, Java, acks=all",
        targets=_FASTER_PRODUCE,
    ),
    Row(
        load="produce-100b",
        metric="records_per_s",
        title="produce 100 B, Java, acks=1",
        targets=(Target(at_least=1.2),),
    ),
    Row(load="produce-1k-confluent", metric="records_per_s", title="produce 1 KB, confluent-kafka"),
    Row(load="produce-100b-confluent", metric="records_per_s", title="produce 100 B, confluent-kafka"),
    Row(
        load="client-produce-100b",
        metric="moldau_per_s",
        title="produce 100 B: our producer, a call a record",
    ),
    Row(
        load="client-produce-100b", metric="moldau_batch_per_s", title="produce 100 B: our producer, columns"
    ),
    Row(
        load="client-produce-100b",
        metric="moldau_sync_per_s",
        title="produce 100 B: our producer, from a thread",
    ),
    Row(load="client-produce-100b", metric="confluent_per_s", title="produce 100 B: confluent-kafka"),
    Row(load="client-produce-100b", metric="aiokafka_per_s", title="produce 100 B: aiokafka"),
    Row(load="client-produce-100b", metric="python_per_s", title="produce 100 B: kafka-python"),
    Row(
        load="client-produce-100b", metric="vs_pure", title="produce 100 B: ours / the faster pure Python one"
    ),
    Row(load="client-produce-100b", metric="vs_confluent", title="produce 100 B: ours / confluent-kafka"),
    Row(load="client-produce-1k", metric="moldau_per_s", title="produce 1 KB: our producer, a call a record"),
    Row(load="client-produce-1k", metric="moldau_batch_per_s", title="produce 1 KB: our producer, columns"),
    Row(
        load="client-produce-1k",
        metric="moldau_sync_per_s",
        title="produce 1 KB: our producer, from a thread",
    ),
    Row(load="client-produce-1k", metric="confluent_per_s", title="produce 1 KB: confluent-kafka"),
    Row(load="client-produce-1k", metric="aiokafka_per_s", title="produce 1 KB: aiokafka"),
    Row(load="client-produce-1k", metric="python_per_s", title="produce 1 KB: kafka-python"),
    Row(load="client-produce-1k", metric="vs_pure", title="produce 1 KB: ours / the faster pure Python one"),
    Row(load="client-produce-1k", metric="vs_confluent", title="produce 1 KB: ours / confluent-kafka"),
    Row(load="client-consume-100b", metric="moldau_per_s", title="consume 100 B: our consumer"),
    Row(
        load="client-consume-100b",
        metric="moldau_columns_per_s",
        title="consume 100 B: our consumer, columns",
    ),
    Row(
        load="client-consume-100b",
        metric="moldau_sync_per_s",
        title="consume 100 B: our consumer, from a thread",
    ),
    Row(load="client-consume-100b", metric="confluent_per_s", title="consume 100 B: confluent-kafka"),
    Row(load="client-consume-100b", metric="aiokafka_per_s", title="consume 100 B: aiokafka"),
    Row(load="client-consume-100b", metric="python_per_s", title="consume 100 B: kafka-python"),
    Row(
        load="client-consume-100b",
        metric="cpu_python_vs_ours",
        title="consume 100 B: CPU of kafka-python / of ours",
    ),
    Row(
        load="client-consume-100b",
        metric="cpu_aiokafka_vs_ours",
        title="consume 100 B: CPU of aiokafka / of ours",
    ),
    Row(
        load="client-consume-100b",
        metric="cpu_confluent_vs_ours",
        title="consume 100 B: CPU of confluent-kafka / of ours",
    ),
    Row(
        load="one-record",
        metric="requests_per_s",
        title="one-record requests, 1 connection, 5 in flight",
        targets=(Target(at_least=1.3),),
    ),
    Row(
        load="one-record-50",
        metric="requests_per_s",
        title="one-record requests, 50 connections",
        targets=(Target(at_least=1.3),),
    ),
    Row(
        load="consume-perf",
        metric="mb_per_s",
        title="consume 1 KB, Java perf tool",
        targets=(Target(at_least=1.1),),
    ),
    Row(
        load="consume-java",
        metric="mb_per_s",
        title="consume 1 KB, Java, warm",
        targets=(Target(at_least=1.1),),
    ),
    Row(load="consume-confluent", metric="mb_per_s", title="consume 1 KB, confluent-kafka"),
    Row(
        load="fetch-raw",
        metric="mb_per_s",
        title="raw fetches, 10 connections",
        targets=(Target(at_least=1.1),),
    ),
    Row(
        load="latency",
        metric="p50_ms",
        title="produce to consume at 1,000/s, p50",
        targets=(Target(at_most=1),),
    ),
    Row(
        load="latency",
        metric="p99_ms",
        title="produce to consume at 1,000/s, p99",
        targets=(Target(at_most=1),),
    ),
    Row(
        load="commit-one-group",
        metric="commits_per_s",
        title="offset commits of one group, 4 connections",
        targets=(Target(at_least=0.8),),
    ),
    Row(
        load="commit-1000-groups",
        metric="commits_per_s",
        title="offset commits of 1,000 groups, 10 connections",
        targets=(Target(at_least=0.8),),
    ),
    Row(load="commit-1000-groups", metric="cpu_s_per_100k", title="CPU per 100,000 offset commits"),
    Row(
        load="transactions-java",
        metric="transactions_per_s",
        title="transactions of 100 records, 1 Java producer",
        targets=_NO_SLOWER,
    ),
    Row(
        load="transactions-java-10",
        metric="transactions_per_s",
        title="the same, 10 Java producers",
        targets=_NO_SLOWER,
    ),
    Row(load="transactions-java-10", metric="cpu_s_per_1k", title="CPU per 1,000 of these"),
    Row(
        load="transform-java-10",
        metric="transactions_per_s",
        title="read, write, commit offsets in transactions, 10 Java clients",
        targets=_NO_SLOWER,
    ),
    Row(load="transform-java-10", metric="cpu_s_per_1k", title="CPU per 1,000 of these"),
    Row(
        load="transactions-1",
        metric="transactions_per_s",
        title="transactions of 100 records, 1 connection",
        targets=_NO_SLOWER,
    ),
    Row(
        load="transactions-20",
        metric="transactions_per_s",
        title="the same, 20 connections",
        targets=_NO_SLOWER,
    ),
    Row(load="transactions-20", metric="cpu_s_per_1k", title="CPU per 1,000 of these"),
    Row(
        load="transactions-20-offsets",
        metric="transactions_per_s",
        title="the same, and an offset each",
        targets=_NO_SLOWER,
    ),
    Row(load="transactions-20-offsets", metric="cpu_s_per_1k", title="CPU per 1,000 of these"),
    Row(
        load="rebalance-classic",
        metric="seconds",
        title="1 of 50 classic members falls silent",
    ),
    Row(
        load="rebalance-classic",
        metric="beyond_s",
        title="the same, beyond its session timeout",
        targets=_AS_SOON,
    ),
    Row(
        load="rebalance-consumer",
        metric="seconds",
        title="1 of 50 consumer members falls silent",
    ),
    Row(
        load="rebalance-consumer",
        metric="beyond_s",
        title="the same, beyond its session timeout",
        targets=_AS_SOON,
    ),
    Row(
        load="load-groups",
        metric="seconds",
        title="restart with 10,000 groups' offsets",
        targets=(Target(at_most=2),),
    ),
    Row(load="load-groups", metric="loading_s", title="the same, from the first answer on"),
    *(
        Row(load=load, metric="mb_per_s", title=f"compaction, {title}", targets=(Target(at_least=0.5),))
        for load, title in (
            ("compact-100b", "100 B"),
            ("compact-1k", "1 KB"),
            ("compact-100b-zstd", "100 B, zstd"),
            ("compact-1k-zstd", "1 KB, zstd"),
        )
    ),
    Row(load="latency-compact", metric="p50_times", title="latency beside compaction / without, p50"),
    Row(load="latency-compact", metric="p99_times", title="latency beside compaction / without, p99"),
    Row(
        load="start",
        metric="seconds",
        title="start to first acknowledged record",
        targets=(Target(at_most=1 / 8),),
    ),
    Row(load="memory", metric="idle_mib", title="resident memory, idle", targets=(Target(at_most=1 / 5),)),
    Row(
        load="memory",
        metric="loaded_mib",
        title="resident memory, after 1 GB in and out",
        targets=(Target(at_most=1 / 8),),
    ),
    Row(load="produce-1k", metric="cpu_s_per_gb", title="CPU per GB in", targets=(Target(at_most=1 / 2),)),
    Row(load="consume-java", metric="cpu_s_per_gb", title="CPU per GB out", targets=(Target(at_most=1 / 2),)),
    Row(
        load="one-record",
        metric="cpu_s_per_100k",
        title="CPU per 100,000 one-record requests",
        targets=(Target(at_most=1 / 3),),
    ),
]
