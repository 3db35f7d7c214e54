"""The line between a test and the node it started: commands go one way, answers come back, a JSON object a
line each, over a socket that the node's process inherits. Nobody else can reach it, and it exists only where
a test asked for it.

`Commands` is what the node does with them; `NodeRig` carries them out in the node's process, and ends the
node when the test's process has gone; `ControlLine` is the test's end.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
from typing import Any

from moldau.net.connection import Handler
from moldau.runtime.real import RealRuntime
from moldau.server.node import Node
from moldau.testing.faults import Action, Delay, Fail, FaultRules, Lose, Match
from moldau.testing.front import Front
from moldau.testing.full_disk import FillableFileSystem
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode

LINE_BYTES_MAX = 64 * 1024
ANSWER_TIMEOUT_S = 30.0


class ControlError(Exception):
    """The node refused a command, or cannot be reached."""


class Commands:
    """A command is {"do": name, ...}; the answer {"ok": value} or {"error": why}."""

    def __init__(self, rules: FaultRules, front: Front) -> None:
        self._rules = rules
        self._front = front

    def perform(self, command: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"ok": self._perform(command)}
        except (KeyError, TypeError, ValueError) as error:
            return {"error": str(error)}

    def _perform(self, command: dict[str, Any]) -> Any:
        rules = self._rules
        match command["do"]:
            case "add":
                return rules.add(match_of(command), action_of(command), command["times"])
            case "remove":
                return rules.remove(command["rule"])
            case "hits":
                return rules.hits(command["rule"])
            case "clear":
                return rules.clear()
            case "fill disk":
                rules.disk_is_full = bool(command["full"])
                return None
            case "drop connections":
                return self._front.drop_connections()
            case other:
                raise ValueError(f"there is no command {other!r}")


def add_command(match: Match, action: Action, times: int | None) -> dict[str, Any]:
    """The command that adds a rule; `match_of` and `action_of` read it."""
    command: dict[str, Any] = {
        "do": "add",
        "api": None if match.api is None else int(match.api),
        "topic": match.topic,
        "client_id": match.client_id,
        "times": times,
    }
    match action:
        case Fail():
            command |= {"action": "fail", "error": int(action.error), "whole": action.whole}
        case Delay():
            command |= {"action": "delay", "seconds": action.seconds}
        case Lose():
            command |= {"action": "lose"}
    return command


def match_of(command: dict[str, Any]) -> Match:
    api = command["api"]
    return Match(
        api=None if api is None else ApiKey(api), topic=command["topic"], client_id=command["client_id"]
    )


def action_of(command: dict[str, Any]) -> Action:
    match command["action"]:
        case "fail":
            return Fail(error=ErrorCode(command["error"]), whole=command["whole"])
        case "delay":
            return Delay(seconds=command["seconds"])
        case "lose":
            return Lose()
        case other:
            raise ValueError(f"there is no action {other!r}")


class NodeRig:
    """What `moldau up --test-control` puts around its node."""

    def __init__(self, descriptor: int) -> None:
        """Raises OSError if the descriptor is no socket."""
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._rules = FaultRules()
        self._front: Front
        self._commands: Commands
        self._received = bytearray()

    def prepare(self, runtime: RealRuntime) -> None:
        self._front = Front(runtime, self._rules)
        self._commands = Commands(self._rules, self._front)
        runtime.files = FillableFileSystem(runtime.files, self._rules)
        asyncio.get_running_loop().add_reader(self._socket, self._on_readable)

    def in_front_of(self, dispatch: Handler) -> Handler:
        return self._front.wrap(dispatch)

    def attach(self, node: Node) -> None:
        self._front.attach(node)

    def _on_readable(self) -> None:
        try:
            data = self._socket.recv(LINE_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._received += data
        if not data or len(self._received) > LINE_BYTES_MAX:
            # Whoever tests is gone, and with it the reason to be.
            asyncio.get_running_loop().remove_reader(self._socket)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        while b"\n" in self._received:
            line, _, self._received = self._received.partition(b"\n")
            answer = self._commands.perform(json.loads(line))
            # One command is under way at a time, and its answer is short: the socket has room for it.
            self._socket.send(json.dumps(answer).encode() + b"\n")


class ControlLine:
    """The test's end. Usable from several threads, one command at a time."""

    def __init__(self) -> None:
        self._mine, self._theirs = socket.socketpair()
        self._mine.settimeout(ANSWER_TIMEOUT_S)
        self._lock = threading.Lock()

    @property
    def descriptor(self) -> int:
        """For the node's process to inherit."""
        return self._theirs.fileno()

    def handed_over(self) -> None:
        """The node's process has its end: from here on its end is the line's end."""
        self._theirs.close()

    def ask(self, command: dict[str, Any]) -> Any:
        """Raises ControlError."""
        with self._lock:
            try:
                self._mine.sendall(json.dumps(command).encode() + b"\n")
                line = bytearray()
                while not line.endswith(b"\n"):
                    received = self._mine.recv(4096)
                    if not received:
                        raise ControlError("the node has ended")
                    line += received
            except TimeoutError:
                raise ControlError(f"the node did not answer in {ANSWER_TIMEOUT_S:.0f} s") from None
            except OSError as error:
                raise ControlError(f"the node cannot be reached: {error.strerror or error}") from None
        answer = json.loads(line)
        if "error" in answer:
            raise ControlError(answer["error"])
        return answer["ok"]

    def close(self) -> None:
        self._mine.close()
        self._theirs.close()
