from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from moldau.cli.main import COMMANDS, main
from tests.cli.conftest import moldau

# Imported by a subcommand when it is called, never for `moldau --help` or before a node starts.
HEAVY = (
    "asyncio",
    "uvloop",
    "rich",
    "moldau.wire",
    "moldau.client",
    "moldau.server",
    "moldau.config",
)


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_the_list_of_commands_says_what_they_say() -> None:
    context = click.Context(main)
    assert main.list_commands(context) == list(COMMANDS)
    for name, summary in COMMANDS.items():
        command = main.get_command(context, name)
        assert command is not None
        assert (command.help or "").strip().splitlines()[0] == summary


def test_help_loads_no_subcommand() -> None:
    result = python(
        "import sys; from moldau.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    assert "Start a node from a server.properties file." in result
    assert result.endswith("[]\n")


def test_the_help_of_up_comes_without_the_server() -> None:
    result = python(
        "import sys; from moldau.cli.main import main\n"
        "try: main(['up', '--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith(('moldau.server', 'moldau.client', 'rich'))])"
    )
    assert result.endswith("[]\n")


def test_version() -> None:
    assert re.fullmatch(r"moldau \d+\.\d+\.\d+\n", moldau("--version").output)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "moldau: No such command 'nonsense'. (try 'moldau --help')\n"),
        (["up", "--port", "x"], "moldau: Invalid value for '--port': 'x' is not a valid integer range. (try"),
        (["broker"], "moldau: Missing option '-c' / '--config'. (try 'moldau broker --help')\n"),
        (
            ["broker", "-c", "x", "-o", "y"],
            "moldau: Invalid value for '-o' / '--option': 'y' is not NAME=VALUE",
        ),
        (["topic", "list", "-b", "::1:9"], "'::1:9' is not host:port (an IPv6 address goes in brackets)"),
        (["consume", "a", "--offset", "1", "--from-beginning"], "moldau: give one of --from-beginning, "),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    result = moldau(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_no_cluster_is_one_line_and_exit_code_1() -> None:
    result = moldau("topic", "list", "-b", "127.0.0.1:1")
    assert (result.exit_code, result.stderr) == (
        1,
        "moldau: cannot connect to 127.0.0.1:1: connection refused "
        "(start a node with 'moldau up', or name another cluster by --bootstrap or --profile)\n",
    )


def test_a_reader_that_goes_away_ends_the_command_quietly(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", "from moldau.cli.main import main; main()", "config"]
    result = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (result.returncode, result.stderr) == (141, b"")


MOLDAU = [sys.executable, "-m", "moldau"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
@pytest.mark.parametrize("arguments", [["uuid"], ["config"], ["config", "--help"]])
def test_output_that_finds_no_room_is_one_line_and_exit_code_1(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [*MOLDAU, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (result.returncode, result.stderr) == (1, "moldau: No space left on device\n")


def test_closed_standard_streams_are_as_good_as_none(tmp_path: Path) -> None:
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *MOLDAU]
    for arguments in (["uuid"], ["config"], ["format", "--data-dir", str(tmp_path / "data")]):
        assert subprocess.run([*closed, *arguments], check=False).returncode == 0
    assert (tmp_path / "data" / "meta.properties").exists()
    assert subprocess.run([*closed, "nonsense"], check=False).returncode == 2


def test_what_an_encoding_cannot_show_is_escaped(tmp_path: Path) -> None:
    """A file name that is not UTF-8, and a terminal that is not."""
    path = os.fsencode(tmp_path / "quorum-state")[:-12] + b"\xff-checkpoint"
    result = subprocess.run([*MOLDAU, "dump", path], capture_output=True, check=False)
    assert (result.returncode, result.stdout[:8]) == (1, b"Dumping ")
    assert b"\\udcff-checkpoint does not exist" in result.stderr
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run([*MOLDAU, "config", "node.id"], capture_output=True, check=False, env=environment)
    assert (result.returncode, result.stderr) == (0, b"")


@pytest.mark.parametrize("arguments", [[], ["topic"]])
def test_a_missing_subcommand_is_answered_with_the_help(arguments: list[str]) -> None:
    result = moldau(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: moldau")
    assert result.stderr.strip() == moldau(*arguments, "--help").output.strip()


def test_uuids_are_kafkas() -> None:
    first, second = (moldau("uuid").output for _ in range(2))
    assert first != second
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}\n", first)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}\n", moldau("format", "--random-uuid").output)
