"""ApiVersions: the answers are those that an Apache Kafka 4.3 node gave."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.net.connection import Connection
from moldau.wire import codec
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode as E
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.server.sim_node import SimNode


@pytest.fixture(scope="module")
def node() -> Iterator[SimNode]:
    with SimNode() as running:
        yield running


def ask(node: SimNode, version: int, name: str = "client", software_version: str = "1.0") -> Any:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    return node.call(request, version)


@pytest.mark.parametrize("version", [-1, 5, 32767])
def test_an_unknown_version_is_answered_in_version_0_with_those_of_this_api_alone(
    node: SimNode, version: int
) -> None:
    frame = memoryview(struct.pack(">hhih", ApiKey.API_VERSIONS, version, 77, -1) + b"\0\0\0")
    reply = node.node.dispatcher.dispatch(cast(Connection, SimpleNamespace()), frame, 0.0)
    assert isinstance(reply, bytearray)
    assert struct.unpack_from(">ii", reply) == (len(reply) - 4, 77)
    response = codec.decode_whole(ApiVersionsResponse, 0, bytes(reply[8:]))
    assert response.error_code == E.UNSUPPORTED_VERSION
    assert [(api.api_key, api.min_version, api.max_version) for api in response.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize(
    ("name", "version"),
    [("", "1"), ("x", ""), ("-x", "1"), ("x-", "1"), ("a b", "1"), ("a_b", "1"), ("x", "1\n")],
)
def test_software_that_cannot_be_a_tag_of_a_metric_is_refused(node: SimNode, name: str, version: str) -> None:
    assert ask(node, 3, name, version).error_code == E.INVALID_REQUEST


def test_features_whose_range_begins_at_0_are_told_to_those_who_can_read_them(node: SimNode) -> None:
    assert [each.name for each in ask(node, 3).supported_features] == ["metadata.version"]
    assert "group.version" in [each.name for each in ask(node, 4).supported_features]


def test_the_quorums_feature_is_finalized_once_voters_are_in_the_log(
    node: SimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "kraft.version" not in [each.name for each in ask(node, 4).finalized_features]
    monkeypatch.setattr(node.services.quorum, "kraft_version", 1)
    levels = {each.name: each.max_version_level for each in ask(node, 4).finalized_features}
    assert levels["kraft.version"] == 1
    assert levels["metadata.version"] > 1


def test_telemetry_is_advertised_once_someone_asks_for_metrics(node: SimNode) -> None:
    def keys() -> set[int]:
        return {each.api_key for each in ask(node, 4).api_keys}

    telemetry = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    before = keys()
    assert not telemetry & before
    resource = AlterConfigsResource(
        resource_type=16,
        resource_name="all",
        configs=[AlterableConfig(name="metrics", config_operation=0, value="*")],
    )
    (result,) = node.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == E.NONE
    assert keys() == before | telemetry
