from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.connection import IN_FLIGHT_MAX, Connection, _FrameReader, connect
from moldau.sim.runtime import SimRuntime
from moldau.sim.simulation import Simulation
from moldau.wire.api import ApiKey
from moldau.wire.codec import ProtocolError
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.client.fake_broker import FakeBroker

Scenario = Callable[[SimRuntime, FakeBroker], Awaitable[None]]


def simulate(scenario: Scenario) -> None:
    with Simulation(seed=1) as simulation:
        broker = FakeBroker(simulation.host("broker"), host="broker")

        async def main() -> None:
            await scenario(simulation.host("client"), broker)

        simulation.run(main())


async def open_connection(runtime: SimRuntime, request_timeout_s: float = 30) -> Connection:
    return await connect(runtime.network, "broker", 9092, request_timeout_s=request_timeout_s)


def question(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)


def test_the_newest_common_version_is_used() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        broker.versions_max[ApiKey.METADATA] = 9
        connection = await open_connection(runtime)
        await connection.request(question("a"), MetadataResponse)
        assert [(key, version) for key, version, _ in broker.requests] == [
            (ApiKey.API_VERSIONS, 4),
            (ApiKey.METADATA, 9),
        ]
        assert connection.version_of(ApiKey.METADATA, last=7) == 7
        assert not connection.supports(ApiKey.HEARTBEAT)
        with pytest.raises(KafkaError, match="have no version of Heartbeat in common"):
            connection.version_of(ApiKey.HEARTBEAT)

    simulate(scenario)


@pytest.mark.parametrize("known", [0, 2, 3])
def test_an_older_broker_is_asked_again_in_its_version(known: int) -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        broker.versions_max[ApiKey.API_VERSIONS] = known
        connection = await open_connection(runtime)
        assert [version for _, version, _ in broker.requests] == [4, known]
        assert connection.supports(ApiKey.METADATA)

    simulate(scenario)


def test_pipelined_requests_get_their_own_answers() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        connection = await open_connection(runtime)
        names = [f"topic-{number}" for number in range(3 * IN_FLIGHT_MAX)]
        answers = await asyncio.gather(
            *(connection.request(question(name), MetadataResponse) for name in names)
        )
        assert [answer.topics[0].name for answer in answers] == names

    simulate(scenario)


def test_requests_in_flight_are_bounded_and_time_out_together() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        broker.overrides[ApiKey.METADATA] = lambda _: None
        connection = await open_connection(runtime, request_timeout_s=5)
        requests = [
            asyncio.create_task(connection.request(question("a"), MetadataResponse))
            for _ in range(2 * IN_FLIGHT_MAX)
        ]
        outcomes = await asyncio.gather(*requests, return_exceptions=True)
        assert len(broker.asked(ApiKey.METADATA)) == IN_FLIGHT_MAX
        assert {type(outcome) for outcome in outcomes} == {KafkaError}
        assert {outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)} == {
            ErrorCode.REQUEST_TIMED_OUT
        }
        assert connection.is_closed

    simulate(scenario)


def test_the_answer_to_a_request_nobody_waits_for_is_passed_over() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        connection = await open_connection(runtime)
        abandoned = asyncio.create_task(connection.request(question("abandoned"), MetadataResponse))
        await asyncio.sleep(0)
        abandoned.cancel()
        answer = await connection.request(question("wanted"), MetadataResponse)
        assert answer.topics[0].name == "wanted"
        assert len(broker.asked(ApiKey.METADATA)) == 2

    simulate(scenario)


def test_a_lost_connection_fails_what_is_pending_and_what_comes_later() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        broker.overrides[ApiKey.METADATA] = lambda _: broker.close()
        connection = await open_connection(runtime)
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                await connection.request(question("a"), MetadataResponse)
            assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
        assert connection.is_closed

    simulate(scenario)


def test_no_broker_is_a_network_exception() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        broker.close()
        with pytest.raises(KafkaError, match="cannot connect to broker:9092: connection refused"):
            await open_connection(runtime)

    simulate(scenario)


def test_a_silent_broker_is_a_timeout() -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        broker.overrides[ApiKey.API_VERSIONS] = lambda _: None
        with pytest.raises(KafkaError) as caught:
            await open_connection(runtime)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT

    simulate(scenario)


@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_for_an_answer_are_an_error_and_the_end(garbage: bytes) -> None:
    async def scenario(runtime: SimRuntime, broker: FakeBroker) -> None:
        broker.overrides[ApiKey.METADATA] = lambda _: garbage
        connection = await open_connection(runtime, request_timeout_s=5)
        with pytest.raises(KafkaError):
            await connection.request(question("a"), MetadataResponse)
        assert connection.is_closed

    simulate(scenario)


class Trickle:
    """A stream that gives `data` in pieces of the given sizes."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self.data = data
        self.sizes = sizes

    def recv_into(self, buffer: memoryview) -> int:
        count = min(self.sizes.pop() if self.sizes else 1 << 16, len(buffer), len(self.data))
        buffer[:count] = self.data[:count]
        self.data = self.data[count:]
        return count


@given(
    st.lists(st.one_of(st.binary(max_size=20), st.just(bytes(70_000)), st.just(bytes(65_532)))),
    st.lists(st.integers(1, 70_000)),
)
def test_frames_come_out_as_they_went_in_however_they_are_cut(frames: list[bytes], sizes: list[int]) -> None:
    stream = Trickle(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames), sizes)
    reader = _FrameReader()
    found = []
    while reader.read_from(stream):  # type: ignore[arg-type]
        while (frame := reader.next_frame()) is not None:
            found.append(bytes(frame))
    assert found == frames


@pytest.mark.parametrize("size", [-1, (256 << 20) + 1, 0x7FFFFFFF])
def test_a_frame_of_impossible_size_is_refused(size: int) -> None:
    reader = _FrameReader()
    reader.read_from(Trickle(size.to_bytes(4, "big", signed=True), []))  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="a response of"):
        reader.next_frame()
