"""A node: its parts, put together in the order in which they may rely on each other, and taken down in
reverse.

The order of starting: the directories are locked, so that nothing else can write to them; the ports are
taken, so that they can be told to others; the metadata log is replayed; the logs are opened; the broker
registers, is unfenced, and becomes the leader of what it leads; only then are connections served, and only
then is it ready.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial

from moldau.config.broker import BrokerConfig
from moldau.config.endpoint import Endpoint
from moldau.config.option import ConfigError
from moldau.controller.activation import decide_activation
from moldau.controller.brokers import (
    decide_change_log_dirs,
    decide_controlled_shutdown,
    decide_fence_broker,
    decide_register_broker,
    decide_unfence_broker,
)
from moldau.controller.directories import decide_assign_replicas_to_dirs
from moldau.controller.driver import Controller
from moldau.log.directory import LogDirectory
from moldau.log.errors import CorruptFileError, LogDirError
from moldau.log.log_directories import LogDirectories
from moldau.log.open_files import OpenFiles
from moldau.metadata.delta import Delta
from moldau.metadata.features import SUPPORTED_FEATURES
from moldau.metadata.image import ClusterImage, ResourceType
from moldau.net.acceptor import Acceptor, ConnectionLimits, SocketOptions
from moldau.net.connection import Connection, Handler
from moldau.raft.format import read_bootstrap_records
from moldau.raft.metadata_log import MetadataLogConfig
from moldau.raft.quorum import Quorum, QuorumError
from moldau.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from moldau.replica.fetch_session import FetchSessionCache
from moldau.replica.partition import Partition
from moldau.replica.purgatory import Purgatory
from moldau.replica.replicas import Replicas
from moldau.runtime.interfaces import Runtime
from moldau.runtime.process import ProcessUsage
from moldau.server.dispatcher import Dispatcher
from moldau.server.group_coordinator import GroupCoordinator
from moldau.server.identity import IdentityError, read_identity
from moldau.server.local_replicas import LocalReplicas
from moldau.server.log_cleaner import LogCleaner
from moldau.server.loggers import Loggers
from moldau.server.maintenance import Maintenance
from moldau.server.metrics.collector import Collector, Sources
from moldau.server.metrics.endpoint import MetricsEndpoint
from moldau.server.producer_ids import ProducerIds
from moldau.server.replica_mover import ReplicaMover
from moldau.server.services import Services
from moldau.server.share_coordinator import TOPIC as SHARE_STATE_TOPIC
from moldau.server.share_coordinator import ShareCoordinator
from moldau.server.share_partitions import SharePartitions
from moldau.server.share_persister import SharePersister
from moldau.server.telemetry import Telemetry
from moldau.server.topic_creation import create_in_background
from moldau.server.transaction_coordinator import TransactionCoordinator
from moldau.server.txn_markers import TxnMarkers
from moldau.server.txn_verification import TxnVerification
from moldau.wire.errors import KafkaError
from moldau.wire.ids import Uuid, random_uuid
from moldau.wire.messages import assign_replicas_to_dirs as assign_replicas
from moldau.wire.messages import broker_registration as registration

log = logging.getLogger(__name__)

SECURITY_PROTOCOL_CODES = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
# How long a stopping node waits for requests in progress; what is parked is answered at once.
DRAIN_S = 5.0
# A fetch session is safe from newer ones for this long; Kafka has no option for it either.
FETCH_SESSION_EVICTION_MS = 120_000


class StartError(Exception):
    """The node cannot start. The message is one line that says why, and what to do."""


class BrokerState(IntEnum):
    """Kafka's numbers, as its metric BrokerState shows them."""

    STARTING = 1
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6


class Node:
    """Made by `Node.start`; `stop` ends it. `failed` is set when it cannot go on by itself."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        directories: LogDirectories,
        metadata_directory: LogDirectory,
    ) -> None:
        self._runtime = runtime
        self._directories = directories
        self._metadata_directory = metadata_directory
        self._base_config = config
        self._acceptors: list[tuple[Endpoint, Acceptor]] = []
        self._advertised: list[Endpoint] = []
        self._broker_epoch = -1
        self._state = BrokerState.STARTING
        self._stopping = False
        self._reports: list[asyncio.Task[None]] = []  # of offline directories
        self._metrics: MetricsEndpoint | None = None
        self._metrics_port = -1
        self._process_usage: Callable[[], ProcessUsage] | None = None
        self._in_front: Callable[[Handler], Handler] | None = None
        self.failed = asyncio.Event()
        self.services: Services
        self.dispatcher: Dispatcher

    @classmethod
    async def start(
        cls,
        runtime: Runtime,
        config: BrokerConfig,
        open_files: OpenFiles | None = None,
        process_usage: Callable[[], ProcessUsage] | None = None,
        in_front: Callable[[Handler], Handler] | None = None,
    ) -> Node:
        """Raises StartError. `process_usage` is for the metrics, where the node has a process to itself;
        `in_front` gives what connections are to call instead of the dispatcher, in tests."""
        if not (config.is_broker and config.is_controller):
            raise StartError(
                "process.roles has to be broker,controller: nodes of one role need a cluster of several, "
                "which is not available yet"
            )
        directories, metadata_directory = _open_directories(runtime, config, open_files or OpenFiles())
        node = cls(runtime, config, directories, metadata_directory)
        node._process_usage = process_usage
        node._in_front = in_front
        try:
            await node._start(config)
        except BaseException as error:
            await node._abandon()
            if isinstance(error, KafkaError):
                raise StartError(str(error.message)) from error
            if isinstance(error, IdentityError | CorruptFileError | OSError):
                raise StartError(str(error)) from error
            raise
        return node

    async def _start(self, config: BrokerConfig) -> None:
        runtime, directories = self._runtime, self._directories
        own = dict.fromkeys([*directories.online, self._metadata_directory])
        identity = read_identity(list(own), config.node.node_id, runtime.random)
        self._take_ports(config)

        try:
            self.quorum = self._open_quorum(config)
        except QuorumError as error:
            raise StartError(str(error)) from error
        controller = Controller(
            self.quorum, self.quorum.replay, runtime.clock.now_ms, self._on_controller_failure
        )
        replicas = Replicas()
        groups = GroupCoordinator(runtime, config, controller.image, self._on_log_dir_failure)
        share_coordinator = ShareCoordinator(
            runtime, config, controller.image, replicas, self._on_log_dir_failure
        )
        producer_ids = ProducerIds(controller, identity.node_id, lambda: self._broker_epoch)
        txn_markers = TxnMarkers(runtime.clock, replicas, groups, self._on_log_dir_failure)
        transactions = TransactionCoordinator(
            runtime,
            identity.node_id,
            config,
            controller.image,
            producer_ids,
            txn_markers,
            self._on_log_dir_failure,
        )
        self.services = services = Services(
            runtime=runtime,
            node_id=identity.node_id,
            cluster_id=identity.cluster_id,
            config=config,
            controller=controller,
            quorum=self.quorum,
            replicas=replicas,
            groups=groups,
            share_coordinator=share_coordinator,
            share_partitions=SharePartitions(
                runtime,
                share_coordinator.environment,
                replicas,
                SharePersister(
                    runtime,
                    share_coordinator,
                    lambda: create_in_background(self.services, [SHARE_STATE_TOPIC]),
                ),
            ),
            log_directories=directories,
            fetch_sessions=FetchSessionCache(
                config.node.max_incremental_fetch_session_cache_slots,
                FETCH_SESSION_EVICTION_MS,
                runtime.random,
            ),
            fetch_purgatory=Purgatory(runtime),
            producer_ids=producer_ids,
            txn_markers=txn_markers,
            transactions=transactions,
            txn_verification=TxnVerification(runtime, lambda: self.services.config, transactions),
            replica_mover=ReplicaMover(
                runtime,
                lambda: self.services.config,
                replicas,
                directories,
                self._assign_to_directory,
                self._on_log_dir_failure,
            ),
            telemetry=Telemetry(runtime.random),
            loggers=Loggers(),
            on_log_dir_failure=self._on_log_dir_failure,
            fetch_max_bytes=config.node.fetch_max_bytes,
        )
        self._local = LocalReplicas(
            identity.node_id,
            runtime.clock,
            replicas,
            directories,
            self._on_log_dir_failure,
            self._on_placed,
            self._on_role,
        )
        self.dispatcher = Dispatcher(services, config.network.queued_max_requests)
        await self._activate(controller)
        self._apply_broker_options(controller.image)
        await self._register(controller)
        groups.update(controller.image, services.config)
        share_coordinator.update(controller.image, services.config)
        transactions.update(controller.image, services.config)
        self._local.load(controller.image, services.config)
        controller.listeners.append(self._on_image)
        if config.metadata_log_dir in directories.offline:
            raise directories.offline[config.metadata_log_dir]
        if self._reports:
            await asyncio.gather(*self._reports)  # before this broker is elected for what it has lost
        services.replica_mover.resume()
        await controller.submit(
            lambda image: decide_unfence_broker(image, identity.node_id, self._broker_epoch)
        )
        self._maintenance = Maintenance(
            runtime,
            lambda: services.config,
            directories,
            self._on_log_dir_failure,
            lambda: self._local.retry_unopened(controller.image, services.config),
        )
        self._maintenance.start()
        self._cleaner = LogCleaner(runtime, lambda: services.config, directories, self._on_log_dir_failure)
        self._cleaner.start()
        self._collector = Collector(
            Sources(
                services=services,
                dispatcher=self.dispatcher,
                quorum=self.quorum,
                acceptors=[(endpoint.name, acceptor) for endpoint, acceptor in self._acceptors],
                flushes=self._maintenance.flushes,
                cleaner=self._cleaner,
                broker_state=lambda: self._state,
                process_usage=self._process_usage,
            )
        )
        handle: Handler = self.dispatcher.dispatch
        if self._in_front is not None:
            handle = self._in_front(handle)
        for _, acceptor in self._acceptors:
            acceptor.open(handle)
        self._state = BrokerState.RUNNING

    @property
    def bootstrap(self) -> str:
        """Where clients reach the broker: the first advertised listener."""
        end = self._advertised[0]
        return f"[{end.host}]:{end.port}" if end.host and ":" in end.host else f"{end.host}:{end.port}"

    @property
    def connections(self) -> Iterator[Connection]:
        """The open ones of all listeners."""
        return (connection for _, acceptor in self._acceptors for connection in acceptor.connections)

    @property
    def metrics_address(self) -> str | None:
        """Where the metrics are, if they are served."""
        if self._metrics is None:
            return None
        host = self._base_config.metrics.moldau_metrics_host or self._runtime.network.host_name()
        return f"[{host}]:{self._metrics_port}" if ":" in host else f"{host}:{self._metrics_port}"

    # ------------------------------------------------------------ starting

    def _open_quorum(self, config: BrokerConfig) -> Quorum:
        directory_id = self._metadata_directory.directory_id
        assert directory_id is not None, "the directory says whose it is"
        options = config.metadata_log
        names = config.node.controller_listener_names
        return Quorum.open(
            self._runtime,
            config.metadata_log_dir,
            me=ReplicaKey(config.node.node_id, Uuid(directory_id)),
            voters=VoterSet(
                Voter(
                    key=ReplicaKey(voter.id),
                    endpoints=(VoterEndpoint(names[0].upper() if names else "", voter.host, voter.port),),
                )
                for voter in config.voters
            ),
            config=MetadataLogConfig(
                segment_bytes=options.log_segment_bytes,
                segment_ms=options.log_segment_ms,
                bytes_between_snapshots=options.log_max_record_bytes_between_snapshots,
                snapshot_interval_ms=options.log_max_snapshot_interval_ms,
                retention_bytes=options.max_retention_bytes,
                retention_ms=options.max_retention_ms,
            ),
        )

    async def _activate(self, controller: Controller) -> None:
        """Gives a new cluster what it starts with, or ends what a controller before us left open."""
        config, replay = self._base_config, self.quorum.replay
        bootstrap = read_bootstrap_records(self._runtime.files, config.metadata_log_dir)
        await controller.submit(
            lambda image: decide_activation(
                image,
                in_transaction=replay.in_transaction,
                bootstrap=bootstrap,
                min_insync_replicas=config.topic_defaults.min_insync_replicas,
            )
        )

    def _take_ports(self, config: BrokerConfig) -> None:
        limits = _connection_limits(config)
        advertised = {end.name: end for end in config.listeners.advertised}
        for endpoint in config.listeners.broker:
            if endpoint.security_protocol != "PLAINTEXT":
                raise StartError(f"listener {endpoint}: {endpoint.security_protocol} is not available yet")
            acceptor = Acceptor(
                self._runtime,
                limits,
                partial(_enter, endpoint.name),
                _socket_options(config),
            )
            host = endpoint.host or ""
            try:
                port = acceptor.listen(host, endpoint.port)
            except OSError as error:
                raise StartError(
                    f"cannot listen on {host or '*'}:{endpoint.port}: {error.strerror or error}"
                ) from error
            self._acceptors.append((endpoint, acceptor))
            told = advertised.get(endpoint.name, endpoint)
            self._advertised.append(
                Endpoint(
                    endpoint.name,
                    told.host or self._runtime.network.host_name(),
                    told.port or port,
                    endpoint.security_protocol,
                )
            )

        if config.metrics.moldau_metrics_port >= 0:
            self._take_metrics_port(config.metrics.moldau_metrics_host, config.metrics.moldau_metrics_port)

    def _take_metrics_port(self, host: str, port: int) -> None:
        """From here on it answers, at first that the node is not ready."""
        self._metrics = MetricsEndpoint(
            self._runtime,
            lambda: self._collector.render(),  # there is none before the node is ready
            lambda: self._state is BrokerState.RUNNING and not self.failed.is_set(),
        )
        try:
            self._metrics_port = self._metrics.listen(host, port)
        except OSError as error:
            raise StartError(
                f"cannot serve metrics on {host or '*'}:{port}: {error.strerror or error}"
            ) from error

    async def _register(self, controller: Controller) -> None:
        config, directories = self._base_config, self._directories
        request = registration.BrokerRegistrationRequest(
            broker_id=config.node.node_id,
            cluster_id=self.services.cluster_id,
            incarnation_id=random_uuid(self._runtime.random),
            listeners=[
                registration.Listener(
                    name=end.name,
                    host=end.host or "",
                    port=end.port,
                    security_protocol=SECURITY_PROTOCOL_CODES[end.security_protocol],
                )
                for end in self._advertised
            ],
            features=[
                registration.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=config.node.broker_rack,
            log_dirs=[Uuid(d.directory_id) for d in directories.online if d.directory_id is not None],
            previous_broker_epoch=_previous_broker_epoch(directories),
        )
        response = await controller.submit(
            lambda image: decide_register_broker(image, request, cluster_id=self.services.cluster_id)
        )
        self._broker_epoch = response.broker_epoch

    # ------------------------------------------------------------ while it runs

    def _on_image(self, image: ClusterImage, delta: Delta) -> None:
        if any(resource.type == ResourceType.BROKER for resource in delta.configs):
            self._apply_broker_options(image)
            self._local.update_defaults(image, self.services.config)
        # What a deleted topic leaves behind is for those who lead now, so roles come first.
        self._local.apply(image, delta, self.services.config)
        self.services.groups.on_image(image, delta, self.services.config)
        self.services.share_coordinator.on_image(image, delta, self.services.config)
        self.services.share_partitions.on_image(image, delta)
        self.services.transactions.update(image, self.services.config)
        if self.quorum.is_snapshot_due(self._runtime.clock.now_ms()):
            self._runtime.spawn(self._take_snapshot(image), "metadata snapshot")

    def _on_role(self, partition: Partition) -> None:
        self.services.groups.on_role(partition)
        self.services.share_coordinator.on_role(partition)
        self.services.transactions.on_role(partition)

    async def _take_snapshot(self, image: ClusterImage) -> None:
        try:
            await self.quorum.take_snapshot(image)
        except LogDirError as failure:
            self._on_log_dir_failure(failure)
        except KafkaError as failure:
            log.warning("no metadata snapshot this time: %s", failure.message)

    def _apply_broker_options(self, image: ClusterImage) -> None:
        default = image.config(ResourceType.BROKER, "")
        mine = image.config(ResourceType.BROKER, str(self.services.node_id))
        current = self.services.config
        if not (default or mine or current.dynamic_broker or current.dynamic_default):
            return
        try:
            config = self._base_config.with_dynamic(default, mine)
        except ConfigError as error:
            log.error("the dynamic options contradict each other and are left as they were: %s", error)
            return
        for problem in config.ignored:
            log.error("ignoring a dynamic option: %s", problem.message)
        self.services.config = config
        self.services.fetch_max_bytes = config.node.fetch_max_bytes
        for _, acceptor in self._acceptors:
            acceptor.change_limits(_connection_limits(config))
        self._runtime.resize_pool(config.node.num_io_threads)

    def _on_log_dir_failure(self, failure: LogDirError) -> None:
        metadata_lost = failure.directory == self._metadata_directory.path
        directory = self._directories.by_path(failure.directory)
        if directory is None and not metadata_lost:
            return  # known
        log.error("taking a log directory offline: %s", failure.message)
        directory_id = None if directory is None else directory.directory_id
        lost = self._local.lose(failure)
        if not self._directories.online or metadata_lost:
            log.critical("no log directory is left" if not metadata_lost else "the metadata log is lost")
            self.failed.set()
            return
        if directory_id is not None and not self._stopping:
            report = self._report_offline(Uuid(directory_id), lost)
            self._reports.append(self._runtime.spawn(report, "report offline directory"))

    def _on_controller_failure(self, failure: BaseException) -> None:
        log.critical("the controller cannot go on: %s", failure)
        self.failed.set()

    async def _report_offline(self, directory_id: Uuid, lost: Sequence[Partition]) -> None:
        """Whoever leads nothing there any more is not to be named as its leader."""
        node_id, epoch = self.services.node_id, self._broker_epoch
        # The controller may not have heard yet that these lay there.
        if lost:
            await self._report_placed(dict.fromkeys(lost, directory_id))
        try:
            await self.services.controller.submit(
                lambda image: decide_change_log_dirs(image, node_id, epoch, offline=[directory_id])
            )
        except KafkaError as failure:
            log.warning("the controller does not hear of the offline directory: %s", failure)

    async def _assign_to_directory(self, partition: Partition, directory_id: bytes) -> None:
        await self._assign_to_directories({partition: directory_id})

    async def _assign_to_directories(self, placed: Mapping[Partition, bytes]) -> None:
        """Tell the controller where replicas lie from now on."""
        directories: dict[bytes, dict[bytes, list[int]]] = {}
        for partition, directory_id in placed.items():
            directories.setdefault(directory_id, {}).setdefault(partition.topic_id, []).append(
                partition.index
            )
        request = assign_replicas.AssignReplicasToDirsRequest(
            broker_id=self.services.node_id,
            broker_epoch=self._broker_epoch,
            directories=[
                assign_replicas.RequestDirectoryData(
                    id=Uuid(directory_id),
                    topics=[
                        assign_replicas.RequestTopicData(
                            topic_id=Uuid(topic_id),
                            partitions=[
                                assign_replicas.RequestPartitionData(partition_index=index)
                                for index in indexes
                            ],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory_id, topics in directories.items()
            ],
        )
        await self.services.controller.submit(lambda image: decide_assign_replicas_to_dirs(image, request))

    def _on_placed(self, placed: Mapping[Partition, bytes]) -> None:
        self._runtime.spawn(self._report_placed(placed), "report directories")

    async def _report_placed(self, placed: Mapping[Partition, bytes]) -> None:
        try:
            await self._assign_to_directories(placed)
        except KafkaError as failure:
            log.warning("the controller hears of directories at the next start only: %s", failure)

    # ------------------------------------------------------------ stopping

    async def stop(self) -> bool:
        """Answers what is in progress, syncs and closes everything, and leaves the mark of a clean shutdown.
        False if something of that failed, which is in the log."""
        self._stopping = True
        self._state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        services = self.services
        for _, acceptor in self._acceptors:
            acceptor.stop_accepting()
        services.fetch_purgatory.release_all()
        services.share_partitions.close()
        services.groups.close()
        services.share_coordinator.close()
        services.transactions.close()
        await self._drain()
        await services.replica_mover.stop()
        await self._cleaner.stop()
        await self._maintenance.stop()
        is_clean = not self.failed.is_set() and await self._leave_cluster()
        for _, acceptor in self._acceptors:
            acceptor.close_connections()
        await self._maintenance.prepare_close()
        # Directory by directory, each locked until everything in it is closed.
        try:
            await self.quorum.close()
        except (KafkaError, OSError) as failure:
            log.error("the metadata log could not be closed: %s", failure)
            is_clean = False
        try:
            self._directories.close(self._broker_epoch)
        except (KafkaError, OSError) as failure:
            log.error("not everything could be closed: %s", failure)
            is_clean = False
        if self._metadata_directory.path not in self._base_config.log_dirs:
            self._metadata_directory.take_offline()
        if self._metrics is not None:
            self._metrics.close()
        return is_clean

    async def _leave_cluster(self) -> bool:
        controller, node_id, epoch = self.services.controller, self.services.node_id, self._broker_epoch
        try:
            await controller.submit(lambda image: decide_controlled_shutdown(image, node_id, epoch))
            await controller.submit(lambda image: decide_fence_broker(image, node_id, epoch))
        except KafkaError as failure:
            log.error("leaving without telling the controller: %s", failure)
            return False
        return True

    async def _drain(self) -> None:
        """Waits until no connection has a request in progress; the rest of what they sent is not begun."""
        deadline = self._runtime.clock.monotonic() + DRAIN_S
        while self._runtime.clock.monotonic() < deadline:
            if not any(connection.busy for connection in self.connections):
                return
            await asyncio.sleep(0.01)

    async def _abandon(self) -> None:
        """Lets go of what a failed start has taken."""
        for _, acceptor in self._acceptors:
            acceptor.stop_accepting()
            acceptor.close_connections()
        if self._metrics is not None:
            self._metrics.close()
        for directory in (*self._directories.online, self._metadata_directory):
            directory.take_offline()


def _open_directories(
    runtime: Runtime, config: BrokerConfig, open_files: OpenFiles
) -> tuple[LogDirectories, LogDirectory]:
    """Those of the logs, and the one of the metadata log, which may be one of them. All are locked."""
    path = config.metadata_log_dir
    try:
        directories = LogDirectories.open(runtime.files, config.log_dirs, runtime.random, open_files)
        try:
            if path in directories.offline:
                raise directories.offline[path]
            return directories, directories.by_path(path) or LogDirectory.open(
                runtime.files, open_files, path, runtime.random
            )
        except (BlockingIOError, LogDirError):
            for directory in directories.online:
                directory.take_offline()
            raise
    except BlockingIOError as error:
        raise StartError(
            f"{error.filename or path} is locked: another node is running on this directory"
        ) from None
    except LogDirError as error:
        raise StartError(str(error.message)) from error


def _previous_broker_epoch(directories: LogDirectories) -> int:
    """That of the last clean stop; -1 if any directory is lost or tells another."""
    epochs = {directory.previous_broker_epoch for directory in directories.online}
    if len(epochs) != 1 or directories.offline:
        return -1
    return epochs.pop()


def _enter(listener: str, connection: Connection) -> None:
    connection.state = listener


def _connection_limits(config: BrokerConfig) -> ConnectionLimits:
    network = config.network
    overrides = (
        entry.strip().rpartition(":")
        for entry in network.max_connections_per_ip_overrides.split(",")
        if entry
    )
    return ConnectionLimits(
        max_frame_bytes=network.socket_request_max_bytes,
        max_connections=network.max_connections,
        max_connections_per_ip=network.max_connections_per_ip,
        max_connections_per_ip_overrides={host: int(count) for host, _, count in overrides},
        max_idle_ms=network.connections_max_idle_ms,
    )


def _socket_options(config: BrokerConfig) -> SocketOptions:
    """The receive buffer only if it was set: Kafka's default would cap what the system finds out by itself.
    The send buffer always: with the system's, which grow to megabytes, `sendfile` costs half as much again,
    since what it puts there has left the processor's cache when the receiver takes it."""
    network, given = config.network, config.texts
    return SocketOptions(
        backlog=network.socket_listen_backlog_size,
        send_buffer_bytes=network.socket_send_buffer_bytes,
        receive_buffer_bytes=(
            network.socket_receive_buffer_bytes if "socket.receive.buffer.bytes" in given else -1
        ),
    )
