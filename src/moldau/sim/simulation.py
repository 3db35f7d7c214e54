"""A world of simulated hosts in one thread, on virtual time, from one seed: the same seed, the same history.

    with Simulation(seed=7) as simulation:
        node = simulation.host("a")
        simulation.run(scenario(node))

The coroutine that `run` is given is the tester outside the world: it is on no host and survives every crash.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from moldau.runtime.interfaces import T

from .disk import SimDisk
from .faults import PowerCut
from .files import EPOCH_MS, SimFileSystem
from .loop import VirtualLoop
from .network import SimHostNetwork, SimNetwork
from .runtime import CANCELS_MAX, SimClock, SimRuntime, adopting_task_factory

RUN_SECONDS_MAX = 24 * 3600.0  # of virtual time


class Simulation:
    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.loop = VirtualLoop()
        self.loop.set_task_factory(adopting_task_factory)
        self.loop.set_exception_handler(self._on_unhandled)
        self.network = SimNetwork(self.loop, Random(self.random.getrandbits(64)))
        self._disks: dict[str, SimDisk] = {}
        self._clocks: dict[str, SimClock] = {}
        self._runtimes: dict[str, SimRuntime] = {}
        self._unhandled: list[BaseException] = []

    def host(self, name: str, *, skew_ms: int = 0, disk_capacity: int | None = None) -> SimRuntime:
        """The present runtime of the host, which is made and started when first asked for."""
        if name not in self._disks:
            self._disks[name] = SimDisk(disk_capacity, now_ms=EPOCH_MS)
            self._clocks[name] = SimClock(self.loop, skew_ms)
            self._start(name)
        return self._runtimes[name]

    def disk(self, name: str) -> SimDisk:
        return self._disks[name]

    def crash(self, name: str) -> None:
        """Cut the power: the program ends, the peers hear nothing, unsynced writes are lost or torn."""
        self._end(name, silently=True)
        self._disks[name].crash(self.random)

    def kill(self, name: str) -> None:
        """End the program as `kill -9` does: connections are reset, files keep all that was written."""
        self._end(name, silently=False)

    def restart(self, name: str) -> SimRuntime:
        """A new runtime on the same disk; kills the program that is still running."""
        if self._runtimes[name].is_alive:
            self.kill(name)
        self._start(name)
        return self._runtimes[name]

    def run(self, work: Coroutine[Any, Any, T], *, within_s: float = RUN_SECONDS_MAX) -> T:
        """Run until `work` is done. Raises what it raises, TimeoutError when virtual time runs out,
        SimulationDeadlock when nothing can wake it, or the first exception that nobody handled."""
        self.loop.deadline = self.loop.time() + within_s
        result = self.loop.run_until_complete(work)
        self.raise_unhandled()
        return result

    def advance(self, seconds: float) -> None:
        """Let time pass, and what happens in it happen."""
        self.run(asyncio.sleep(seconds), within_s=seconds + 1)

    def raise_unhandled(self) -> None:
        if self._unhandled:
            errors, self._unhandled = self._unhandled, []
            raise errors[0]

    def close(self) -> None:
        """Cancel every task that remains and close the loop."""
        if self.loop.is_closed():
            return
        for name, runtime in self._runtimes.items():
            if runtime.is_alive:
                self._end(name, silently=True)
        self.loop.deadline = math.inf
        for _ in range(CANCELS_MAX):
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, name: str) -> None:
        self.network.hosts[name] = True
        clock = self._clocks[name]
        disk = self._disks[name]
        self._runtimes[name] = SimRuntime(
            self.loop,
            name,
            clock,
            Random(self.random.getrandbits(64)),
            SimFileSystem(disk, clock.now_ms),
            SimHostNetwork(self.network, name),
        )
        disk.faults.on_power_cut = lambda: self.loop.call_soon(self._crash_if_off, name)

    def _crash_if_off(self, name: str) -> None:
        if self._disks[name].faults.is_off:
            self.crash(name)

    def _end(self, name: str, *, silently: bool) -> None:
        self.network.hosts[name] = not silently
        self._disks[name].end_programs()
        self.network.end_program(name, silently=silently)
        self._runtimes[name].end()

    def _on_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or RuntimeError(context["message"])
        if not isinstance(error, PowerCut):
            self._unhandled.append(error)


def run(main: Callable[[SimRuntime], Coroutine[Any, Any, T]], *, seed: int = 0) -> T:
    """The twin of `moldau.runtime.real.run`: one host, from start to end."""
    with Simulation(seed) as simulation:
        return simulation.run(main(simulation.host("localhost")))
