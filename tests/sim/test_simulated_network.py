import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.runtime.interfaces import Stream
from moldau.sim.network import CONNECT_TIMEOUT_S
from moldau.sim.simulation import Simulation


class Conversation:
    """A connection from host a to host b, and all that b has received, each piece with its virtual time."""

    def __init__(self, simulation: Simulation, port: int = 9092) -> None:
        self.simulation = simulation
        self.pieces: list[tuple[float, bytes]] = []
        self.error: OSError | None = None
        self.far: Stream
        simulation.host("b").network.listen("b", port, self._on_accept)
        self.near = simulation.run(simulation.host("a").network.connect("b", port))
        simulation.advance(0.1)

    @property
    def received(self) -> bytes:
        return b"".join(data for _, data in self.pieces)

    def _on_accept(self, stream: Stream) -> None:
        self.far = stream
        stream.watch_readable(self._on_readable)

    def _on_readable(self) -> None:
        buffer = bytearray(1 << 16)
        try:
            count = self.far.recv_into(buffer)
        except OSError as error:
            self.error = error
            count = 0
        if not count:
            self.far.watch_readable(None)
        self.pieces.append((self.simulation.loop.time(), bytes(buffer[:count])))


@given(pieces=st.lists(st.binary(min_size=1, max_size=200), max_size=30), seed=st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_a_connection_keeps_its_order_whatever_the_latencies(pieces, seed):
    with Simulation(seed) as simulation:
        simulation.network.wires.latency_s = (0.0, 0.5)
        talk = Conversation(simulation)
        for piece in pieces:
            assert talk.near.send([piece]) == len(piece)
        simulation.advance(10)
        assert talk.received == b"".join(pieces)


def test_between_connections_there_is_no_order():
    firsts = set()
    for seed in range(20):
        with Simulation(seed) as simulation:
            one, other = Conversation(simulation, 1), Conversation(simulation, 2)
            one.near.send([b"one"])
            other.near.send([b"other"])
            simulation.advance(1)
            firsts.add(one.pieces[0][0] < other.pieces[0][0])
    assert firsts == {True, False}


def test_bytes_take_time_within_the_latency():
    with Simulation() as simulation:
        talk = Conversation(simulation)
        simulation.network.wires.latency_s = (0.2, 0.3)
        sent_at = simulation.loop.time()
        talk.near.send([b"x"])
        simulation.advance(1)
        assert 0.2 <= talk.pieces[0][0] - sent_at <= 0.3


def test_a_partition_holds_bytes_and_healing_delivers_them_in_order():
    with Simulation() as simulation:
        talk = Conversation(simulation)
        simulation.network.wires.partition("a", "b")
        talk.near.send([b"held "])
        simulation.advance(60)
        talk.near.send([b"back"])
        simulation.advance(60)
        assert talk.received == b""
        simulation.network.wires.heal()
        simulation.advance(1)
        assert talk.received == b"held back"


def test_a_one_way_partition_lets_the_other_way_pass():
    with Simulation() as simulation:
        talk = Conversation(simulation)
        simulation.network.wires.partition("b", "a", one_way=True)
        talk.near.send([b"arrives"])
        talk.far.send([b"does not"])
        simulation.advance(60)
        assert talk.received == b"arrives"
        with pytest.raises(BlockingIOError):
            talk.near.recv_into(bytearray(10))


def test_connecting_through_a_partition_or_to_a_dark_host_times_out():
    with Simulation() as simulation:
        a, b = simulation.host("a"), simulation.host("b")
        b.network.listen("", 9092, lambda stream: None)
        simulation.network.wires.partition("a", "b")
        with pytest.raises(TimeoutError, match="timed out"):
            simulation.run(a.network.connect("b", 9092))
        simulation.network.wires.heal()
        assert simulation.loop.time() >= CONNECT_TIMEOUT_S
        simulation.crash("b")
        with pytest.raises(TimeoutError, match="timed out"):
            simulation.run(a.network.connect("b", 9092))


def test_a_name_nobody_has_is_an_error():
    with Simulation() as simulation, pytest.raises(OSError, match="not known"):
        simulation.run(simulation.host("a").network.connect("nowhere", 9092))


def test_a_reset_breaks_both_ends():
    with Simulation() as simulation:
        talk = Conversation(simulation)
        simulation.network.reset("b", "a")
        simulation.advance(1)
        assert isinstance(talk.error, ConnectionResetError)
        with pytest.raises(ConnectionResetError):
            talk.near.send([b"x"])


def test_chance_resets_connections_when_asked_to():
    with Simulation() as simulation:
        talk = Conversation(simulation)
        simulation.network.wires.reset_chance = 1.0
        talk.near.send([b"x"])
        simulation.advance(1)
        assert isinstance(talk.error, ConnectionResetError)


def test_a_killed_program_resets_its_peers():
    with Simulation() as simulation:
        talk = Conversation(simulation)
        simulation.kill("a")
        simulation.advance(1)
        assert isinstance(talk.error, ConnectionResetError)


def test_a_crashed_host_is_silent_until_it_is_back_and_knows_nothing():
    with Simulation() as simulation:
        talk = Conversation(simulation)
        simulation.crash("b")
        talk.near.send([b"into the dark"])
        simulation.advance(60)
        with pytest.raises(BlockingIOError):
            talk.near.recv_into(bytearray(1))
        simulation.restart("b")
        talk.near.send([b"again"])
        simulation.advance(1)
        with pytest.raises(ConnectionResetError):
            talk.near.recv_into(bytearray(1))
        simulation.host("b").network.listen("", 9092, lambda stream: None)  # the port is free


def test_what_was_sent_before_a_crash_still_arrives():
    with Simulation() as simulation:
        talk = Conversation(simulation)
        talk.near.send([b"last words"])
        simulation.crash("a")
        simulation.advance(1)
        assert talk.received == b"last words"
        assert talk.error is None


def test_isolating_a_host_cuts_it_from_the_others_only():
    async def scenario(simulation: Simulation) -> None:
        hosts = {name: simulation.host(name) for name in "abc"}
        for host in hosts.values():
            host.network.listen("", 9092, lambda stream: None)
        simulation.network.wires.isolate("a", list(hosts))
        await hosts["b"].network.connect("c", 9092)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await hosts["b"].network.connect("a", 9092)

    with Simulation() as simulation:
        simulation.run(scenario(simulation))
