"""The HTTP port answers scrapers, shares its work among them, and outlives whatever they do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from moldau.server.metrics.endpoint import (
    CONNECTIONS_MAX,
    IDLE_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    RESPONSE_TIMEOUT_S,
    MetricsEndpoint,
)
from moldau.sim.runtime import SimRuntime
from moldau.sim.simulation import Simulation
from tests.server.metrics.scraper import HttpClient

PORT = 9404


class World:
    """An endpoint on a simulated host whose page, readiness and pace the test sets."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        self.runtime: SimRuntime = self.simulation.host("localhost")
        self.page: Callable[[], bytes] = lambda: b"a 1\n"
        self.seconds = 0.0
        self.renderings = 0
        self.is_ready = True
        self.endpoint = MetricsEndpoint(self.runtime, self._render, lambda: self.is_ready)
        self.endpoint.listen("localhost", PORT)

    async def _render(self) -> bytes:
        self.renderings += 1
        await asyncio.sleep(self.seconds)
        return self.page()

    async def client(self) -> HttpClient:
        return await HttpClient.connect(self.runtime, PORT)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        async def joined() -> None:
            await self.runtime.spawn(work, "test")

        self.simulation.run(joined())


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    with world.simulation:
        yield world


def test_one_connection_serves_one_request_after_another(world: World) -> None:
    async def scenario() -> None:
        client = await world.client()
        for _ in range(2):
            status, headers, content = await client.get("/metrics")
            assert (status, content) == (200, b"a 1\n")
            assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert (await client.get("/health"))[::2] == (200, b"ready\n")
        assert (await client.get("/nope"))[0] == 404
        assert (await client.get("/metrics", method="HEAD"))[::2] == (200, b"")
        assert (await client.get("/"))[0] == 200

    world.run(scenario())


def test_requests_sent_at_once_are_answered_in_order(world: World) -> None:
    async def scenario() -> None:
        client = await world.client()
        requests = [f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n" for path in ("/metrics", "/nope", "/health")]
        client.stream.send(["".join(requests).encode()])
        assert [(await client.response())[0] for _ in requests] == [200, 404, 200]

    world.run(scenario())


def test_a_node_that_is_not_ready_says_so(world: World) -> None:
    async def scenario() -> None:
        world.is_ready = False
        client = await world.client()
        assert (await client.get("/health"))[0] == 503
        assert (await client.get("/metrics"))[0] == 503

    world.run(scenario())
    assert world.renderings == 0


def test_scrapers_that_come_together_share_a_page(world: World) -> None:
    world.seconds = 1.0

    async def scenario() -> None:
        clients = [await world.client() for _ in range(3)]
        gives_up, *others = [asyncio.create_task(client.get("/metrics")) for client in clients]
        await asyncio.sleep(0.5)
        clients[0].stream.close()
        gives_up.cancel()
        assert [(await other)[0] for other in others] == [200, 200]
        assert world.renderings == 1
        assert (await clients[1].get("/metrics"))[0] == 200

    world.run(scenario())
    assert world.renderings == 2  # a page is never older than the request for it, plus its making


def test_a_page_that_cannot_be_made_is_an_answer(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bytes:
        raise ValueError("a bug")

    world.page = fail

    async def scenario() -> None:
        client = await world.client()
        assert (await client.get("/metrics"))[0] == 500
        world.page = lambda: b"b 2\n"
        assert (await client.get("/metrics"))[::2] == (200, b"b 2\n")

    world.run(scenario())
    assert "cannot show the metrics" in caplog.text


@pytest.mark.parametrize(
    ("data", "status"),
    [(b"nonsense\r\n\r\n", 400), (b"PUT /metrics HTTP/1.1\r\n\r\n", 405), (b"GET /" + b"a" * 20_000, 431)],
)
def test_a_refused_client_sees_why_before_the_end(world: World, data: bytes, status: int) -> None:
    async def scenario() -> None:
        client = await world.client()
        client.stream.send([data])
        assert (await client.response())[0] == status
        assert await client.ended()

    world.run(scenario())


def test_a_page_larger_than_the_sockets_take_arrives_whole(world: World) -> None:
    world.page = lambda: bytes(range(256)) * 20_000

    async def scenario() -> None:
        assert (await (await world.client()).get("/metrics"))[2] == world.page()

    world.run(scenario())


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [
        (b"", REQUEST_TIMEOUT_S),
        (b"GET /metrics HT", REQUEST_TIMEOUT_S),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", IDLE_TIMEOUT_S),
    ],
)
def test_who_has_nothing_to_say_is_let_go(world: World, sent: bytes, seconds: float) -> None:
    async def scenario() -> None:
        client = await world.client()
        begun_at = world.runtime.clock.monotonic()
        if sent:
            client.stream.send([sent])
        if sent.endswith(b"\r\n\r\n"):
            await client.response()
        assert await client.ended()
        assert world.runtime.clock.monotonic() - begun_at == pytest.approx(seconds, abs=1)

    world.run(scenario())


def test_a_request_that_comes_drop_by_drop_has_no_more_time(world: World) -> None:
    async def scenario() -> None:
        client = await world.client()
        begun_at = world.runtime.clock.monotonic()
        with pytest.raises(OSError):
            for _ in range(100):
                client.stream.send([b"G"])
                await asyncio.sleep(1)
        assert world.runtime.clock.monotonic() - begun_at < REQUEST_TIMEOUT_S + 3

    world.run(scenario())


def test_who_does_not_take_the_page_is_let_go(world: World) -> None:
    world.page = lambda: bytes(8 << 20)

    async def scenario() -> None:
        client = await world.client()
        client.stream.send([b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"])
        await asyncio.sleep(RESPONSE_TIMEOUT_S + 5)
        with pytest.raises((EOFError, ConnectionError)):
            await client.response()

    world.run(scenario())


def test_connections_are_bounded_and_places_come_free(world: World) -> None:
    async def scenario() -> None:
        clients = [await world.client() for _ in range(CONNECTIONS_MAX)]
        for client in clients:
            assert (await client.get("/health"))[0] == 200
        assert await (await world.client()).ended()
        clients[0].stream.close()
        await asyncio.sleep(1)
        assert (await (await world.client()).get("/health"))[0] == 200

    world.run(scenario())


def test_closing_ends_connections_and_the_page_in_the_making(world: World) -> None:
    world.seconds = 60.0

    async def scenario() -> None:
        client = await world.client()
        client.stream.send([b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"])
        await asyncio.sleep(1)
        world.endpoint.close()
        assert await client.ended()
        with pytest.raises(ConnectionRefusedError):
            await world.client()

    world.run(scenario())
