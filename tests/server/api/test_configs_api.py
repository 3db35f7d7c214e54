"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: the codes, sources and
synonyms are those that an Apache Kafka 4.3 node answered."""

from __future__ import annotations

import logging

import pytest

from moldau.wire.errors import ErrorCode as E
from moldau.wire.messages import alter_configs, describe_configs, incremental_alter_configs
from moldau.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.server.sim_node import SimNode

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
Entry = tuple[str | None, int, list[tuple[str, str | None, int]]]


def describe(node: SimNode, type: int, name: str, *keys: str) -> dict[str, Entry]:
    """Value, source and synonyms by name."""
    result = ask(node, type, name, list(keys) or None)
    assert result.error_code == E.NONE
    return {
        entry.name: (
            entry.value,
            entry.config_source,
            [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms],
        )
        for entry in result.configs
    }


def ask(
    node: SimNode, type: int, name: str, keys: list[str] | None = None, *, all: bool = True
) -> describe_configs.DescribeConfigsResult:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=type, resource_name=name, configuration_keys=keys
    )
    request = describe_configs.DescribeConfigsRequest(
        resources=[resource], include_synonyms=all, include_documentation=all
    )
    (result,) = node.call(request, 4).results
    assert (result.resource_type, result.resource_name) == (type, name)
    return result


def change(
    node: SimNode,
    type: int,
    name: str,
    *operations: tuple[str, int, str | None],
    validate_only: bool = False,
) -> int:
    configs = [
        incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in operations
    ]
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=type, resource_name=name, configs=configs
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    (response,) = node.call(request, 1).responses
    return response.error_code


def replace(node: SimNode, type: int, name: str, **values: str) -> int:
    configs = [
        alter_configs.AlterableConfig(name=key.replace("_", "."), value=value)
        for key, value in values.items()
    ]
    resource = alter_configs.AlterConfigsResource(resource_type=type, resource_name=name, configs=configs)
    (response,) = node.call(alter_configs.AlterConfigsRequest(resources=[resource]), 2).responses
    return response.error_code


def test_a_topic_shows_where_each_value_comes_from(node: SimNode) -> None:
    node.create_topic("t", retention_ms="5000")
    assert change(node, BROKER, "", ("log.retention.ms", SET, "77777")) == E.NONE
    assert describe(node, TOPIC, "t", "retention.ms", "cleanup.policy") == {
        "retention.ms": (
            "5000",
            1,
            [
                ("retention.ms", "5000", 1),
                ("log.retention.ms", "77777", 3),
                ("log.retention.hours", "168", 5),
            ],
        ),
        "cleanup.policy": ("delete", 5, [("log.cleanup.policy", "delete", 5)]),
    }


def test_synonyms_and_documentation_come_when_asked_for(node: SimNode) -> None:
    node.create_topic("t")
    (full,) = ask(node, TOPIC, "t", ["retention.bytes"]).configs
    (short,) = ask(node, TOPIC, "t", ["retention.bytes"], all=False).configs
    assert full.synonyms and full.documentation
    assert (short.value, short.synonyms, short.documentation) == (full.value, [], None)


def test_an_empty_list_of_names_asks_for_all_and_unknown_ones_for_none(node: SimNode) -> None:
    node.create_topic("t")
    assert len(ask(node, TOPIC, "t", []).configs) == len(ask(node, TOPIC, "t").configs) == 33
    assert ask(node, TOPIC, "t", ["nope"]).configs == []


@pytest.mark.parametrize(
    ("type", "name", "code"),
    [
        (TOPIC, "nope", E.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", E.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", E.INVALID_REQUEST),
        (BROKER, "x", E.INVALID_REQUEST),
        (BROKER, " 1", E.INVALID_REQUEST),
        (LOGGER, "", E.INVALID_REQUEST),
        (LOGGER, "2", E.INVALID_REQUEST),
        (CLIENT_METRICS, "", E.INVALID_REQUEST),
        (GROUP, "", E.INVALID_REQUEST),
        (0, "x", E.INVALID_REQUEST),
        (64, "x", E.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described(node: SimNode, type: int, name: str, code: E) -> None:
    assert ask(node, type, name).error_code == code


def test_one_unknown_type_spoils_the_whole_request(node: SimNode) -> None:
    node.create_topic("t")
    resources = [
        describe_configs.DescribeConfigsResource(
            resource_type=type, resource_name="t", configuration_keys=None
        )
        for type in (TOPIC, 0)
    ]
    results = node.call(describe_configs.DescribeConfigsRequest(resources=resources), 4).results
    assert [result.error_code for result in results] == [E.INVALID_REQUEST] * 2


def test_dynamic_options_take_effect_at_once(node: SimNode) -> None:
    assert change(node, BROKER, "1", ("log.cleanup.policy", APPEND, "compact")) == E.NONE
    assert node.services.config.topic_defaults.compact
    assert describe(node, BROKER, "1", "log.cleanup.policy")["log.cleanup.policy"][:2] == (
        "delete,compact",
        2,
    )
    assert change(node, BROKER, "1", ("log.cleanup.policy", SUBTRACT, "compact")) == E.NONE
    assert not node.services.config.topic_defaults.compact


def test_validating_changes_nothing(node: SimNode) -> None:
    node.create_topic("t")
    assert change(node, TOPIC, "t", ("retention.ms", SET, "1"), validate_only=True) == E.NONE
    assert change(node, TOPIC, "t", ("retention.ms", SET, "x"), validate_only=True) == E.INVALID_CONFIG
    assert describe(node, TOPIC, "t", "retention.ms")["retention.ms"][0] == "604800000"


def test_replacing_drops_what_is_not_named(node: SimNode) -> None:
    node.create_topic("t", cleanup_policy="compact")
    assert replace(node, TOPIC, "t", retention_ms="6000") == E.NONE
    assert describe(node, TOPIC, "t", "cleanup.policy")["cleanup.policy"][:2] == ("delete", 5)
    assert node.partition("t").log.config.retention_ms == 6000  # type: ignore[union-attr]
    assert replace(node, LOGGER, "1", root="INFO") == E.INVALID_REQUEST
    assert replace(node, BROKER, "2") == E.INVALID_REQUEST


@pytest.mark.parametrize(
    ("type", "name", "operation", "code"),
    [
        (BROKER, "1", ("broker.id", SET, "5"), E.INVALID_REQUEST),
        (BROKER, "2", ("log.retention.ms", SET, "5"), E.INVALID_REQUEST),
        (BROKER, "x", ("log.retention.ms", SET, "5"), E.INVALID_REQUEST),
        (BROKER, "", ("listeners", SET, "PLAINTEXT://:1"), E.INVALID_REQUEST),
        (BROKER, "1", ("log.retention.ms", APPEND, "5"), E.INVALID_CONFIG),
        (BROKER, "1", ("min.insync.replicas", SET, "2"), E.INVALID_CONFIG),
        (BROKER, "", ("min.insync.replicas", DELETE, None), E.INVALID_CONFIG),
        (TOPIC, "nope", ("retention.ms", SET, "5"), E.UNKNOWN_TOPIC_OR_PARTITION),
        (CLIENT_METRICS, "s", ("interval.ms", SET, "5"), E.INVALID_REQUEST),
        (CLIENT_METRICS, "s", ("interval.ms", SET, "abc"), E.INVALID_CONFIG),
        (CLIENT_METRICS, "s", ("nope", SET, "5"), E.INVALID_REQUEST),
        (CLIENT_METRICS, "s", ("match", SET, "x"), E.INVALID_CONFIG),
        (CLIENT_METRICS, "s", ("metrics", APPEND, "x"), E.INVALID_CONFIG),
        (0, "x", ("a", SET, "b"), E.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_changed(
    node: SimNode, type: int, name: str, operation: tuple[str, int, str | None], code: E
) -> None:
    assert change(node, type, name, operation) == code


def test_each_resource_of_a_request_has_an_outcome_of_its_own(node: SimNode) -> None:
    resources = [
        incremental_alter_configs.AlterConfigsResource(resource_type=type, resource_name=name, configs=[])
        for type, name in ((BROKER, "2"), (TOPIC, "nope"), (LOGGER, "1"), (BROKER, "1"))
    ]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=resources)
    responses = node.call(request, 1).responses
    assert [(each.resource_type, each.resource_name, each.error_code) for each in responses] == [
        (BROKER, "2", E.INVALID_REQUEST),
        (TOPIC, "nope", E.UNKNOWN_TOPIC_OR_PARTITION),
        (LOGGER, "1", E.NONE),
        (BROKER, "1", E.NONE),
    ]


def test_sets_the_level_of_a_logger_until_it_is_unset(node: SimNode) -> None:
    name = "moldau.server.test-only"
    logger = logging.getLogger(name)
    assert change(node, LOGGER, "1", (name, SET, "TRACE"), validate_only=True) == E.NONE
    assert logger.level == logging.NOTSET
    assert change(node, LOGGER, "1", (name, SET, "TRACE")) == E.NONE
    assert describe(node, LOGGER, "1", name) == {name: ("TRACE", 6, [])}
    assert change(node, LOGGER, "1", (name, DELETE, None)) == E.NONE
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "operation", "code"),
    [
        ("1", ("nope", SET, "INFO"), E.INVALID_CONFIG),
        ("1", ("root", SET, "info"), E.INVALID_CONFIG),
        ("1", ("root", SET, "OFF"), E.INVALID_CONFIG),
        ("1", ("root", DELETE, None), E.INVALID_REQUEST),
        ("1", ("root", APPEND, "INFO"), E.INVALID_REQUEST),
        ("1", ("root", SET, None), E.INVALID_REQUEST),
        ("2", ("root", SET, "INFO"), E.INVALID_REQUEST),
    ],
)
def test_levels_that_cannot_be_set(
    node: SimNode, name: str, operation: tuple[str, int, str | None], code: E
) -> None:
    before = logging.root.level
    assert change(node, LOGGER, name, operation) == code
    assert logging.root.level == before


def test_lists_what_has_a_configuration(node: SimNode) -> None:
    node.create_topic("t")
    change(node, CLIENT_METRICS, "sub", ("interval.ms", SET, "500"))
    change(node, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))

    def listed(*types: int, version: int = 1) -> list[tuple[int, str]]:
        response = node.call(ListConfigResourcesRequest(resource_types=list(types)), version)
        assert response.error_code == E.NONE
        return [(each.resource_type, each.resource_name) for each in response.config_resources]

    everything = [(GROUP, "g"), (CLIENT_METRICS, "sub"), (LOGGER, "1"), (BROKER, "1"), (TOPIC, "t")]
    assert listed() == everything
    assert listed(TOPIC, CLIENT_METRICS) == [(CLIENT_METRICS, "sub"), (TOPIC, "t")]
    assert listed(version=0) == [(CLIENT_METRICS, "sub")]
    response = node.call(ListConfigResourcesRequest(resource_types=[CLIENT_METRICS, 64]), 1)
    assert (response.error_code, response.config_resources) == (E.UNSUPPORTED_VERSION, [])
