"""Who is let in, and who is let go for being idle."""

from dataclasses import replace

from fake_runtime import FakeRuntime, FakeStream

from moldau.net.acceptor import Acceptor, ConnectionLimits, SocketOptions
from moldau.net.connection import PENDING


class Door:
    def __init__(self, options: SocketOptions | None = None, *, is_open: bool = True, **limits) -> None:
        defaults = {
            "max_frame_bytes": 1000,
            "max_connections": 100,
            "max_connections_per_ip": 100,
            "max_connections_per_ip_overrides": {},
            "max_idle_ms": 60_000,
        }
        self.runtime = FakeRuntime()
        self.acceptor = Acceptor(
            self.runtime,
            ConnectionLimits(**{**defaults, **limits}),
            socket_options=options,
        )
        self.acceptor.listen("", 0)
        if is_open:
            self.acceptor.open(self.handle)

    def handle(self, connection, request, received_at):
        return PENDING if bytes(request) == b"P" else bytes(request)

    def connect(self, host: str = "192.0.2.1") -> FakeStream:
        stream = FakeStream(host)
        self.runtime.on_accept(stream)
        return stream

    def feed(self, stream: FakeStream, body: bytes) -> None:
        stream.incoming.append(len(body).to_bytes(4, "big") + body)
        self.runtime.turn(stream)


def test_a_connection_over_the_limit_waits_until_another_goes():
    door = Door(max_connections=2)
    streams = [door.connect(f"192.0.2.{number}") for number in (1, 2, 3)]
    door.feed(streams[2], b"hello")
    assert [stream.closed for stream in streams] == [False] * 3
    assert (len(door.acceptor.connections), streams[2].sent) == (2, b"")
    next(iter(door.acceptor.connections)).close()
    door.runtime.turn(streams[2])
    assert streams[2].sent.endswith(b"hello")
    assert (door.acceptor.accepted_total, door.acceptor.refused_total) == (3, 0)


def test_who_waits_is_let_in_when_the_limit_is_raised():
    door = Door(max_connections=1)
    streams = [door.connect() for _ in range(3)]
    assert len(door.acceptor.connections) == 1
    door.acceptor.change_limits(replace(door.acceptor.limits, max_connections=2))
    assert len(door.acceptor.connections) == 2
    door.feed(streams[1], b"hello")
    assert streams[1].sent.endswith(b"hello")


def test_no_more_wait_than_the_backlog_holds():
    door = Door(SocketOptions(backlog=2), max_connections=1)
    assert [door.connect().closed for _ in range(4)] == [False, False, False, True]
    door.acceptor.close_connections()
    assert not door.acceptor.connections


def test_no_more_connections_of_one_address_than_allowed():
    door = Door(max_connections_per_ip=2, max_connections_per_ip_overrides={"192.0.2.9": 0, "192.0.2.8": 3})
    assert [door.connect().closed for _ in range(3)] == [False, False, True]
    assert [door.connect("192.0.2.9").closed for _ in range(2)] == [True, True]
    assert [door.connect("192.0.2.8").closed for _ in range(4)] == [False, False, False, True]


def test_idle_connections_are_reaped_and_active_ones_are_not():
    door = Door()
    idle, active = door.connect(), door.connect()
    for _ in range(7):
        door.runtime.sleep(10)
        door.feed(active, b"hello")
    assert (idle.closed, active.closed) == (True, False)
    assert door.acceptor.reaped_total == 1


def test_a_request_that_waits_for_longer_than_a_connection_may_be_idle_ends_with_it():
    door = Door()
    stream = door.connect()
    door.feed(stream, b"P")
    (connection,) = door.acceptor.connections
    told = []
    connection.on_closed = lambda: told.append(True)
    door.runtime.sleep(50)
    assert not stream.closed
    door.runtime.sleep(20)
    assert (stream.closed, told) == (True, [True])
    connection.reply(b"too late")
    assert stream.sent == b""


def test_a_connection_is_not_idle_right_after_a_late_reply():
    door = Door()
    stream = door.connect()
    door.feed(stream, b"P")
    door.runtime.sleep(50)
    (connection,) = door.acceptor.connections
    connection.reply(b"at last")
    door.runtime.sleep(30)
    assert not stream.closed
    door.runtime.sleep(60)
    assert stream.closed


def test_a_peer_that_never_takes_its_response_is_idle():
    door = Door()
    stream = door.connect()
    stream.takes.append(0)
    stream.incoming.append((5).to_bytes(4, "big") + b"hello")
    stream.on_readable()
    door.runtime.turn()
    assert stream.on_writable is not None
    door.runtime.sleep(70)
    assert stream.closed


def test_nobody_is_reaped_without_a_limit():
    door = Door(max_idle_ms=-1)
    stream = door.connect()
    door.runtime.sleep(10**6)
    assert not stream.closed


def test_stopping_lets_those_inside_finish():
    door = Door()
    stream = door.connect()
    door.acceptor.stop_accepting()
    assert door.runtime.on_accept is None
    door.feed(stream, b"hello")
    assert stream.sent == b"hello"
    door.runtime.sleep(3600)
    assert not stream.closed, "the reaper went with the listener"


def test_who_comes_before_the_door_opens_waits():
    door = Door(is_open=False, max_connections=3, max_connections_per_ip=2)
    streams = [door.connect() for _ in range(4)]
    assert not any(stream.closed for stream in streams)
    assert not door.acceptor.connections
    door.acceptor.open(door.handle)
    assert [stream.closed for stream in streams] == [False, False, True, True]
    door.feed(streams[0], b"hello")
    assert streams[0].sent == b"hello"


def test_who_waits_is_sent_away_when_the_door_never_opens():
    door = Door(is_open=False)
    stream = door.connect()
    door.acceptor.stop_accepting()
    door.acceptor.close_connections()
    assert stream.closed


def test_what_was_handled_when_the_connections_are_closed_is_answered():
    """Its records may be in the log already."""
    door = Door()
    stream = door.connect()
    stream.incoming.append((5).to_bytes(4, "big") + b"hello")
    stream.on_readable()
    assert stream.sent == b""
    door.acceptor.close_connections()
    assert stream.sent.endswith(b"hello") and stream.closed


def test_a_reset_that_no_watch_tells_of_is_found_once_the_connection_is_silent():
    door = Door()
    failed, fine = door.connect(), door.connect()
    for stream in (failed, fine):
        stream.incoming.append((100).to_bytes(4, "big") + b"not all of it")
        door.runtime.turn(stream)
    failed.failed = True
    door.runtime.sleep(10.5)
    assert [failed.closed, fine.closed] == [True, False]
    # What was silent for long is not asked again.
    fine.failed = True
    door.runtime.sleep(40)
    assert not fine.closed
