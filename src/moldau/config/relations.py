"""What the broker's options have to satisfy together, each of them being sound by itself.

Each function returns or adds what is wrong; none of them decides anything else.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moldau.config.endpoint import parse_address_counts
from moldau.config.option import Problem
from moldau.config.sections.network import Network

if TYPE_CHECKING:
    from moldau.config.broker import BrokerConfig

_DEDUPE_BYTES_PER_CLEANER_MIN = 1 << 20

_POOLS = (
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "log.cleaner.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.reader.threads",
)
"""Sizes of pools that can be changed while a broker runs, besides that of each listener."""


def check_relations(config: "BrokerConfig") -> list[Problem]:
    """All that is wrong with the options of `config` taken together."""
    return [
        *_check_roles(config),
        *_check_advertised(config),
        *_check_log(config),
        *_check_replication(config),
        *_check_network(config),
        *_check_security(config),
        *_check_limits(config.values),
    ]


def check_change(current: "BrokerConfig", wanted: "BrokerConfig") -> list[Problem]:
    """What a running broker with `current` does not take of `wanted`, although it is sound: pools that grow
    or shrink by more than half at once, and listeners that would take no connection."""
    problems = [
        problem for name in _POOLS for problem in _check_pool(name, current.values[name], wanted.values[name])
    ]
    for endpoint in wanted.listeners.broker:
        was, will_be = (config.for_listener(Network, endpoint.name) for config in (current, wanted))
        threads = Network.num_network_threads.name
        problems += _check_pool(threads, was.num_network_threads, will_be.num_network_threads)
        for option in (Network.max_connections, Network.max_connection_creation_rate):
            value = will_be.__dict__[option.attribute]
            if value <= 0 and value != was.__dict__[option.attribute]:
                problems.append(Problem(option.name, f"Invalid {option.name} {value}"))
    return list(dict.fromkeys(problems))


def _check_pool(name: str, current: int, wanted: int) -> list[Problem]:
    if wanted == current:
        return []
    if wanted < current // 2:
        reason = f"value should be at least half the current value {current}"
    elif wanted > current * 2:
        reason = f"value should not be greater than double the current value {current}"
    else:
        return []
    message = f"Dynamic thread count update validation failed for {name}={wanted}, {reason}"
    return [Problem(name, message)]


def _check_roles(config: "BrokerConfig") -> list[Problem]:
    node, listeners = config.node, config.listeners
    voter_ids = {voter.id for voter in config.voters}
    shown_ids = ",".join(map(str, sorted(voter_ids)))
    problems: list[Problem] = []

    def require(holds: bool, name: str, message: str) -> None:
        if not holds:
            problems.append(Problem(name, message))

    require(
        node.broker_id in (-1, node.node_id),
        "broker.id",
        "You must set `node.id` to the same value as `broker.id`.",
    )
    require(
        bool(voter_ids or config.quorum.bootstrap_servers),
        "controller.quorum.voters",
        "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of "
        "bootstrap controllers or controller.quorum.voters must contain a parseable set of controllers.",
    )
    names = [name.upper() for name in node.controller_listener_names]
    if config.is_controller:
        require(
            not voter_ids or node.node_id in voter_ids,
            "controller.quorum.voters",
            f"If process.roles contains the 'controller' role, the node id {node.node_id} must be "
            f"included in the set of voters controller.quorum.voters={shown_ids}",
        )
        require(
            bool(listeners.advertised_controller),
            "controller.listener.names",
            "controller.listener.names must contain at least one value appearing in the 'listeners' "
            "configuration when running the KRaft controller role",
        )
        require(
            {endpoint.name for endpoint in listeners.controller} >= set(names),
            "controller.listener.names",
            "controller.listener.names must only contain values appearing in the 'listeners' "
            "configuration when running the KRaft controller role",
        )
    if not config.is_broker:
        require(
            not listeners.broker,
            "listeners",
            "The listeners config must only contain KRaft controller listeners from "
            "controller.listener.names when process.roles=controller",
        )
    if not config.is_controller:
        require(
            node.node_id not in voter_ids,
            "controller.quorum.voters",
            f"If process.roles contains just the 'broker' role, the node id {node.node_id} must not be "
            f"included in the set of voters controller.quorum.voters={shown_ids}",
        )
        require(
            not listeners.controller,
            "controller.listener.names",
            "controller.listener.names must not contain a value appearing in the 'listeners' "
            "configuration when running KRaft with just the broker role",
        )
        for name in names:
            require(
                name in listeners.protocols,
                "controller.listener.names",
                f"Controller listener with name {name} defined in controller.listener.names "
                "not found in listener.security.protocol.map",
            )
    known = {*names, *(endpoint.name for endpoint in listeners.broker)}
    for name in node.early_start_listeners or ():
        require(
            name.upper() in known,
            "early.start.listeners",
            f"early.start.listeners contains listener {name}, but this is not contained in listeners "
            "or controller.listener.names",
        )
    return problems


def _check_advertised(config: "BrokerConfig") -> list[Problem]:
    listeners = config.listeners
    problems: list[Problem] = []
    if config.is_broker:
        advertised = {endpoint.name: endpoint for endpoint in listeners.advertised}
        listening = {endpoint.name for endpoint in listeners.broker}
        if not advertised:
            message = (
                "There must be at least one broker advertised listener. "
                "Perhaps all listeners appear in controller.listener.names?"
            )
            return [Problem("advertised.listeners", message)]
        if listeners.inter_broker not in advertised:
            message = (
                "inter.broker.listener.name must be a listener name defined in advertised.listeners. The "
                f"valid options based on currently configured listeners are {','.join(advertised)}"
            )
            problems.append(Problem("inter.broker.listener.name", message))
        if not advertised.keys() <= listening:
            message = (
                "advertised.listeners listener names must be equal to or a subset of the ones defined in "
                f"listeners. Found {','.join(advertised)}. The valid options based on the current "
                f"configuration are {','.join(sorted(listening))}"
            )
            problems.append(Problem("advertised.listeners", message))
    # Where nothing is advertised, 0.0.0.0 in listeners is advertised, which no client could use either.
    if any(
        endpoint.host == "0.0.0.0" for endpoint in (*listeners.advertised, *listeners.advertised_controller)
    ):
        message = (
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."
        )
        problems.append(Problem("advertised.listeners", message))
    return problems


def _check_log(config: "BrokerConfig") -> list[Problem]:
    problems: list[Problem] = []
    topic = config.topic_defaults
    if topic.segment_ms < 1:
        problems.append(Problem("log.roll.ms", "log.roll.ms must be greater than or equal to 1"))
    if topic.segment_jitter_ms < 0:
        problems.append(
            Problem("log.roll.jitter.ms", "log.roll.jitter.ms must be greater than or equal to 0")
        )
    if topic.retention_ms == 0:
        message = "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
        problems.append(Problem("log.retention.ms", message))
    cleaner = config.cleaner
    if cleaner.threads < 1:
        problems.append(Problem("log.cleaner.threads", "log.cleaner.threads must be at least 1"))
    elif cleaner.dedupe_buffer_size // cleaner.threads <= _DEDUPE_BYTES_PER_CLEANER_MIN:
        message = "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
        problems.append(Problem("log.cleaner.dedupe.buffer.size", message))
    cordoned = config.log.cordoned_log_dirs
    missing = [path for path in cordoned if path not in config.log_dirs]
    if missing and cordoned != ("*",):
        message = (
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {', '.join(missing)}"
        )
        problems.append(Problem("cordoned.log.dirs", message))
    return problems


def _check_replication(config: "BrokerConfig") -> list[Problem]:
    replication = config.replication
    wait_ms = replication.replica_fetch_wait_max_ms
    problems: list[Problem] = []
    if wait_ms > replication.replica_socket_timeout_ms:
        message = (
            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms "
            "to prevent unnecessary socket timeouts"
        )
        problems.append(Problem("replica.socket.timeout.ms", message))
    if wait_ms > replication.replica_lag_time_max_ms:
        message = (
            "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms "
            "to prevent frequent changes in ISR"
        )
        problems.append(Problem("replica.fetch.wait.max.ms", message))
    return problems


def _check_network(config: "BrokerConfig") -> list[Problem]:
    network = config.network
    problems: list[Problem] = []
    if 0 < network.queued_max_request_bytes < network.socket_request_max_bytes:
        message = "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"
        problems.append(Problem("queued.max.request.bytes", message))
    if network.max_connections_per_ip == 0 and not parse_address_counts(
        network.max_connections_per_ip_overrides
    ):
        message = (
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
            "property is set."
        )
        problems.append(Problem("max.connections.per.ip", message))
    delay_ms, idle_ms = network.connection_failed_authentication_delay_ms, network.connections_max_idle_ms
    if 0 <= idle_ms <= delay_ms:
        message = (
            f"connection.failed.authentication.delay.ms={delay_ms} should always be less than "
            f"connections.max.idle.ms={idle_ms} to prevent failed authentication responses from timing out"
        )
        problems.append(Problem("connection.failed.authentication.delay.ms", message))
    return problems


def _check_security(config: "BrokerConfig") -> list[Problem]:
    protocol = config.listeners.protocols.get(config.listeners.inter_broker, "")
    mechanism = config.sasl.mechanism_inter_broker_protocol
    if config.is_broker and protocol.startswith("SASL_"):
        listener = config.listeners.inter_broker
        if mechanism not in config.for_listener(type(config.sasl), listener).enabled_mechanisms:
            message = (
                "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms "
                "when SASL is used for inter-broker communication"
            )
            return [Problem("sasl.mechanism.inter.broker.protocol", message)]
    return []


def _check_limits(values: Mapping[str, Any]) -> list[Problem]:
    """Of `group.<kind>.X`, `.min.X` and `.max.X`, the first lies between the others."""
    problems: list[Problem] = []
    for high in values:
        kind, _, rest = high.partition(".max.")
        low, middle = f"{kind}.min.{rest}", f"{kind}.{rest}"
        if low not in values or middle not in values:
            continue
        if values[low] > values[high]:
            problems.append(Problem(high, f"{high} must be greater than or equal to {low}"))
        elif values[middle] < values[low]:
            problems.append(Problem(middle, f"{middle} must be greater than or equal to {low}"))
        elif values[middle] > values[high]:
            problems.append(Problem(middle, f"{middle} must be less than or equal to {high}"))
    for kind in ("consumer", "share", "streams"):
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        if values[heartbeat] >= values[session]:
            problems.append(Problem(heartbeat, f"{heartbeat} must be less than {session}"))
    standby, standby_max = "group.streams.num.standby.replicas", "group.streams.max.standby.replicas"
    if values[standby] > values[standby_max]:
        problems.append(Problem(standby, f"{standby} must be less than or equal to {standby_max}"))
    if "classic" not in values["group.coordinator.rebalance.protocols"]:
        message = "Disabling the 'classic' protocol is not supported."
        problems.append(Problem("group.coordinator.rebalance.protocols", message))
    return problems
