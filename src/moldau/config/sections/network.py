"""Listeners, connections and the request queue."""

from moldau.config.endpoint import ADDRESS_COUNTS, PROTOCOL_MAP
from moldau.config.option import (
    CLUSTER_WIDE,
    FILLED,
    INT_MAX,
    PER_BROKER,
    Section,
    at_least,
    integer,
    long,
    string,
    strings,
)


class Network(Section):
    TITLE = "Network"

    listeners = strings(
        "listeners",
        ("PLAINTEXT://:9092",),
        FILLED,
        mode=PER_BROKER,
        importance="high",
        doc="Where the node listens, each as NAME://host:port; an empty host stands for all interfaces.",
    )
    advertised_listeners = strings(
        "advertised.listeners",
        None,
        FILLED,
        importance="high",
        doc="The addresses that clients are told to connect to, if not those of listeners.",
    )
    listener_security_protocol_map = string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        PROTOCOL_MAP,
        mode=PER_BROKER,
        importance="low",
        doc="The security protocol of each listener name, as NAME:PROTOCOL.",
    )
    num_network_threads = integer(
        "num.network.threads",
        3,
        at_least(1),
        mode=CLUSTER_WIDE,
        importance="high",
        effect=False,
        doc="Kept for compatibility: a node serves its sockets from one event loop.",
    )
    socket_send_buffer_bytes = integer(
        "socket.send.buffer.bytes",
        102_400,
        importance="high",
        doc="The send buffer of a connection's socket; -1 leaves it to the operating system.",
    )
    socket_receive_buffer_bytes = integer(
        "socket.receive.buffer.bytes",
        102_400,
        importance="high",
        doc="The receive buffer of a connection's socket; -1 leaves it to the operating system.",
    )
    socket_request_max_bytes = integer(
        "socket.request.max.bytes",
        104_857_600,
        at_least(1),
        importance="high",
        doc="A request larger than this closes the connection it comes on.",
    )
    socket_listen_backlog_size = integer(
        "socket.listen.backlog.size", 50, at_least(1), doc="Connections that may wait to be accepted."
    )
    max_connections = integer(
        "max.connections",
        INT_MAX,
        at_least(0),
        mode=CLUSTER_WIDE,
        doc="Connections that a node accepts at one time; further ones wait.",
    )
    max_connections_per_ip = integer(
        "max.connections.per.ip",
        INT_MAX,
        at_least(0),
        mode=CLUSTER_WIDE,
        doc="Connections that one address may hold; further ones are closed.",
    )
    max_connections_per_ip_overrides = string(
        "max.connections.per.ip.overrides",
        "",
        ADDRESS_COUNTS,
        mode=CLUSTER_WIDE,
        doc="Other limits for some addresses, as host:count.",
    )
    max_connection_creation_rate = integer(
        "max.connection.creation.rate",
        INT_MAX,
        at_least(0),
        mode=CLUSTER_WIDE,
        effect=False,
        doc="New connections accepted per second.",
    )
    connections_max_idle_ms = long(
        "connections.max.idle.ms", 600_000, doc="A connection without traffic for so long is closed."
    )
    connection_failed_authentication_delay_ms = integer(
        "connection.failed.authentication.delay.ms",
        100,
        at_least(0),
        importance="low",
        effect=False,
        doc="Pause before the connection of a client that failed to authenticate is closed.",
    )
    queued_max_requests = integer(
        "queued.max.requests",
        500,
        at_least(1),
        importance="high",
        doc="Requests that may wait for a handler before connections stop being read.",
    )
    queued_max_request_bytes = long(
        "queued.max.request.bytes",
        -1,
        effect=False,
        doc="Bytes of requests that may wait for a handler before "
        "connections stop being read; -1 for no limit.",
    )
