"""A broker in memory on a loop of its own, in a thread, and the command run in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from click.testing import CliRunner, Result

from moldau.cli import complete
from moldau.cli.main import main
from moldau.runtime.real import RealRuntime, run
from tests.client.fake_broker import FakeBroker


@contextmanager
def broker_thread() -> Iterator[FakeBroker]:
    started = threading.Event()
    brokers: list[FakeBroker] = []
    stops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve(runtime: RealRuntime) -> None:
        stop = asyncio.Event()
        brokers.append(FakeBroker(runtime, port=0))
        stops.append((asyncio.get_running_loop(), stop))
        started.set()
        await stop.wait()
        brokers[0].close()

    thread = threading.Thread(target=run, args=(serve,), daemon=True)
    thread.start()
    assert started.wait(30)
    try:
        yield brokers[0]
    finally:
        loop, stop = stops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    """The environment names it as the cluster to use."""
    with broker_thread() as found:
        monkeypatch.setenv("MOLDAU_BOOTSTRAP", f"127.0.0.1:{found.port}")
        yield found


def moldau(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name="moldau")


def completed(line: str, patience_s: float = 30) -> list[str]:
    """What bash is told when Tab is pressed at the end of the line, on a machine that may be slow."""
    environment = {
        "_MOLDAU_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    with patch.object(complete, "PATIENCE_S", patience_s):
        result = CliRunner(env=environment).invoke(main, prog_name="moldau", complete_var="_MOLDAU_COMPLETE")
    return [each.partition(",")[2] for each in result.output.split()]
