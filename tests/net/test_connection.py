"""Frames in, responses out, in order, however the bytes arrive and leave."""

from __future__ import annotations

import errno
import tracemalloc
from random import Random

import pytest
from fake_runtime import FakeFile, FakeRuntime, FakeStream
from hypothesis import given
from hypothesis import strategies as st

from moldau.net.connection import (
    BUFFERS_PER_SEND,
    FRAME_BYTES_FIRST,
    LEFT_BYTES_MAX,
    NO_REPLY,
    PENDING,
    QUEUED_BYTES_MAX,
    SCRATCH_BYTES,
    Connection,
    ConnectionShared,
    FileRange,
)
from moldau.wire.codec import ProtocolError

FRAME_BYTES_MAX = 1_000_000
SEGMENT = FakeFile(bytes(range(256)) * 4)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


class Peer:
    """A connection whose handler answers `body` with `<body>`, unless the body asks for something else."""

    def __init__(self, max_frame_bytes: int = FRAME_BYTES_MAX) -> None:
        self.runtime = FakeRuntime()
        self.stream = FakeStream()
        self.handled: list[bytes] = []
        self.closed: list[Connection] = []
        self.shared = ConnectionShared(self.runtime, self.handle, max_frame_bytes, self.closed.append)
        self.connection = Connection(self.stream, self.shared)

    def handle(self, connection: Connection, request: memoryview, received_at: float):
        body = bytes(request)
        self.handled.append(body)
        match body[:1]:
            case b"P":
                return PENDING
            case b"N":
                return NO_REPLY
            case b"F":
                return [b"<", FileRange(SEGMENT, 10, 500), b"|", FileRange(SEGMENT, 0, 0), bytearray(b">")]
            case b"C":
                connection.close()
                return b"never sent"
            case b"E":
                connection.close_behind_responses()
                return NO_REPLY
            case b"!":
                raise ProtocolError("the handler could not read it")
            case b"?":
                raise ZeroDivisionError
        return b"<" + body + b">"

    def feed(self, *chunks: bytes | OSError) -> None:
        self.stream.incoming.extend(chunks)
        self.runtime.turn(self.stream)

    def reply(self, *args) -> None:
        self.connection.reply(*args)
        self.runtime.turn(self.stream)


def expected_reply(body: bytes) -> bytes:
    if body[:1] == b"F":
        return b"<" + SEGMENT.content[10:510] + b"|>"
    return b"" if body[:1] == b"N" else b"<" + body + b">"


BODIES = [b"a", b"bcd", b"N1", b"F", b"e" * 40, b"g"]
STREAM = b"".join(frame(body) for body in BODIES)
ANSWERS = b"".join(expected_reply(body) for body in BODIES)


def test_frames_are_answered_in_order_in_one_read():
    peer = Peer()
    peer.feed(STREAM)
    assert peer.handled == BODIES
    assert peer.stream.sent == ANSWERS


@pytest.mark.parametrize("cut", range(1, len(STREAM)))
def test_frames_may_be_split_at_any_byte(cut: int):
    peer = Peer()
    peer.feed(STREAM[:cut])
    peer.feed(STREAM[cut:])
    assert peer.handled == BODIES
    assert peer.stream.sent == ANSWERS


def test_frames_may_come_one_byte_at_a_time_with_wakeups_for_nothing():
    peer = Peer()
    for byte in STREAM:
        peer.stream.on_readable()  # nothing there: BlockingIOError
        peer.feed(bytes([byte]))
    assert peer.handled == BODIES
    assert peer.stream.sent == ANSWERS


@pytest.mark.parametrize("error", [BlockingIOError(), InterruptedError()])
def test_a_read_that_finds_nothing_loses_nothing(error: OSError):
    peer = Peer()
    for cut in range(1, 9):
        request = frame(b"abcd%d" % cut)
        peer.feed(request[:cut], error, request[cut:])
    assert peer.handled == [b"abcd%d" % cut for cut in range(1, 9)]


@pytest.mark.parametrize("step", range(1, len(ANSWERS)))
def test_responses_may_leave_in_pieces_of_any_size(step: int):
    peer = Peer()
    peer.stream.takes.extend([step, 0] * len(ANSWERS))
    peer.feed(STREAM)
    assert peer.stream.sent == ANSWERS
    assert peer.stream.on_writable is None
    assert not peer.connection.busy


@given(random=st.randoms(use_true_random=True))
def test_any_splits_any_pauses_and_late_replies(random: Random):
    peer = Peer()
    bodies = [
        random.choice(
            [
                b"a",
                b"P",
                b"N",
                b"F",
                b"x" * random.randrange(1, 3000),
                b"y" * random.randrange(70_000, 90_000),
            ]
        )
        for _ in range(random.randrange(1, 12))
    ]
    data, answered = b"".join(frame(body) for body in bodies), 0
    peer.stream.takes.extend(random.choice([0, 1, 100, 10_000]) for _ in range(random.randrange(60)))
    while data:
        size = random.choice([1, 3, 500, 65_536, len(data)])
        peer.feed(data[:size])
        data = data[size:]
        if random.random() < 0.5:
            answered += answer_pending(peer)
    while answer_pending(peer):
        pass
    assert peer.handled == bodies
    assert peer.stream.sent == b"".join(
        b"<late>" if body == b"P" else expected_reply(body) for body in bodies
    )
    assert not peer.connection.busy
    assert peer.stream.on_readable is not None


def answer_pending(peer: Peer) -> bool:
    if not peer.connection.awaits_reply:
        return False
    peer.reply(b"<late>")
    return True


# ---------------------------------------------------------------- pending replies


def test_nothing_is_handled_behind_a_pending_request():
    peer = Peer()
    peer.feed(frame(b"a") + frame(b"P") + frame(b"b"), frame(b"c"))
    assert peer.handled == [b"a", b"P"]
    assert peer.stream.sent == b"<a>"
    assert peer.stream.on_readable is None, "a connection with a request in progress is not read"
    peer.reply(b"<late>")
    assert peer.handled == [b"a", b"P", b"b", b"c"]
    assert peer.stream.sent == b"<a><late><b><c>"


def test_a_reply_handles_what_was_left_later_and_not_on_the_spot():
    peer = Peer()
    peer.feed(frame(b"P") + frame(b"b"))
    peer.connection.reply(b"<late>")
    assert peer.handled == [b"P"], "the caller may be inside another connection's handler"
    peer.runtime.turn(peer.stream)
    assert peer.handled == [b"P", b"b"]


def test_bytes_that_arrive_before_what_was_left_is_handled_come_behind_it():
    peer = Peer()
    peer.feed(frame(b"P") + frame(b"b") + frame(b"c")[:2])
    peer.connection.reply(NO_REPLY)
    peer.stream.incoming.append(frame(b"c")[2:])
    peer.stream.on_readable()  # before the turn of what was called soon
    peer.runtime.turn(peer.stream)
    assert peer.handled == [b"P", b"b", b"c"]
    assert peer.stream.sent == b"<b><c>"


def test_a_pending_reply_may_be_parts_of_a_file():
    peer = Peer()
    peer.feed(frame(b"P"))
    peer.reply([b"[", FileRange(SEGMENT, 250, 20), b"]"])
    assert peer.stream.sent == b"[" + SEGMENT.content[250:270] + b"]"


def test_a_holder_of_a_request_is_told_when_the_connection_goes():
    peer = Peer()
    peer.feed(frame(b"P"))
    told = []
    peer.connection.on_closed = lambda: told.append(True)
    peer.connection.close()
    peer.connection.reply(b"too late")
    assert told == [True]
    assert peer.stream.sent == b""


# ---------------------------------------------------------------- large frames and back pressure


@pytest.mark.parametrize("size", [LEFT_BYTES_MAX, LEFT_BYTES_MAX + 1, SCRATCH_BYTES + 7, FRAME_BYTES_MAX])
@pytest.mark.parametrize("step", [1000, 65_536, 10**9])
def test_a_large_frame_among_small_ones(size: int, step: int):
    peer = Peer()
    bodies = [b"a", b"L" * size, b"b"]
    data = b"".join(frame(body) for body in bodies)
    for start in range(0, len(data), step):
        peer.feed(data[start : start + step])
    assert peer.handled == bodies
    assert peer.stream.sent == b"".join(expected_reply(body) for body in bodies)


@pytest.mark.parametrize("size", [FRAME_BYTES_FIRST - 1, FRAME_BYTES_FIRST + 1, 5 * FRAME_BYTES_FIRST + 3])
@pytest.mark.parametrize("step", [300_001, 10**9])
def test_a_frame_that_outgrows_its_first_buffer(size: int, step: int):
    peer = Peer(max_frame_bytes=100 << 20)
    body = b"x" + Random(size).randbytes(size - 1)
    data = frame(b"a") + frame(body) + frame(b"b")
    for start in range(0, len(data), step):
        peer.feed(data[start : start + step])
    assert peer.handled == [b"a", body, b"b"]


def test_announcing_a_large_frame_takes_no_more_than_was_sent():
    peer = Peer(max_frame_bytes=100 << 20)
    sent = 5 << 20
    tracemalloc.start()
    peer.feed((100 << 20).to_bytes(4, "big"), bytes(sent))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * sent
    assert peer.handled == []


def test_a_peer_that_does_not_read_is_not_read_either():
    peer = Peer()
    body = b"x" * 60_000
    peer.stream.takes.append(0)
    flood = frame(body) * 40
    peer.stream.incoming.append(flood)
    while peer.stream.on_readable and peer.stream.incoming:
        peer.stream.on_readable()
    handled = len(peer.handled)
    assert handled * len(body) <= QUEUED_BYTES_MAX + SCRATCH_BYTES
    assert peer.connection.busy
    peer.runtime.turn(peer.stream)  # the peer reads again
    assert len(peer.handled) == 40
    assert peer.stream.sent == (b"<" + body + b">") * 40


def test_more_buffers_than_the_kernel_takes_in_one_call():
    peer = Peer()
    count = BUFFERS_PER_SEND * 3 + 1
    peer.feed(frame(b"a") * count)
    assert peer.stream.sent == b"<a>" * count


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize("size", [0, -1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_a_frame_of_an_impossible_size_ends_the_connection(size: int):
    peer = Peer()
    peer.feed(frame(b"a") + size.to_bytes(4, "big", signed=True) + b"rest" + frame(b"b"))
    assert peer.handled == [b"a"]
    assert peer.stream.sent == b"<a>", "what came before is answered"
    assert peer.stream.closed
    assert peer.closed == [peer.connection]


def test_a_request_that_cannot_be_read_ends_the_connection():
    peer = Peer()
    peer.feed(frame(b"a") + frame(b"!") + frame(b"b"))
    assert (peer.handled, bytes(peer.stream.sent)) == ([b"a", b"!"], b"<a>")
    assert peer.stream.closed


def test_a_bug_in_a_handler_ends_the_connection_and_is_not_hidden():
    peer = Peer()
    with pytest.raises(ZeroDivisionError):
        peer.feed(frame(b"?") + frame(b"b"))
    assert peer.stream.closed
    assert peer.closed == [peer.connection]


def test_a_handler_may_close_the_connection():
    peer = Peer()
    peer.feed(frame(b"C") + frame(b"b"))
    assert peer.handled == [b"C"]
    assert peer.stream.sent == b""
    assert peer.closed == [peer.connection]


def test_a_handler_may_close_the_connection_behind_the_responses_before():
    peer = Peer()
    peer.feed(frame(b"a") + frame(b"F") + frame(b"E") + frame(b"b"))
    assert peer.handled == [b"a", b"F", b"E"]
    assert peer.stream.sent == b"<a>" + expected_reply(b"F")
    assert peer.closed == [peer.connection]


@pytest.mark.parametrize("end", [b"", ConnectionResetError(errno.ECONNRESET, "reset")])
@pytest.mark.parametrize("before", [b"", frame(b"a")[:3], frame(b"x" * 100_000)[:90_000]])
def test_the_peer_may_go_at_any_time(end: bytes | OSError, before: bytes):
    peer = Peer()
    if before:
        peer.feed(before)
    peer.feed(end)
    assert peer.handled == []
    assert peer.closed == [peer.connection]


def test_a_file_that_is_shorter_than_promised_ends_the_connection():
    peer = Peer()
    peer.feed(frame(b"P"))
    peer.reply([b"x", FileRange(SEGMENT, len(SEGMENT.content) - 3, 4), b"y"])
    assert peer.stream.sent == b"x" + SEGMENT.content[-3:]
    assert peer.stream.closed


class Timer:
    def __init__(self) -> None:
        self.told: list[tuple[float, ...]] = []

    def sent(self, timed, send_begun_at: float, sent_at: float) -> None:
        self.told.append((*timed[1:], send_begun_at, sent_at))


def test_a_timer_is_told_when_the_last_byte_of_a_late_response_has_left():
    peer, timer = Peer(), Timer()
    peer.feed(frame(b"P"))
    peer.connection.time_parked(timer, 4, 100, 1000.0, 1001.0, 1002.0)
    peer.stream.takes.extend([2, 0])
    peer.runtime.clock.now = 1005.0
    peer.connection.reply(b"<late>")
    assert timer.told == []
    peer.runtime.clock.now = 1007.0
    peer.runtime.turn(peer.stream)
    assert timer.told == [(4, 100, 1000.0, 1001.0, 1002.0, 1005.0, 1007.0, 1007.0)]


def test_a_timer_is_told_once():
    peer, timer = Peer(), Timer()
    peer.connection.timers.append((timer, 4, 100, 997.0, 998.0, 999.0, 999.0))
    peer.feed(frame(b"a"), frame(b"b"))
    assert timer.told == [(4, 100, 997.0, 998.0, 999.0, 999.0, 1000.0, 1000.0)]
