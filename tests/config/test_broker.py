"""A node's config: files that Kafka takes are taken, what is wrong is told by name, layers go over one another."""

# ruff: noqa: E501 (a case and its message stay on one line)

from __future__ import annotations

import pytest

from moldau.config.broker import BROKER_OPTIONS, BrokerConfig, base_name, merge_layers
from moldau.config.endpoint import Endpoint, Voter
from moldau.config.option import ConfigError
from moldau.config.properties import parse_properties
from moldau.config.sections.network import Network
from moldau.config.sections.sasl import Sasl
from moldau.config.sections.tls import Ssl
from tests.config.test_topic import NODE, broker


def problems(**properties: str | None) -> list[str]:
    """What is wrong with the sample node and these changes, as messages."""
    changed = {name.replace("_", "."): text for name, text in properties.items()}
    merged = {name: text for name, text in (NODE | changed).items() if text is not None}
    try:
        BrokerConfig.parse(merged)
    except ConfigError as error:
        return [problem.message for problem in error.problems]
    return []


def test_a_properties_file_as_kafka_ships_it() -> None:
    config = BrokerConfig.parse(
        parse_properties(
            """
            process.roles=broker,controller
            node.id=1
            controller.quorum.bootstrap.servers=localhost:9093
            listeners=PLAINTEXT://:9092,CONTROLLER://:9093
            inter.broker.listener.name=PLAINTEXT
            advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
            controller.listener.names=CONTROLLER
            listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
            num.network.threads=3
            num.io.threads=8
            socket.send.buffer.bytes=102400
            socket.receive.buffer.bytes=102400
            socket.request.max.bytes=104857600
            log.dirs=/var/lib/a, /var/lib/b
            num.partitions=1
            num.recovery.threads.per.data.dir=1
            offsets.topic.replication.factor=1
            share.coordinator.state.topic.replication.factor=1
            share.coordinator.state.topic.min.isr=1
            transaction.state.log.replication.factor=1
            transaction.state.log.min.isr=1
            log.retention.hours=168
            log.segment.bytes=1073741824
            log.retention.check.interval.ms=300000
            """
        )
    )
    assert (config.is_broker, config.is_controller) == (True, True)
    assert (config.node.node_id, config.node.broker_id) == (1, 1)
    assert config.log_dirs == ("/var/lib/a", "/var/lib/b")
    assert config.metadata_log_dir == "/var/lib/a"
    assert config.listeners.broker == (Endpoint("PLAINTEXT", None, 9092, "PLAINTEXT"),)
    assert config.listeners.advertised == (Endpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
    assert [str(end) for end in config.listeners.advertised_controller] == ["CONTROLLER://localhost:9093"]
    assert config.network.socket_send_buffer_bytes == 102_400


def test_all_unknown_and_invalid_properties_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse(
            {"log.segment.byte": "1", "num.partitions": "0", "zookeeper.connect": "z", "node.id": "x"}
        )
    found = {problem.name: problem.message for problem in caught.value.problems}
    assert found == {
        "log.segment.byte": "Unknown property log.segment.byte: did you mean log.segment.bytes?",
        "zookeeper.connect": "Unknown property zookeeper.connect: it was removed from Kafka before 4.3, take it out",
        "num.partitions": "Invalid value 0 for configuration num.partitions: Value must be at least 1",
        "node.id": "Invalid value x for configuration node.id: Not a number of type INT",
        "broker.id": "Invalid value x for configuration broker.id: Not a number of type INT",
        "process.roles": 'Missing required configuration "process.roles" which has no default value.',
        "controller.listener.names": 'Missing required configuration "controller.listener.names" which has no default value.',
    }  # fmt: skip


def test_nothing_like_it_gets_no_guess() -> None:
    assert problems(quite_different="1") == ["Unknown property quite.different"]


def test_properties_of_plugins_and_listeners_are_taken() -> None:
    names = {
        "super.users": "User:admin",
        "rsm.config.bucket": "b",
        "config.providers.file.class": "x",
        "metrics.context.a": "b",
        "listener.name.plaintext.ssl.keystore.location": "/k",
        "listener.name.plaintext.scram-sha-256.sasl.jaas.config": "x;",
        "listener.name.plaintext.max.connections": "7",
    }
    assert BrokerConfig.parse(NODE | names).texts.items() >= names.items()
    for name in ("listener.name.plaintext.nope", "listener.name.plaintext", "super.user"):
        assert problems(**{name: "x"})
    assert problems(**{"listener.name.plaintext.max.connections": "-1"}) == [
        "Invalid value -1 for configuration max.connections: Value must be at least 0"
    ]


def test_every_option_at_its_default_is_taken() -> None:
    defaults = {
        name: option.default_text
        for name, option in BROKER_OPTIONS.items()
        if option.default_text is not None
    }
    # These say the opposite of the sample node, or one thing in two ways.
    for name in (*NODE, "broker.id", "security.inter.broker.protocol", "controller.quorum.bootstrap.servers"):
        defaults.pop(name, None)
    defaults["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
    config = BrokerConfig.parse(defaults | NODE)
    assert config.topic_defaults == broker().topic_defaults


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("process.roles", "broker,zoo", "Invalid value zoo for configuration process.roles: String must be one of: broker, controller"),
        ("process.roles", "", "At least one value is needed"),
        ("node.id", "-1", "Value must be at least 0"),
        ("broker.id", "2", "You must set `node.id` to the same value as `broker.id`."),
        ("listeners", "PLAINTEXT:/x", "Unable to parse PLAINTEXT:/x to a broker endpoint"),
        ("listeners", "FOO://:9092", "No security protocol defined for listener FOO"),
        ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9092", "Each listener must have a different port"),
        ("listeners", "PLAINTEXT://:9092,PLAINTEXT://:9094,CONTROLLER://:9093", "Each listener must have a different name"),
        ("listeners", "PLAINTEXT://:70000,CONTROLLER://:9093", "Port 70000 is not between 0 and 65535"),
        ("listeners", "", "Value must not be empty"),
        ("listeners", "CONTROLLER://:9093", "There must be at least one broker advertised listener"),
        ("listeners", "PLAINTEXT://:9092", "controller.listener.names must contain at least one value appearing in the 'listeners'"),
        ("listeners", "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093", "nonroutable meta-address 0.0.0.0"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "nonroutable meta-address 0.0.0.0"),
        ("advertised.listeners", "SSL://h:9092", "inter.broker.listener.name must be a listener name defined in advertised.listeners"),
        ("advertised.listeners", "PLAINTEXT://h:1,SSL://h:2", "must be equal to or a subset of the ones defined in listeners"),
        ("listener.security.protocol.map", "PLAINTEXT:FOO", "Security protocol must be one of"),
        ("listener.security.protocol.map", "PLAINTEXT", "Each entry should be in the form {listener}:{protocol}"),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT", "No security protocol defined for listener CONTROLLER"),
        ("inter.broker.listener.name", "ZZ", "Listener with name ZZ defined in inter.broker.listener.name not found"),
        ("inter.broker.listener.name", "SSL", "must be a listener name defined in advertised.listeners"),
        ("security.inter.broker.protocol", "SSL", "must be a listener name defined in advertised.listeners"),
        ("controller.listener.names", "X", "No security protocol defined for listener CONTROLLER"),
        ("controller.listener.names", "CONTROLLER,X", "controller.listener.names must only contain values"),
        ("controller.quorum.voters", "", "either controller.quorum.bootstrap.servers must contain"),
        ("controller.quorum.voters", "2@h:1", "the node id 1 must be included in the set of voters controller.quorum.voters=2"),
        ("controller.quorum.voters", "1-h:1", "No voter id"),
        ("controller.quorum.voters", "x@h:1", "No voter id"),
        ("controller.quorum.voters", "1@h:x", "No address"),
        ("controller.quorum.voters", "1@h:1,1@g:1", "Each voter must have a different id"),
        ("controller.quorum.bootstrap.servers", "h", "each entry should be in the form {host}:{port}"),
        ("process.roles", "controller", "must only contain KRaft controller listeners"),
        ("process.roles", "broker", "the node id 1 must not be included in the set of voters"),
        ("early.start.listeners", "ZZ", "early.start.listeners contains listener ZZ"),
        ("log.dirs", "", "Value must not be empty"),
        ("log.roll.ms", "0", "log.roll.ms must be greater than or equal to 1"),
        ("log.roll.jitter.ms", "-1", "log.roll.jitter.ms must be greater than or equal to 0"),
        ("log.retention.hours", "0", "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        ("log.cleaner.dedupe.buffer.size", "1000", "must be at least 1MB per cleaner thread"),
        ("cordoned.log.dirs", "/zz", "Missing entries : /zz"),
        ("replica.fetch.wait.max.ms", "40000", "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms"),
        ("queued.max.request.bytes", "10", "must be larger or equal to socket.request.max.bytes"),
        ("max.connections.per.ip", "0", "can be set to zero only if"),
        ("max.connections.per.ip.overrides", "a b:1", "Each entry should be in the form {host}:{count}"),
        ("max.connections.per.ip.overrides", "host:x", "The limit of host is not a number"),
        ("connections.max.idle.ms", "50", "connection.failed.authentication.delay.ms=100 should always be less than"),
        ("offsets.topic.compression.codec", "9", "Value must be no more than 4"),
        ("group.consumer.session.timeout.ms", "5001", "group.consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms"),
        ("group.consumer.heartbeat.interval.ms", "16000", "group.consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms"),
        ("group.consumer.min.session.timeout.ms", "90000", "group.consumer.max.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms"),
        ("group.streams.num.standby.replicas", "3", "must be less than or equal to group.streams.max.standby.replicas"),
        ("group.coordinator.rebalance.protocols", "consumer", "Disabling the 'classic' protocol is not supported."),
        ("group.consumer.assignors", "", "Value must not be empty"),
        ("metadata.log.segment.bytes", "100", "Value must be at least 8388608"),
    ],
)  # fmt: skip
def test_what_kafka_refuses_is_refused(name: str, text: str, part: str) -> None:
    assert any(part in message for message in problems(**{name: text}))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("process.roles", "broker,controller,broker"),
        ("log.retention.minutes", "-5"),
        ("cordoned.log.dirs", "*"),
        ("listeners", "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092"),
        ("listeners", "PLAINTEXT://:0,CONTROLLER://:0"),
        ("controller.listener.names", "controller"),
        ("max.connections.per.ip.overrides", "localhost:5, 10.0.0.1:0"),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("group.consumer.migration.policy", "Upgrade"),
        ("offsets.topic.compression.codec", "4"),
    ],
)
def test_what_kafka_takes_is_taken(name: str, text: str) -> None:
    assert problems(**{name: text}) == []


def test_either_name_of_the_nodes_id_will_do() -> None:
    config = BrokerConfig.parse({**{k: v for k, v in NODE.items() if k != "node.id"}, "broker.id": "1"})
    assert config.node.node_id == 1


def test_a_broker_without_a_controller() -> None:
    config = broker(
        process_roles="broker", listeners="PLAINTEXT://h:9092", controller_quorum_voters="2@h:9093"
    )
    assert config.listeners.controller == ()
    assert config.voters == (Voter(2, "h", 9093),)
    assert config.listeners.protocols["CONTROLLER"] == "PLAINTEXT"


def test_a_secured_node_has_to_map_its_controller_listener() -> None:
    found = problems(listeners="SSL://:9092,CONTROLLER://:9093", security_inter_broker_protocol="SSL")
    assert found == [
        "Error creating broker listeners from listeners: No security protocol defined for listener CONTROLLER"
    ]


def test_sasl_between_brokers_needs_its_mechanism() -> None:
    secured = {
        "listeners": "SASL_PLAINTEXT://:9092,CONTROLLER://:9093",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    assert any("must be included in sasl.enabled.mechanisms" in message for message in problems(**secured))
    own = {"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN"}
    config = BrokerConfig.parse(NODE | secured | own)
    assert config.for_listener(Sasl, "SASL_PLAINTEXT").enabled_mechanisms == ("PLAIN",)


def test_a_listener_sees_its_own_values() -> None:
    config = broker(
        **{
            "ssl.keystore.location": "/all",
            "listener.name.tls.ssl.keystore.location": "/own",
            "listener.name.tls.plain.sasl.jaas.config": "j;",
        }
    )
    assert config.for_listener(Ssl, "TLS").keystore_location == "/own"
    assert config.for_listener(Ssl, "PLAINTEXT").keystore_location == "/all"
    assert config.for_listener(Sasl, "TLS", "PLAIN").jaas_config == "j;"
    assert config.for_listener(Network, "TLS") == config.network


def test_base_names() -> None:
    assert base_name("listener.name.x.max.connections") == "max.connections"
    assert base_name("listener.name.x.plain.sasl.jaas.config") == "sasl.jaas.config"
    assert base_name("log.dir") == "log.dir"


# Layers ----------------------------------------------------------------------------------------------------


def test_dynamic_layers_go_over_the_file() -> None:
    config = broker(log_retention_hours="5", message_max_bytes="1")
    changed = config.with_dynamic(
        {"log.retention.ms": "7", "message.max.bytes": "2"}, {"message.max.bytes": "3"}
    )
    assert changed.topic({}).retention_ms == 7
    assert changed.log.message_max_bytes == 3
    # Taking them away again leads back.
    assert changed.with_dynamic({}, {}).values == config.values


def test_a_setting_hides_its_synonyms_below() -> None:
    merged = merge_layers({"log.roll.hours": "1", "a": "b"}, {"log.roll.ms": "5"})
    assert merged == {"a": "b", "log.roll.ms": "5"}


def test_dynamic_settings_that_cannot_be_used_are_ignored_one_by_one() -> None:
    config = broker().with_dynamic(
        {
            "node.id": "3",
            "message.max.bytes": "x",
            "log.segment.bytes": "2000000",
            "listeners": "PLAINTEXT://:1",
        },
        {"ssl.keystore.password": "x", "plugin": "y"},
    )
    assert config.log.segment_bytes == 2_000_000
    assert config.node.node_id == 1
    assert sorted(problem.name for problem in config.ignored) == [
        "listeners",
        "message.max.bytes",
        "node.id",
        "ssl.keystore.password",
    ]
    assert dict(config.dynamic_broker) == {"plugin": "y"}


@pytest.mark.parametrize(
    ("per_broker", "name", "text", "message"),
    [
        (True, "node.id", "3", "Cannot update these configs dynamically: [node.id]"),
        (True, "ssl.keystore.password", "x", "These security configs can be dynamically updated only per-listener using the listener prefix: [ssl.keystore.password]"),
        (False, "listeners", "PLAINTEXT://:1", "Cannot update these configs at default cluster level, broker id must be specified: [listeners]"),
        (False, "listener.name.plaintext.ssl.keystore.location", "/x", "Cannot update these configs at default cluster level, broker id must be specified: [listener.name.plaintext.ssl.keystore.location]"),
        (True, "log.retention.ms", "abc", "Invalid value abc for configuration log.retention.ms: Not a number of type LONG"),
        (True, "log.roll.ms", "0", "log.roll.ms must be greater than or equal to 1"),
        (False, "listener.name.plaintext.nope", "x", "Cannot update these configs at default cluster level, broker id must be specified: [listener.name.plaintext.nope]"),
        (True, "num.io.threads", "17", "Dynamic thread count update validation failed for num.io.threads=17, value should not be greater than double the current value 8"),
        (True, "num.io.threads", "3", "Dynamic thread count update validation failed for num.io.threads=3, value should be at least half the current value 8"),
        (False, "num.network.threads", "7", "Dynamic thread count update validation failed for num.network.threads=7, value should not be greater than double the current value 3"),
        (True, "listener.name.plaintext.num.network.threads", "7", "Dynamic thread count update validation failed for num.network.threads=7, value should not be greater than double the current value 3"),
        (True, "log.cleaner.threads", "0", "log.cleaner.threads must be at least 1"),
        (True, "max.connections", "0", "Invalid max.connections 0"),
        (False, "listener.name.plaintext.max.connection.creation.rate", "0", "Invalid max.connection.creation.rate 0"),
        (True, "message.max.bytes", "-1", "Invalid value -1 for configuration message.max.bytes: Value must be at least 0"),
    ],
)  # fmt: skip
def test_dynamic_settings_are_refused_in_kafkas_words(
    per_broker: bool, name: str, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        broker().check_dynamic({name: text}, per_broker=per_broker)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("per_broker", "name", "text"),
    [
        (False, "listener.name.plaintext.max.connections", "3"),
        (True, "listener.name.plaintext.ssl.keystore.location", "/x"),
        (True, "listener.name.plaintext.nope", "x"),
        (True, "num.io.threads", "16"),
        (True, "num.io.threads", "4"),
        (True, "num.network.threads", "1"),
        (True, "log.retention.ms", "-7"),
        (False, "nope.nope", "x"),
        (False, "leader.replication.throttled.rate", "1"),
    ],
)
def test_other_dynamic_settings_are_taken(per_broker: bool, name: str, text: str) -> None:
    broker().check_dynamic({name: text}, per_broker=per_broker)


def test_a_config_is_frozen() -> None:
    config = broker()
    with pytest.raises(AttributeError):
        config.log = config.log
    with pytest.raises(TypeError):
        config.static["a"] = "b"  # type: ignore[index]
