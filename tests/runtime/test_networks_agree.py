"""The same conversations on the real network (uvloop, asyncio's own loop) and on the simulated one."""

import asyncio
import errno
import functools
from collections.abc import Callable

import pytest

from moldau.runtime import real
from moldau.runtime.interfaces import File, Listener, Runtime, Stream
from moldau.sim import simulation

RUNS = {
    "uvloop": real.run,
    "asyncio": functools.partial(real.run, use_uvloop=False),
    "simulated": simulation.run,
}


@pytest.fixture(params=RUNS)
def run(request) -> Callable[..., object]:
    return RUNS[request.param]


async def pair(runtime: Runtime, host: str = "localhost") -> tuple[Stream, Stream]:
    accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
    listener = runtime.network.listen(host, 0, accepted.set_result)
    near = await runtime.network.connect(host, listener.port)
    far = await accepted
    listener.close()
    return near, far


async def ready(watch: Callable[[Callable[[], None] | None], None]) -> None:
    event = asyncio.Event()
    watch(event.set)
    await event.wait()
    watch(None)


async def receive(stream: Stream, count: int) -> bytes:
    """Exactly `count` bytes, or all there are until the end."""
    received = bytearray()
    buffer = bytearray(10_000)
    while len(received) < count:
        try:
            taken = stream.recv_into(memoryview(buffer)[: count - len(received)])
        except BlockingIOError:
            await ready(stream.watch_readable)
            continue
        if not taken:
            break
        received += buffer[:taken]
    return bytes(received)


async def deliver(stream: Stream, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[stream.send([rest[:3], rest[3:]]) :]
        except BlockingIOError:
            await ready(stream.watch_writable)


def test_bytes_go_both_ways_in_order(run):
    async def main(runtime: Runtime) -> None:
        near, far = await pair(runtime)
        assert near.send([b"a", b"", memoryview(b"bc")]) == 3
        assert far.send([b"xyz"]) == 3
        assert await receive(far, 3) == b"abc"
        assert await receive(near, 3) == b"xyz"
        near.close()
        far.close()

    run(main)


def test_receiving_too_early_would_block(run):
    async def main(runtime: Runtime) -> None:
        near, far = await pair(runtime)
        with pytest.raises(BlockingIOError):
            far.recv_into(bytearray(10))
        near.close()
        far.close()

    run(main)


def test_a_sender_blocks_until_the_receiver_reads(run):
    async def main(runtime: Runtime) -> None:
        near, far = await pair(runtime)
        piece = bytes(range(256)) * 1024
        sent = 0
        with pytest.raises(BlockingIOError):
            while True:
                sent += near.send([memoryview(piece)[sent % 256 :]])
        delivery = runtime.spawn(deliver(near, b"last"), "deliver")
        received = await receive(far, sent + 4)
        await delivery
        assert len(received) == sent + 4
        assert received.endswith(b"last")
        near.close()
        far.close()

    run(main)


def test_the_end_comes_after_the_last_byte(run):
    async def main(runtime: Runtime) -> None:
        near, far = await pair(runtime)
        near.send([b"bye"])
        near.close()
        near.close()
        assert await receive(far, 100) == b"bye"
        assert far.recv_into(bytearray(1)) == 0
        far.close()
        with pytest.raises(OSError) as caught:
            far.recv_into(bytearray(1))
        assert caught.value.errno == errno.EBADF

    run(main)


def test_sending_to_a_peer_that_has_closed_ends_in_an_error(run):
    async def main(runtime: Runtime) -> None:
        near, far = await pair(runtime)
        far.close()
        with pytest.raises(ConnectionError):
            while True:
                near.send([b"x"])
                await asyncio.sleep(0.001)
        near.close()

    run(main)


def test_closing_with_unread_bytes_resets_the_peer(run):
    async def main(runtime: Runtime) -> None:
        near, far = await pair(runtime)
        near.send([b"never read"])
        await ready(far.watch_readable)
        far.close()
        await ready(near.watch_readable)
        with pytest.raises(ConnectionResetError):
            near.recv_into(bytearray(10))
        near.close()

    run(main)


def test_a_reset_can_be_asked_for_behind_bytes_that_were_received(run):
    """uvloop calls a watch once for both, and never again."""

    async def main(runtime: Runtime) -> None:
        near, far = await pair(runtime)
        near.send([b"unread"])
        await ready(far.watch_readable)
        far.send([b"some"])
        assert await receive(near, 2) == b"so"
        assert not near.has_failed()
        far.close()
        for _ in range(500):
            if near.has_failed():
                break
            await asyncio.sleep(0.01)
        else:
            pytest.fail("the reset was not seen")
        near.close()
        assert not far.has_failed()

    run(main)


def test_send_file_sends_a_range_and_stops_at_the_end(run, tmp_path):
    async def main(runtime: Runtime) -> None:
        near, far = await pair(runtime)
        runtime.files.make_dirs(str(tmp_path))
        file = runtime.files.open(f"{tmp_path}/f", create=True)
        file.write_at(b"0123456789", 0)
        assert near.send_before_file([b"he", b"ad"]) == 4
        assert near.send_file(file, 2, 3) == 3
        assert near.send_file(file, 8, 100) == 2
        assert near.send_file(file, 10, 100) == 0
        assert await receive(far, 9) == b"head23489"
        near.close()
        far.close()
        file.close()

    run(main)


def test_a_file_larger_than_every_buffer_goes_whole(run, tmp_path):
    data = bytes(range(256)) * 20_000

    async def send_whole(stream: Stream, file: File) -> None:
        position = 0
        while position < len(data):
            try:
                position += stream.send_file(file, position, len(data) - position)
            except BlockingIOError:
                await ready(stream.watch_writable)

    async def main(runtime: Runtime) -> None:
        near, far = await pair(runtime)
        runtime.files.make_dirs(str(tmp_path))
        file = runtime.files.open(f"{tmp_path}/f", create=True)
        file.write_at(data, 0)
        sending = runtime.spawn(send_whole(near, file), "send")
        assert await receive(far, len(data)) == data
        await sending
        for each in (near, far, file):
            each.close()

    run(main)


def test_a_closed_stream_is_not_watched(run):
    async def main(runtime: Runtime) -> None:
        near, far = await pair(runtime)
        near.close()
        far.close()
        for watch in (near.watch_readable, near.watch_writable):
            watch(None)
            with pytest.raises(OSError) as caught:
                watch(lambda: None)
            assert caught.value.errno == errno.EBADF

    run(main)


def test_a_watch_calls_for_as_long_as_there_is_something_to_read(run):
    async def main(runtime: Runtime) -> None:
        near, far = await pair(runtime)
        received = bytearray()
        done = asyncio.Event()
        one = bytearray(1)

        def read_one() -> None:
            received.extend(one[: far.recv_into(one)])
            if len(received) == 5:
                done.set()

        far.watch_readable(read_one)
        near.send([b"hello"])
        await done.wait()
        far.watch_readable(None)
        assert received == b"hello"
        near.close()
        far.close()

    run(main)


def test_a_taken_port_and_a_closed_one_say_so(run):
    async def main(runtime: Runtime) -> None:
        listener: Listener = runtime.network.listen("localhost", 0, lambda stream: None)
        with pytest.raises(OSError) as caught:
            runtime.network.listen("localhost", listener.port, lambda stream: None)
        assert caught.value.errno == errno.EADDRINUSE
        listener.close()
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await runtime.network.connect("localhost", listener.port)

    run(main)


def test_too_many_buffers_are_refused(run):
    async def main(runtime: Runtime) -> None:
        near, far = await pair(runtime)
        with pytest.raises(OSError) as caught:
            near.send([b"x"] * 1025)
        assert caught.value.errno == errno.EMSGSIZE
        near.close()
        far.close()

    run(main)


@pytest.mark.parametrize("host", ["", "127.0.0.1", "localhost"])
def test_the_peer_is_named(run, host):
    async def main(runtime: Runtime) -> None:
        near, far = await pair(runtime, host or "localhost")
        assert near.peer_host in ("127.0.0.1", "localhost", "::1")
        assert far.peer_port > 0
        near.close()
        far.close()

    run(main)
