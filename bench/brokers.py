"""The subjects of a run: Apache Kafka, Moldau and the stub, each a process that starts on an empty directory.

Each is a context manager: entered, it answers at `bootstrap`; left, its process has ended and its data is
gone. What a load needs to know of it is its address, its name and what its process tree uses.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from bench import procfs
from bench.kafka import REPOSITORY, KafkaServer, end_process, free_port, java_missing, wait_ready

# Another command than this checkout's can be measured: an older version, or the same broker twice.
MOLDAU = Path(os.environ.get("BENCH_MOLDAU", REPOSITORY / ".venv" / "bin" / "moldau"))

# How long members of groups may be silent: little, because a load waits for it.
SESSION_MS = 2000

COMMON_PROPERTIES = {
    # A cleaner that waits is a small part of what a load of compaction waits for.
    "log.cleaner.backoff.ms": "200",
    # Files of deleted topics go soon, so that a run of many topics stays within its disk budget.
    "log.segment.delete.delay.ms": "1000",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
}


class Broker(ABC):
    """A broker under measurement."""

    name: str
    stores = True

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"

    @property
    @abstractmethod
    def pid(self) -> int: ...

    @abstractmethod
    def prepare(self) -> None:
        """Whatever precedes a start and is not a part of it."""

    @abstractmethod
    def launch(self) -> None:
        """Start the process, without waiting."""

    @abstractmethod
    def wait_ready(self) -> None: ...

    @abstractmethod
    def stop(self) -> None:
        """End the process; nothing when it has not been launched."""

    def cpu_seconds(self) -> float:
        return procfs.cpu_seconds(self.pid)

    def resident_bytes(self) -> int:
        return procfs.resident_bytes(self.pid)

    def __enter__(self) -> Broker:
        self.prepare()
        try:
            self.launch()
            self.wait_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


class Kafka(Broker):
    name = "kafka"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._server = KafkaServer(directory / "data", port=self.port, properties=COMMON_PROPERTIES)

    @property
    def pid(self) -> int:
        return self._server.pid

    def prepare(self) -> None:
        self._server.format()

    def launch(self) -> None:
        self._server.launch()

    def wait_ready(self) -> None:
        self._server.wait_ready()

    def stop(self) -> None:
        self._server.stop()


class CommandBroker(Broker):
    """A broker that is one command of ours."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._process: subprocess.Popen[bytes] | None = None
        self._output = directory / "output.log"

    @abstractmethod
    def command(self) -> list[str]: ...

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    def prepare(self) -> None:
        self.directory.mkdir(parents=True)

    def launch(self) -> None:
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                self.command(), stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=REPOSITORY
            )

    def wait_ready(self) -> None:
        assert self._process is not None
        wait_ready(self.bootstrap, self._process, self._output, 60)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_process(process, signal.SIGTERM, 60)


class Moldau(CommandBroker):
    name = "moldau"

    def command(self) -> list[str]:
        options = [word for name, value in COMMON_PROPERTIES.items() for word in ("-o", f"{name}={value}")]
        return [
            str(MOLDAU),
            "up",
            "--data-dir",
            str(self.directory / "data"),
            "--port",
            str(self.port),
            *options,
        ]


class Stub(CommandBroker):
    name = "stub"
    stores = False

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.stub", "--port", str(self.port)]


def missing(name: str) -> str | None:
    """Why this broker cannot run here, or None."""
    match name:
        case "kafka":
            return java_missing()
        case "moldau":
            return None if MOLDAU.exists() else f"no {MOLDAU}: run `make setup`"
        case _:
            return None


SUBJECTS: dict[str, Callable[[Path], Broker]] = {"kafka": Kafka, "moldau": Moldau, "stub": Stub}
