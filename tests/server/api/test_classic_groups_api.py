"""The handlers of classic groups on a simulated node: every version of their APIs, answered so that
it can be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.coordinator.decision import Waiter
from moldau.wire import codec
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.describe_groups import DescribeGroupsRequest
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.server.sim_node import SimNode

OPTIONS = {
    "offsets_topic_num_partitions": "3",
    "offsets_topic_replication_factor": "1",
    "group_initial_rebalance_delay_ms": "0",
}


@pytest.fixture
def node() -> Iterator[SimNode]:
    with SimNode(**OPTIONS) as node:
        node.call(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
        node.simulation.advance(1)
        yield node


def ask(node: SimNode, request: Any, version: int) -> Any:
    """The answer, when it is there; it can be written in its version."""
    answer = node.call(request, version)
    if isinstance(answer, Waiter):
        node.simulation.advance(1)
        answer = answer.result()
    codec.encode(answer, version)
    return answer


def join(node: SimNode, version: int, member_id: str = "", **options: Any) -> Any:
    request = JoinGroupRequest(
        **{"group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, **options},
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    return ask(node, request, version)


def joined(node: SimNode, version: int = 9, **options: Any) -> str:
    answer = join(node, version, **options)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = join(node, version, answer.member_id, **options)
    assert (answer.error_code, answer.generation_id) == (0, 1)
    return str(answer.member_id)


def sync(node: SimNode, version: int, member_id: str, **options: Any) -> Any:
    named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    request = SyncGroupRequest(
        **{"group_id": "g", "generation_id": 1, "member_id": member_id, **named, **options},
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"a")],
    )
    return ask(node, request, version)


@pytest.mark.parametrize("version", range(10))
def test_join(node: SimNode, version: int) -> None:
    member_id = joined(node, version)
    assert member_id.startswith("client-")


@pytest.mark.parametrize("version", range(10))
def test_a_join_that_is_refused_names_no_protocol(node: SimNode, version: int) -> None:
    for options in ({"member_id": "nobody"}, {"group_id": ""}, {"session_timeout_ms": 1}):
        refused = join(node, version, **options)
        assert refused.error_code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.INVALID_GROUP_ID,
            ErrorCode.INVALID_SESSION_TIMEOUT,
        )
        assert refused.member_id == options.get("member_id", "")
        assert refused.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", range(6))
def test_sync(node: SimNode, version: int) -> None:
    synced = sync(node, version, joined(node))
    assert (synced.error_code, synced.assignment) == (0, b"a")


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_from_version_5_a_sync_names_its_protocol(node: SimNode, missing: str) -> None:
    member_id = joined(node)
    with pytest.raises(KafkaError) as refused:
        sync(node, 5, member_id, **{missing: None})
    assert refused.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5))
def test_heartbeat(node: SimNode, version: int) -> None:
    member_id = joined(node)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    assert ask(node, beat, version).error_code == ErrorCode.NONE
    beat.generation_id = 2
    assert ask(node, beat, version).error_code == ErrorCode.ILLEGAL_GENERATION
    beat.group_id = ""
    assert ask(node, beat, version).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(6))
def test_leave(node: SimNode, version: int) -> None:
    member_id = joined(node)
    for group_id, left, code in (
        ("g", "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        ("no group", member_id, ErrorCode.UNKNOWN_MEMBER_ID),
        ("g", member_id, ErrorCode.NONE),
    ):
        request = LeaveGroupRequest(group_id=group_id)
        if version < 3:
            request.member_id = left
            assert ask(node, request, version).error_code == code
        else:
            request.members = [MemberIdentity(member_id=left)] * 2
            answer = ask(node, request, version)
            assert answer.error_code == ErrorCode.NONE
            assert [each.error_code for each in answer.members] == [code, ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("version", range(6))
def test_where_there_is_no_coordinator_nobody_leaves(version: int) -> None:
    with SimNode(**OPTIONS) as node:
        answer = ask(node, LeaveGroupRequest(group_id="g", member_id="m"), version)
        assert (answer.error_code, answer.members) == (ErrorCode.NOT_COORDINATOR, [])
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        assert ask(node, beat, 4).error_code == ErrorCode.NOT_COORDINATOR
        assert join(node, 9).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", range(7))
def test_describe(node: SimNode, version: int) -> None:
    sync(node, 5, joined(node))
    request = DescribeGroupsRequest(groups=["g", "none"], include_authorized_operations=version >= 3)
    described, none = ask(node, request, version).groups
    assert (described.error_code, described.group_state) == (0, "Stable")
    assert [each.client_host for each in described.members] == ["/localhost"]
    assert none.group_state == "Dead"
    assert none.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    # Read, delete, describe, and both of configs: Kafka's codes of operations.
    assert described.authorized_operations == (0b1101_0100_1000 if version >= 3 else -(2**31))


def test_a_group_outlives_its_node(node: SimNode) -> None:
    member_id = joined(node)
    sync(node, 5, member_id)
    node.restart()
    node.simulation.advance(1)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    assert ask(node, beat, 4).error_code == ErrorCode.NONE
    assert sync(node, 5, member_id).assignment == b"a"
