import asyncio
import errno

import pytest

from moldau.runtime.interfaces import Runtime, Stream
from moldau.sim.faults import PowerCut
from moldau.sim.files import EPOCH_MS
from moldau.sim.loop import SimulationDeadlock, SimulationLivelock
from moldau.sim.simulation import Simulation, run


def test_an_hour_passes_at_once():
    async def main(runtime: Runtime) -> tuple[int, float]:
        await asyncio.sleep(3600)
        return runtime.clock.now_ms(), runtime.clock.monotonic()

    assert run(main) == (EPOCH_MS + 3_600_000, 3600.0)


def test_timers_fire_in_order_of_time_and_not_when_cancelled():
    fired = []

    async def main(runtime: Runtime) -> None:
        for delay in (3, 1, 2):
            runtime.call_later(delay, lambda delay=delay: fired.append((delay, runtime.clock.monotonic())))
        runtime.call_later(1.5, fired.append, "cancelled").cancel()
        runtime.call_soon(fired.append, "soon")
        await asyncio.sleep(10)

    run(main)
    assert fired == ["soon", (1, 1.0), (2, 2.0), (3, 3.0)]


def test_waiting_for_nothing_is_a_deadlock_that_names_who_waits():
    async def main(runtime: Runtime) -> None:
        await runtime.spawn(asyncio.Event().wait(), "lonely")

    with pytest.raises(SimulationDeadlock, match="localhost/lonely"):
        run(main)


def test_spinning_without_letting_time_pass_is_a_livelock(monkeypatch):
    monkeypatch.setattr("moldau.sim.loop.TURNS_PER_INSTANT_MAX", 1000)

    async def main(runtime: Runtime) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(SimulationLivelock):
        run(main)


def test_a_run_has_an_end_in_virtual_time():
    async def tick() -> None:
        while True:
            await asyncio.sleep(1)

    with Simulation() as simulation, pytest.raises(TimeoutError):
        simulation.run(tick(), within_s=100)


def test_wall_clocks_are_skewed_per_host():
    with Simulation() as simulation:
        late = simulation.host("late", skew_ms=-500)
        exact = simulation.host("exact")
        simulation.advance(1.5)
        assert late.clock.now_ms() == EPOCH_MS + 1000
        assert exact.clock.now_ms() == EPOCH_MS + 1500


def test_blocking_work_runs_later_and_answers_or_raises():
    done = []

    async def main(runtime: Runtime) -> None:
        work = runtime.run_blocking(done.append, 1)
        assert done == []
        await work
        assert done == [1]
        with pytest.raises(ZeroDivisionError):
            await runtime.run_blocking(lambda: 1 // 0)

    run(main)


def test_an_exception_nobody_handles_fails_the_run():
    def fail() -> None:
        raise ValueError("nobody looks")

    async def main(runtime: Runtime) -> None:
        runtime.call_soon(fail)
        await asyncio.sleep(1)

    with pytest.raises(ValueError, match="nobody looks"):
        run(main)


async def _write_forever(runtime: Runtime) -> None:
    file = runtime.files.open("/f", create=True)
    runtime.files.sync_dir("/")
    position = 0
    try:
        while True:
            file.write_at(b"x", position)
            position += 1
            await asyncio.sleep(1)
    finally:
        runtime.files.write_atomically("/clean", b"")


def test_a_killed_program_stops_but_keeps_its_writes_and_does_not_clean_up():
    with Simulation() as simulation:
        node = simulation.host("a")
        task = node.spawn(_write_forever(node), "writer")
        simulation.advance(9.5)
        simulation.kill("a")
        simulation.advance(60)
        assert task.done()
        again = simulation.restart("a")
        assert again.files.read_bytes("/f") == b"x" * 10
        assert not again.files.exists("/clean")


def test_a_task_that_refuses_to_die_with_its_host_fails_the_run():
    async def ghost() -> None:
        while True:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                pass

    with Simulation() as simulation:
        node = simulation.host("a")
        node.spawn(ghost(), "ghost")
        simulation.advance(3)
        with pytest.raises(RuntimeError, match=r"survive their host.*a/ghost"):
            simulation.crash("a")
            simulation.advance(1)


def test_a_crash_ends_child_tasks_and_timers_of_that_host_only():
    beats = []

    async def beat(name: str) -> None:
        while True:
            await asyncio.sleep(1)
            beats.append(name)

    async def parent(name: str) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(beat(name))

    def tick(runtime: Runtime, name: str) -> None:
        beats.append(f"{name}-timer")
        runtime.call_later(1, tick, runtime, name)

    with Simulation() as simulation:
        for name in "ab":
            node = simulation.host(name)
            node.spawn(parent(name), "parent")
            tick(node, name)
        simulation.advance(3.5)
        beats.clear()
        simulation.crash("a")
        simulation.advance(3)
        assert sorted(set(beats)) == ["b", "b-timer"]


def test_power_cut_at_an_operation_crashes_the_host_and_the_dead_stay_dead():
    with Simulation() as simulation:
        node = simulation.host("a")
        simulation.disk("a").faults.power_cut_at(6)
        task = node.spawn(_write_forever(node), "writer")
        simulation.advance(30)
        assert isinstance(task.exception(), PowerCut)
        assert not node.is_alive
        with pytest.raises(PowerCut):
            node.files.exists("/f")
        again = simulation.restart("a")
        assert set(again.files.read_bytes("/f")) <= set(b"x\0")
        assert not again.files.exists("/clean")


def test_locks_go_with_the_program():
    with Simulation() as simulation:
        node = simulation.host("a")
        lock = node.files.lock("/.lock")
        with pytest.raises(BlockingIOError):
            node.files.lock("/.lock")
        again = simulation.restart("a")
        held = again.files.lock("/.lock")
        lock.release()
        with pytest.raises(BlockingIOError):
            again.files.lock("/.lock")
        held.release()
        again.files.lock("/.lock")


def _history(seed: int) -> list[object]:
    """Two hosts that talk, write and crash: everything chance touches."""
    history: list[object] = []
    with Simulation(seed) as simulation:
        server, client = simulation.host("server"), simulation.host("client")
        operations = simulation.disk("server").faults.record()
        file = server.files.open("/log", create=True)
        server.files.sync_dir("/")

        def on_accept(stream: Stream) -> None:
            buffer = bytearray(1000)

            def on_readable() -> None:
                count = stream.recv_into(buffer)
                history.append((server.clock.monotonic(), count))
                file.write_at(buffer[:count], file.size())
                if not count:
                    stream.close()

            stream.watch_readable(on_readable)

        server.network.listen("", 9092, on_accept)

        async def talk() -> None:
            stream = await client.network.connect("server", 9092)
            for _ in range(20):
                stream.send([client.random.randbytes(client.random.randrange(1, 3000))])
                await asyncio.sleep(client.random.random() / 100)
            stream.close()

        simulation.run(talk())
        simulation.advance(1)
        simulation.crash("server")
        history.append(simulation.restart("server").files.read_bytes("/log"))
        history.append(operations)
    return history


def test_the_same_seed_gives_the_same_history():
    assert _history(7) == _history(7)
    assert _history(7) != _history(8)


def test_disk_capacity_is_set_per_host():
    with Simulation() as simulation:
        node = simulation.host("a", disk_capacity=8192)
        with pytest.raises(OSError) as caught:
            node.files.open("/f", create=True).write_at(bytes(10_000), 0)
        assert caught.value.errno == errno.ENOSPC
        assert node.files.file_size("/f") == 8192
