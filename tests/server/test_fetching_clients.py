"""Who reads what, as a node tells it: to whoever asks by our tag, and in the metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from moldau.server.api import list_groups
from moldau.server.metrics import catalog
from moldau.server.metrics.lag import add_client_positions, add_group_lags
from moldau.server.metrics.page import Page
from moldau.wire.api import ApiKey
from moldau.wire.codec import encode
from moldau.wire.headers import write_request_header
from moldau.wire.ids import Uuid
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.wire.messages.list_groups import ListGroupsRequest
from tests.server.metrics.scraper import Samples, parse, sample
from tests.server.sim_node import ONE_REPLICA, SimNode


@pytest.fixture
def sim() -> Iterator[SimNode]:
    with SimNode(**ONE_REPLICA) as node:
        node.create_topic("orders", 2)
        node.produce("orders", [1, 2, 3])
        yield node


def fetch(sim: SimNode, offset: int, index: int = 0, version: int = 17, **fields: Any) -> None:
    topic = FetchTopic(
        topic="orders" if version < 13 else "",
        topic_id=Uuid(sim.partition("orders").topic_id) if version >= 13 else Uuid(bytes(16)),
        partitions=[FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000)],
    )
    sim.send(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[topic], **fields), version)


def told(sim: SimNode) -> list[tuple[Any, ...]]:
    answer = sim.call(ListGroupsRequest(with_positions=True), 5)
    return [
        (
            client.client_id,
            client.host,
            topic.name,
            each.index,
            each.position,
            each.high_watermark,
            each.age_ms,
        )
        for client in answer.fetching_clients
        for topic in client.topics
        for each in topic.partitions
    ]


@pytest.mark.parametrize(("version", "epoch"), [(4, -1), (11, 0), (12, -1), (13, -1), (17, 0)])
def test_positions_are_told_of_every_version_with_a_session_or_without(
    sim: SimNode, version: int, epoch: int
) -> None:
    fetch(sim, 2, version=version, **({"session_epoch": epoch} if version >= 7 else {}))
    sim.run(asyncio.sleep(1.5))
    assert told(sim) == [("client", "localhost", "orders", 0, 2, 3, 1500)]


def test_the_newest_position_counts_however_it_was_asked_for(sim: SimNode) -> None:
    fetch(sim, 0, session_epoch=0)
    sim.run(asyncio.sleep(1))
    fetch(sim, 3, version=12, session_epoch=-1)
    assert told(sim) == [("client", "localhost", "orders", 0, 3, 3, 0)]


def test_what_is_not_here_is_not_told(sim: SimNode) -> None:
    fetch(sim, 1)
    fetch(sim, 0, index=7)
    sim.services.replicas.remove_topic("orders")
    assert told(sim) == []


def test_a_client_has_its_name_from_its_first_request_on(sim: SimNode) -> None:
    async def scenario() -> None:
        stream = await sim.runtime.network.connect("localhost", 9092)
        topic = FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, fetch_offset=2)])
        frame = write_request_header(ApiKey.FETCH, 4, 1, "first")
        encode(FetchRequest(topics=[topic]), 4, frame)
        stream.send([len(frame).to_bytes(4, "big") + frame])
        await asyncio.sleep(1)
        stream.close()

    sim.run(scenario())
    assert [(client, position) for client, _, _, _, position, _, _ in told(sim)] == [("first", 2)]


def test_nobody_is_told_who_does_not_ask(sim: SimNode) -> None:
    fetch(sim, 1)
    assert sim.call(ListGroupsRequest(), 5).fetching_clients is None


def test_those_most_behind_are_told(sim: SimNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_groups, "POSITIONS_MAX", 1)
    fetch(sim, 0, index=1, session_epoch=-1)
    fetch(sim, 1, index=0, session_epoch=-1)
    assert told(sim) == [("client", "localhost", "orders", 0, 1, 3, 0)]


def metrics(sim: SimNode) -> Samples:
    page = Page()

    async def add() -> None:
        await add_client_positions(page, sim.services)
        await add_group_lags(page, sim.services)

    sim.run(add())
    return parse(page.render().decode())


def test_positions_and_lag_are_metrics(sim: SimNode) -> None:
    fetch(sim, 1)
    samples = metrics(sim)
    who = {"client_id": "client", "host": "localhost", "topic": "orders", "partition": "0"}
    assert sample(samples, "moldau_client_fetch_position", **who) == 1
    assert sample(samples, "moldau_client_fetch_lag", **who) == 2
    assert sample(samples, "moldau_client_fetch_positions_left_out") == 0


def test_committed_offsets_and_lag_are_metrics(sim: SimNode) -> None:
    sim.commit("billing", {("orders", 0): 1, ("orders", 1): 0})
    samples = metrics(sim)
    lags = {
        dict(labels)["partition"]: value
        for (name, labels), value in samples.items()
        if name == "moldau_group_lag"
    }
    assert lags == {"0": 2, "1": 0}
    place = {"group": "billing", "topic": "orders", "partition": "0"}
    assert sample(samples, "moldau_group_committed_offset", **place) == 1


def test_those_most_behind_are_shown(sim: SimNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "GROUP_SERIES_MAX", 1)
    monkeypatch.setattr(catalog, "CLIENT_SERIES_MAX", 1)
    sim.commit("near", {("orders", 0): 3})
    sim.commit("far", {("orders", 0): 0})
    sim.commit("nearer", {("orders", 0): 2})
    fetch(sim, 1, index=0, session_epoch=-1)
    fetch(sim, 0, index=1, session_epoch=-1)
    samples = metrics(sim)
    groups = [dict(labels)["group"] for name, labels in samples if name == "moldau_group_lag"]
    partitions = [dict(labels)["partition"] for name, labels in samples if name == "moldau_client_fetch_lag"]
    assert (groups, partitions) == (["far"], ["0"])
    assert sample(samples, "moldau_group_offsets_left_out") == 2
    assert sample(samples, "moldau_client_fetch_positions_left_out") == 1
