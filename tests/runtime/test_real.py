import asyncio
import errno
import os
import resource
import signal
import socket
import threading

import pytest

from moldau.runtime import network as network_module
from moldau.runtime.files import RealFileSystem
from moldau.runtime.interfaces import File, Runtime, Stream
from moldau.runtime.network import RealListener
from moldau.runtime.real import RealRuntime, run
from moldau.sim.files import SimFileSystem


def test_run_answers_what_main_answers_and_raises_what_it_raises():
    async def main(runtime: Runtime) -> str:
        return "answer"

    async def fail(runtime: Runtime) -> None:
        raise ValueError("from main")

    assert run(main) == "answer"
    with pytest.raises(ValueError, match="from main"):
        run(fail)


def test_blocking_work_runs_on_a_thread_of_the_pool():
    async def main(runtime: Runtime) -> None:
        assert await runtime.run_blocking(threading.get_ident) != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await runtime.run_blocking(lambda: 1 // 0)

    run(main, io_threads=2)


def test_a_larger_pool_does_more_at_once_and_nothing_is_lost_on_the_way():
    async def main(runtime: Runtime) -> None:
        begun, end = threading.Barrier(3), threading.Event()
        first = [runtime.run_blocking(end.wait, 10) for _ in range(3)]
        runtime.resize_pool(3)
        await asyncio.gather(*(runtime.run_blocking(begun.wait, 10) for _ in range(3)))
        end.set()
        assert all(await asyncio.gather(*first))

    run(main, io_threads=1)


def test_tasks_that_remain_are_cancelled_before_the_pool_closes():
    ended = []

    async def linger(runtime: Runtime) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(await runtime.run_blocking(lambda: "cleaned"))

    async def main(runtime: Runtime) -> None:
        runtime.spawn(linger(runtime), "lingering")
        await asyncio.sleep(0)

    run(main)
    assert ended == ["cleaned"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_call_back_on_the_loop(number):
    # Whoever runs the tests may ignore one of them (nohup), which is honoured.
    before = signal.signal(number, signal.SIG_DFL)

    async def main(runtime: RealRuntime) -> None:
        stop = asyncio.Event()
        runtime.on_signal(stop.set)
        os.kill(os.getpid(), number)
        await stop.wait()

    try:
        run(main)
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("use_uvloop", [True, False])
@pytest.mark.parametrize("host", ["a..b", "a" * 70, "\udcff"])
def test_what_no_resolver_can_be_asked_for_is_an_oserror(host: str, use_uvloop: bool):
    async def main(runtime: Runtime) -> None:
        with pytest.raises(OSError):
            await runtime.network.connect(host, 1)
        with pytest.raises(OSError):
            runtime.network.listen(host, 0, lambda stream: None)

    run(main, use_uvloop=use_uvloop)


def test_the_ipv4_peer_of_a_dual_stack_listener_is_shown_as_ipv4():
    async def main(runtime: Runtime) -> None:
        accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        listener = runtime.network.listen("", 0, accepted.set_result)
        near = await runtime.network.connect("127.0.0.1", listener.port)
        far = await accepted
        assert far.peer_host == "127.0.0.1"
        for each in (near, far, listener):
            each.close()

    run(main)


def test_send_file_of_a_file_the_kernel_does_not_know_copies():
    async def main(runtime: Runtime) -> None:
        accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        listener = runtime.network.listen("localhost", 0, accepted.set_result)
        near = await runtime.network.connect("localhost", listener.port)
        far = await accepted
        file: File = SimFileSystem().open("/f", create=True)
        file.write_at(b"0123456789", 0)
        assert near.send_file(file, 7, 100) == 3
        arrived = asyncio.Event()
        far.watch_readable(arrived.set)
        await arrived.wait()
        buffer = bytearray(10)
        assert buffer[: far.recv_into(buffer)] == b"789"
        for each in (near, far, listener):
            each.close()

    run(main)


def test_a_stream_whose_acceptance_fails_is_closed():
    async def main(runtime: Runtime) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)

        def refuse(stream: Stream) -> None:
            raise ValueError("not today")

        listener = runtime.network.listen("localhost", 0, refuse)
        near = await runtime.network.connect("localhost", listener.port)
        ended = asyncio.Event()
        near.watch_readable(ended.set)
        await ended.wait()
        assert near.recv_into(bytearray(1)) == 0
        near.close()
        listener.close()

    run(main)


@pytest.mark.parametrize("use_uvloop", [True, False])
def test_without_descriptors_accepting_pauses_and_goes_on_later(monkeypatch, use_uvloop):
    attempts = []

    class Exhausted:
        """A listening socket that at first has no descriptor to give."""

        def __init__(self, listening: socket.socket) -> None:
            self._listening = listening

        def accept(self):
            attempts.append(None)
            if len(attempts) <= 2:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return self._listening.accept()

        def __getattr__(self, name):
            return getattr(self._listening, name)

    monkeypatch.setattr(network_module, "ACCEPT_PAUSE_S", 0.01)

    async def main(runtime: Runtime) -> None:
        loop = asyncio.get_running_loop()
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setblocking(False)
        accepted: asyncio.Future[Stream] = loop.create_future()
        listener = RealListener(loop, Exhausted(listening), accepted.set_result)
        near = await runtime.network.connect("127.0.0.1", listener.port)
        (await accepted).close()
        near.close()
        listener.close()

    run(main, use_uvloop=use_uvloop)
    # Two that failed, the one that gave a connection, and at most one that found no other: no spinning.
    assert len(attempts) <= 4


def test_closed_files_and_streams_leave_no_descriptor_behind(tmp_path):
    def open_descriptors() -> int:
        return sum(_is_open(fd) for fd in range(resource.getrlimit(resource.RLIMIT_NOFILE)[0] % 4096 or 4096))

    async def main(runtime: Runtime) -> None:
        before = open_descriptors()
        accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        listener = runtime.network.listen("localhost", 0, accepted.set_result)
        near = await runtime.network.connect("localhost", listener.port)
        far = await accepted
        file = runtime.files.open(str(tmp_path / "f"), create=True)
        mapping = file.map(100)
        for each in (near, far, listener, mapping, file):
            each.close()
            each.close()
        with pytest.raises(ConnectionRefusedError):
            await runtime.network.connect("localhost", listener.port)
        assert open_descriptors() == before

    run(main, use_uvloop=False)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_what_was_loaded_is_in_the_page_cache(tmp_path):
    file = RealFileSystem().open(str(tmp_path / "f"), create=True)
    file.write_at(bytes(1 << 20), 0)
    assert file.is_cached(1 << 20, 0)
    file.sync()
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if file.is_cached(1 << 20, 0):
        pytest.skip("this file system keeps its pages, or cannot be asked for them")
    file.load(1 << 20, 0)
    assert file.is_cached(1 << 20, 0)
    file.load(100, 1 << 20)  # there is nothing, which is no error
    assert file.is_cached(0, 5)
