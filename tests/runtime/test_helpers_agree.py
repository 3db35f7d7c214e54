"""The real helper process and its simulated twin do the same for whoever uses them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from moldau.runtime import real
from moldau.runtime.interfaces import FileSystem, HelperGone, Runtime
from moldau.sim import simulation

Main = Callable[[Runtime], Coroutine[Any, Any, Any]]
RUNNERS = {"real": real.run, "simulated": simulation.run}


def echo(files: FileSystem, request: bytes) -> Iterator[bytes | float]:
    """What the helper of these tests does: each word is an answer, but for those with a meaning."""
    for word in request.split():
        match word:
            case b"pause":
                yield 0.01
            case b"fail":
                raise RuntimeError("as it was asked to")
            case b"exit":
                os._exit(7)
            case b"ever":
                while True:
                    yield 0.01
            case _:
                yield word


WORK = f"{__name__}:echo"


@pytest.fixture(params=list(RUNNERS))
def run(request: pytest.FixtureRequest) -> Callable[[Main], Any]:
    return lambda main: RUNNERS[request.param](main)


def test_requests_are_answered_one_after_another(run: Callable[[Main], Any]) -> None:
    async def main(runtime: Runtime) -> list[bytes]:
        helper = await runtime.start_helper(WORK)
        helper.send(b"one pause two")
        helper.send(b"three")
        answers = [await helper.receive() for _ in range(3)]
        helper.send(b"x" * 300_000)
        answers.append(await helper.receive())
        helper.kill()
        helper.kill()
        await helper.ended()
        return answers

    assert run(main) == [b"one", b"two", b"three", b"x" * 300_000]


def test_a_helper_that_is_killed_is_gone(run: Callable[[Main], Any]) -> None:
    async def main(runtime: Runtime) -> None:
        helper = await runtime.start_helper(WORK)
        helper.send(b"here ever")
        assert await helper.receive() == b"here"
        asyncio.get_running_loop().call_later(0.05, helper.kill)
        with pytest.raises(HelperGone):
            await helper.receive()
        await helper.ended()

    run(main)


@pytest.mark.parametrize("word", [b"exit", b"fail"])
def test_a_helper_that_dies_of_itself_is_gone(word: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    async def main(runtime: Runtime) -> None:
        helper = await runtime.start_helper(WORK)
        helper.send(b"here " + word)
        assert await helper.receive() == b"here"
        with pytest.raises(HelperGone):
            await helper.receive()
        helper.send(b"too late")
        helper.kill()
        await helper.ended()

    real.run(main)
    assert ("as it was asked to" in capfd.readouterr().err) == (word == b"fail")


@pytest.mark.parametrize("use_uvloop", [True, False])
def test_a_helper_ends_with_its_node(use_uvloop: bool) -> None:
    async def main(runtime: Runtime) -> int:
        helper = await runtime.start_helper(WORK)
        helper.send(b"here ever")
        await helper.receive()
        helper._process._transport.get_pipe_transport(0).close()  # type: ignore[attr-defined]
        await helper.ended()
        return helper._process.returncode  # type: ignore[attr-defined, no-any-return]

    assert real.run(main, use_uvloop=use_uvloop) == 0


def test_a_helper_that_says_nothing_is_given_up() -> None:
    async def main(runtime: Runtime) -> None:
        helper = await runtime.start_helper(WORK)
        helper.send(b"ever")
        helper.hang()  # type: ignore[attr-defined]
        with pytest.raises(HelperGone, match="silent"):
            await helper.receive()

    simulation.run(main)
