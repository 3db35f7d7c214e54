"""Asks the parts of a node for their numbers when a scraper comes. Between scrapes it costs nothing.

Whatever grows with the number of partitions or connections is done a few hundred at a time, and the loop runs
in between: a scrape delays no request for long, however many partitions there are. The list of partitions is
of one moment, so that sums never go back when a topic is deleted meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import add

from moldau import __version__
from moldau.metadata.image import NO_LEADER, ClusterImage
from moldau.net.acceptor import Acceptor
from moldau.raft.quorum import Quorum
from moldau.replica.partition import Partition
from moldau.replica.replicas import COUNTERS, counters_of
from moldau.runtime.process import ProcessUsage
from moldau.server.dispatcher import Dispatcher
from moldau.server.log_cleaner import LogCleaner
from moldau.server.metrics import catalog
from moldau.server.metrics.catalog import QUANTILES, Family
from moldau.server.metrics.chunks import in_chunks
from moldau.server.metrics.histogram import Histogram
from moldau.server.metrics.lag import add_client_positions, add_group_lags
from moldau.server.metrics.page import Page
from moldau.server.metrics.requests import RequestMetrics
from moldau.server.services import Services
from moldau.wire.errors import ErrorCode

# Fetch is what consumers and followers have in common; there are no followers yet.
# A transaction is late when its coordinator should have aborted it so long ago, as in Kafka.
LATE_TRANSACTION_BUFFER_MS = 5 * 60_000
_SHOWN_AS = {"Fetch": ("Fetch", "FetchConsumer")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The parts of a node that have something to tell."""

    services: Services
    dispatcher: Dispatcher
    quorum: Quorum
    acceptors: Sequence[tuple[str, Acceptor]]  # with the names of their listeners
    flushes: Histogram
    cleaner: LogCleaner
    broker_state: Callable[[], int]
    process_usage: Callable[[], ProcessUsage] | None


class Collector:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._clock = sources.services.runtime.clock
        self._usage_before: tuple[float, float] | None = None  # when, and the loop's CPU time

    async def render(self) -> bytes:
        begun_at = self._clock.monotonic()
        page = Page()
        self._add_node(page)
        self._add_process(page)
        await self._add_requests(page)
        await self._add_connections(page)
        self._add_transactions(page)
        await self._add_partitions(page)
        await add_group_lags(page, self._sources.services)
        await add_client_positions(page, self._sources.services)
        await self._add_cluster(page)
        page.add(catalog.SCRAPE_TIME, self._clock.monotonic() - begun_at)
        return page.render()

    # ------------------------------------------------------------ requests

    async def _add_requests(self, page: Page) -> None:
        dispatcher = self._sources.dispatcher
        page.add(catalog.REQUEST_QUEUE_SIZE, dispatcher.queue_size)
        page.add(catalog.REQUESTS_IN_PROGRESS, dispatcher.in_progress)
        for each in dispatcher.metrics():
            each.settle()
        async for chunk in in_chunks([each for each in dispatcher.metrics() if each.requests], 1):
            for metrics in chunk:
                for name in _SHOWN_AS.get(metrics.name, (metrics.name,)):
                    self._add_api(page, name, metrics)

    def _add_api(self, page: Page, name: str, metrics: RequestMetrics) -> None:
        metrics.settle()
        for version, requests in sorted(metrics.requests.items()):
            page.add(catalog.REQUESTS, requests, name, str(version))
        for code, responses in sorted(metrics.errors.items()):
            page.add(catalog.ERRORS, responses, name, _error_name(code))
        page.add_summary(
            catalog.REQUEST_BYTES, sum(metrics.requests.values()), metrics.request_bytes, (), name
        )
        for family, histogram in (
            (catalog.REQUEST_QUEUE_TIME, metrics.request_queue),
            (catalog.LOCAL_TIME, metrics.local),
            (catalog.REMOTE_TIME, metrics.remote),
            (catalog.RESPONSE_QUEUE_TIME, metrics.response_queue),
            (catalog.RESPONSE_SEND_TIME, metrics.response_send),
            (catalog.TOTAL_TIME, metrics.total),
        ):
            self._add_times(page, family, histogram, name)
        zeros = [(quantile, 0.0) for quantile in QUANTILES]
        page.add_summary(catalog.THROTTLE_TIME, metrics.total.count, 0, zeros, name)

    def _add_times(self, page: Page, family: Family, histogram: Histogram, *labels: str) -> None:
        percentiles = histogram.percentiles(QUANTILES, self._clock.monotonic())
        quantiles = [
            (quantile, seconds * 1e3) for quantile, seconds in zip(QUANTILES, percentiles, strict=True)
        ]
        page.add_summary(family, histogram.count, histogram.sum_s * 1e3, quantiles, *labels)

    # ------------------------------------------------------------ connections

    async def _add_connections(self, page: Page) -> None:
        responses_unsent = 0
        for listener, acceptor in self._sources.acceptors:
            connections = len(acceptor.connections)
            page.add(catalog.CONNECTION_COUNT, connections, listener, "0")
            page.add(catalog.CONNECTIONS_CREATED, acceptor.accepted_total, listener, "0")
            page.add(catalog.CONNECTIONS_CLOSED, acceptor.accepted_total - connections, listener, "0")
            page.add(catalog.CONNECTIONS_REAPED, acceptor.reaped_total, listener)
            page.add(catalog.CONNECTIONS_REFUSED, acceptor.refused_total, listener)
            async for chunk in in_chunks(list(acceptor.connections)):
                responses_unsent += sum(connection.responses_unsent for connection in chunk)
        page.add(catalog.RESPONSE_QUEUE_SIZE, responses_unsent)

    # ------------------------------------------------------------ transactions

    def _add_transactions(self, page: Page) -> None:
        transactions = self._sources.services.transactions
        for family, value in zip(
            (catalog.OPEN_TRANSACTIONS, catalog.DECIDED_TRANSACTIONS), transactions.counts(), strict=True
        ):
            page.add(family, value)
        page.add(catalog.UNREACHED_MARKERS, transactions.markers.unreached_count)
        page.add(catalog.UNCOMPLETED_TRANSACTIONS, transactions.markers.uncompleted_count)

    # ------------------------------------------------------------ partitions

    async def _add_partitions(self, page: Page) -> None:
        replicas = self._sources.services.replicas
        # The counters of a partition outlive it, hence a list of partitions and what the dead had counted,
        # both of this moment, are enough for sums that never go back.
        retired = replicas.retired
        partitions = list(replicas)
        page.add(catalog.PARTITION_COUNT, len(partitions))
        by_topic: dict[str, tuple[int, ...]] = {}
        health: Counter[Family] = Counter()
        producers = 0
        async for chunk in in_chunks(partitions):
            for partition in chunk:
                counted = counters_of(partition)
                if any(counted):  # as in Kafka, a topic has metrics from its first use
                    of_topic = by_topic.get(partition.topic)
                    if of_topic is not None:
                        counted = tuple(map(add, of_topic, counted))
                    by_topic[partition.topic] = counted
            self._add_logs(page, chunk)
            health.update(self._health(chunk))
            producers += sum(len(each.log.producers.producers) for each in chunk if each.log is not None)
        for topic, of_topic in by_topic.items():
            for name, value in zip(COUNTERS, of_topic, strict=True):
                if name in catalog.TOPIC_COUNTERS:
                    page.add(catalog.TOPIC_COUNTERS[name], value, topic)
        totals = [sum(values) for values in zip(retired, *by_topic.values(), strict=True)]
        for name, value in zip(COUNTERS, totals, strict=True):
            page.add((catalog.TOPIC_COUNTERS | catalog.REPLICA_COUNTERS)[name], value)
        for family in catalog.REPLICA_HEALTH:
            page.add(family, health[family])
        page.add(catalog.PRODUCER_ID_COUNT, producers)

    def _health(self, partitions: Sequence[Partition]) -> Iterator[Family]:
        """What is to be counted, once for each partition that it holds for."""
        services = self._sources.services
        image = services.image()
        timeout_ms = services.config.transactions.transaction_max_timeout_ms
        late_ms = services.runtime.clock.now_ms() - timeout_ms - LATE_TRANSACTION_BUFFER_MS
        for partition in partitions:
            log = partition.log
            if log is None:
                yield catalog.OFFLINE_REPLICAS
            if not partition.is_leader:
                continue
            yield catalog.LEADER_COUNT
            if log is not None and log.producers.has_transactions:
                oldest_ms = log.producers.oldest_transaction_timestamp()
                if 0 < oldest_ms < late_ms:
                    yield catalog.LATE_TRANSACTIONS
            in_sync = partition.in_sync_count
            registered = image.partition(partition.topic, partition.index)
            if registered is not None and in_sync < len(registered.replicas):
                yield catalog.UNDER_REPLICATED
            if log is not None and in_sync <= partition.min_in_sync:
                is_under = in_sync < partition.min_in_sync
                yield catalog.UNDER_MIN_ISR if is_under else catalog.AT_MIN_ISR

    def _add_logs(self, page: Page, partitions: Sequence[Partition]) -> None:
        logs = [
            # The names of topics need no escapes.
            (f'{{topic="{partition.topic}",partition="{partition.index}"}}', partition.log)
            for partition in partitions
            if partition.log is not None
        ]
        for family, values in (
            (catalog.LOG_SIZE, [log.size_bytes for _, log in logs]),
            (catalog.LOG_SEGMENTS, [log.segment_count for _, log in logs]),
            (catalog.LOG_START_OFFSET, [log.log_start_offset for _, log in logs]),
            (catalog.LOG_END_OFFSET, [log.log_end_offset for _, log in logs]),
        ):
            lines = [
                f"{family.name}{labels} {value}\n" for (labels, _), value in zip(logs, values, strict=True)
            ]
            page.add_lines(family, "".join(lines))

    # ------------------------------------------------------------ cluster

    async def _add_cluster(self, page: Page) -> None:
        services, quorum = self._sources.services, self._sources.quorum
        image: ClusterImage = services.image()
        partitions = leaderless = not_preferred = 0
        async for chunk in in_chunks(image.partitions()):
            partitions += len(chunk)
            for _, _, partition in chunk:
                leaderless += partition.leader == NO_LEADER
                not_preferred += partition.leader != partition.replicas[0]
        fenced = sum(broker.fenced for broker in image.brokers.values())
        is_active = quorum.leader_id == services.node_id
        page.add(catalog.ACTIVE_CONTROLLERS, int(is_active))
        page.add(catalog.ACTIVE_BROKERS, len(image.brokers) - fenced)
        page.add(catalog.FENCED_BROKERS, fenced)
        page.add(catalog.GLOBAL_TOPICS, len(image.topics))
        page.add(catalog.GLOBAL_PARTITIONS, partitions)
        page.add(catalog.OFFLINE_PARTITIONS, leaderless)
        page.add(catalog.PREFERRED_IMBALANCE, not_preferred)
        page.add(catalog.LAST_APPLIED_OFFSET, image.offset)
        page.add(catalog.LAST_APPLIED_TIMESTAMP, image.timestamp_ms)
        page.add(catalog.LAST_APPLIED_LAG, 0 if is_active else self._clock.now_ms() - image.timestamp_ms)
        page.add(catalog.LAST_COMMITTED_OFFSET, quorum.high_watermark - 1)
        page.add(catalog.RAFT_EPOCH, quorum.epoch)
        page.add(catalog.RAFT_LEADER, quorum.leader_id)
        page.add(catalog.RAFT_HIGH_WATERMARK, quorum.high_watermark)
        page.add(catalog.RAFT_END_OFFSET, quorum.end_offset)
        page.add(catalog.RAFT_VOTERS, len(quorum.voters))

    # ------------------------------------------------------------ the node

    def _add_node(self, page: Page) -> None:
        services = self._sources.services
        page.add(catalog.BROKER_STATE, self._sources.broker_state())
        page.add(catalog.INFO, 1, __version__, services.cluster_id, str(services.node_id))
        purgatory, sessions = services.fetch_purgatory, services.fetch_sessions
        page.add(catalog.PURGATORY_SIZE, len(purgatory.delayed), "Fetch")
        page.add(catalog.FETCH_EXPIRES, purgatory.expired_total, "consumer")
        page.add(catalog.FETCH_SESSIONS, len(sessions))
        page.add(catalog.FETCH_SESSION_PARTITIONS, sessions.partition_count())
        page.add(catalog.FETCH_SESSION_EVICTIONS, sessions.evictions_total)
        directories = services.log_directories
        page.add(catalog.OFFLINE_LOG_DIRECTORIES, len(directories.offline))
        for path in services.config.log_dirs:
            page.add(catalog.LOG_DIRECTORY_OFFLINE, int(path in directories.offline), path)
        self._add_times(page, catalog.LOG_FLUSHES, self._sources.flushes)
        self._add_cleaner(page)

    def _add_cleaner(self, page: Page) -> None:
        cleaner = self._sources.cleaner
        last = cleaner.last_cleanings
        bytes_read = sum(each.bytes_read for each in last)
        bytes_written = sum(each.bytes_written for each in last)
        page.add(catalog.CLEANER_DIRTIEST, int(100 * cleaner.dirtiest_ratio))
        page.add(catalog.CLEANER_LAST_RUN, cleaner.ms_since_last_run)
        for directory in self._sources.services.log_directories.online:
            partitions, dirty_bytes = cleaner.uncleanable(directory)
            page.add(catalog.UNCLEANABLE_PARTITIONS, partitions, directory.path)
            page.add(catalog.UNCLEANABLE_BYTES, dirty_bytes, directory.path)
        page.add(catalog.CLEANER_TIME, int(max((each.seconds for each in last), default=0)))
        page.add(catalog.CLEANER_RECOPY, int(100 * bytes_written / max(bytes_read, 1)))
        utilization = max((each.buffer_utilization for each in last), default=0.0)
        page.add(catalog.CLEANER_BUFFER_UTILIZATION, int(100 * utilization))
        page.add(catalog.CLEANER_DELAY, max((each.delay_ms for each in last), default=0) // 1000)
        page.add(catalog.CLEANER_DEAD_THREADS, cleaner.dead_workers)

    def _add_process(self, page: Page) -> None:
        if self._sources.process_usage is None:
            return
        usage = self._sources.process_usage()
        page.add(catalog.CPU_SECONDS, usage.cpu_s)
        page.add(catalog.LOOP_CPU_SECONDS, usage.thread_cpu_s)
        for family, value in (
            (catalog.RESIDENT_BYTES, usage.resident_bytes),
            (catalog.VIRTUAL_BYTES, usage.virtual_bytes),
            (catalog.OPEN_FDS, usage.open_fds),
            (catalog.MAX_FDS, usage.max_fds),
            (catalog.START_TIME, usage.start_time_s),
        ):
            if value is not None:
                page.add(family, value)
        for generation, (runs, objects) in enumerate(
            zip(usage.collections, usage.collected_objects, strict=True)
        ):
            page.add(catalog.GC_RUNS, runs, str(generation))
            page.add(catalog.GC_OBJECTS, objects, str(generation))
        now = self._clock.monotonic()
        if self._usage_before is not None and now > self._usage_before[0]:
            then, thread_cpu_s = self._usage_before
            busy = (usage.thread_cpu_s - thread_cpu_s) / (now - then)
            page.add(catalog.IDLE_PERCENT, min(1.0, max(0.0, 1.0 - busy)))
        self._usage_before = now, usage.thread_cpu_s


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
