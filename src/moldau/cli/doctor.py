"""`moldau doctor`: whether all is well for a node on this machine, and what to do where it is not.

What is looked at is gathered here; what it means is told by the functions called `judge_…`, which take values
and give a `Finding`.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import click

from moldau.cli.node import data_dir_option, data_directory
from moldau.cli.output import print_table
from moldau.cli.profile import BadProfile, bootstraps, config_path

OK, WARN, FAIL = "ok", "warn", "fail"

# One without which a node runs, only slower.
OPTIONAL_WHEELS = frozenset({"uvloop"})
PYTHON_MIN = (3, 11)
DISK_BYTES_MIN = 64 << 20
DISK_BYTES_FEW = 1 << 30
OPEN_FILES_MIN = 1024
OPEN_FILES_FEW = 16_384
JAVA_MIN = 17
# No machine with this version on it has a clock that is right and shows less: 2025-01-01.
CLOCK_MIN_S = 1_735_689_600
CLOCK_SKEW_S = 5.0
_JAVA_TIMEOUT_S = 20
_COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    check: str
    status: str
    found: str
    advice: str = ""


@click.command("doctor", help="Look whether all is well for a node on this machine.")
@data_dir_option("Where the node's data is or will be.")
@click.option(
    "--host", metavar="HOST", default="127.0.0.1", show_default=True, help="Where the node is to listen."
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    default=9092,
    show_default=True,
    help="The port it is to listen on.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def command(data_dir: str, host: str, port: int, as_json: bool) -> None:
    directory = Path(data_directory(data_dir))
    findings = list(examine(directory, host, port))
    if as_json:
        shown = [
            {"check": one.check, "status": one.status, "found": one.found, "advice": one.advice or None}
            for one in findings
        ]
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        print_table(("CHECK", "STATUS", "FOUND"), [(one.check, one.status, one.found) for one in findings])
        for one in findings:
            if one.advice:
                click.echo(f"{click.style(one.status, fg=_COLOURS[one.status])}: {one.check}: {one.advice}")
    if any(one.status == FAIL for one in findings):
        sys.exit(1)


def examine(directory: Path, host: str, port: int) -> Iterator[Finding]:
    yield judge_python(sys.version_info[:2], platform.python_implementation(), platform.python_version())
    yield from wheels()
    is_locked = _is_locked(directory)
    yield judge_directory(directory, *_state(directory), is_locked)
    yield judge_port(host, port, _bind_error(host, port), is_locked)
    yield judge_disk(*_disk(directory))
    yield judge_open_files(_open_files())
    yield judge_clock(time.time(), _newest(directory))
    yield judge_profiles(config_path(), _profiles())
    yield judge_java(_java())


# -- What it means


def judge_python(version: tuple[int, int], implementation: str, shown: str) -> Finding:
    found = f"{implementation} {shown}"
    if version < PYTHON_MIN:
        return Finding(check="python", status=FAIL, found=found, advice="use Python 3.11 or newer")
    if implementation != "CPython":
        return Finding(check="python", status=WARN, found=found, advice="Moldau is tested with CPython only")
    return Finding(check="python", status=OK, found=found)


def judge_wheel(name: str, least: str, found: str | None) -> Finding:
    check = f"wheel {name}"
    advice = f"pip install '{name}>={least}'" if least else f"pip install {name}"
    if found is None:
        if name in OPTIONAL_WHEELS:
            advice += "; without it a node is slower"
        status = WARN if name in OPTIONAL_WHEELS else FAIL
        return Finding(check=check, status=status, found="not installed", advice=advice)
    if least and _numbers(found) < _numbers(least):
        return Finding(check=check, status=FAIL, found=found, advice=advice)
    return Finding(check=check, status=OK, found=found)


def judge_directory(path: Path, is_formatted: bool, problem: str | None, is_locked: bool) -> Finding:
    check = "data directory"
    if problem is not None:
        advice = "give another by --data-dir, or set its owner and permissions right"
        return Finding(check=check, status=FAIL, found=f"{path}: {problem}", advice=advice)
    if is_locked:
        return Finding(check=check, status=OK, found=f"{path}: in use by a running node")
    state = "holds a node's data" if is_formatted else "will be made or formatted at the first start"
    return Finding(check=check, status=OK, found=f"{path}: {state}")


def judge_port(host: str, port: int, error: OSError | None, node_runs: bool) -> Finding:
    check, place = "port", f"{host}:{port}"
    if error is None:
        return Finding(check=check, status=OK, found=f"{place} is free")
    if error.errno == errno.EADDRINUSE:
        if node_runs:
            return Finding(check=check, status=OK, found=f"{place} is in use, as the data directory is")
        advice = "stop who listens there, or start with another --port"
        return Finding(check=check, status=FAIL, found=f"{place} is in use", advice=advice)
    if error.errno in (errno.EACCES, errno.EPERM):
        advice = "ports below 1024 take privileges: start with another --port"
    else:
        advice = "this machine has no such address: start with another --host"
    return Finding(check=check, status=FAIL, found=f"{place}: {error.strerror or error}", advice=advice)


def judge_disk(free: int, total: int) -> Finding:
    found = f"{_size(free)} of {_size(total)} free"
    if free < DISK_BYTES_MIN:
        advice = "make room: a node on a full disk refuses records"
        return Finding(check="disk space", status=FAIL, found=found, advice=advice)
    if free < DISK_BYTES_FEW:
        advice = "make room, or bound the logs by retention.bytes and retention.ms"
        return Finding(check="disk space", status=WARN, found=found, advice=advice)
    return Finding(check="disk space", status=OK, found=found)


def judge_open_files(limit: int | None) -> Finding:
    """`limit` is the hard one, to which a node raises the soft one; None is none."""
    check = "open files"
    if limit is None or limit >= OPEN_FILES_FEW:
        return Finding(check=check, status=OK, found="no limit" if limit is None else f"up to {limit}")
    advice = "raise the hard limit (ulimit -Hn, LimitNOFILE=): segments and connections take a file each"
    status = FAIL if limit < OPEN_FILES_MIN else WARN
    return Finding(check=check, status=status, found=f"up to {limit}", advice=advice)


def judge_clock(now_s: float, newest_s: float | None) -> Finding:
    """`newest_s` is when the node last wrote, as its files tell."""
    found = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s))
    advice = "set the clock, and keep it right by NTP: records, retention and sessions go by it"
    if now_s < CLOCK_MIN_S:
        return Finding(check="clock", status=FAIL, found=found, advice=advice)
    if newest_s is not None and newest_s > now_s + CLOCK_SKEW_S:
        found = f"{found}, {newest_s - now_s:.0f} s behind the node's files"
        return Finding(check="clock", status=WARN, found=found, advice=advice)
    return Finding(check="clock", status=OK, found=found)


def judge_profiles(path: Path, profiles: dict[str, str] | str) -> Finding:
    if isinstance(profiles, str):
        advice = "mend the file; docs/cli.md shows its form"
        return Finding(check="profiles", status=FAIL, found=profiles, advice=advice)
    names = ", ".join(sorted(profiles)) or "none"
    return Finding(check="profiles", status=OK, found=f"{names} ({path})")


def judge_java(printed: str | None) -> Finding:
    """By what `java -version` printed. Only Spark takes Java, so nothing about it is a failure."""
    check = "java"
    advice = f"only Spark takes it: install Java {JAVA_MIN} or newer, or pip install 'moldau[java]'"
    if printed is None:
        return Finding(check=check, status=WARN, found="not installed", advice=advice)
    found = re.search(r'version "(?:1\.)?(\d+)', printed)
    if found is None:
        return Finding(check=check, status=WARN, found="does not run", advice=advice)
    status = OK if int(found.group(1)) >= JAVA_MIN else WARN
    return Finding(
        check=check, status=status, found=f"Java {found.group(1)}", advice="" if status == OK else advice
    )


# -- What is there


def wheels() -> Iterator[Finding]:
    """Those that the base installation stands on."""
    for line in requires("moldau") or ():
        requirement, _, marker = line.partition(";")
        if "extra ==" in marker:
            continue
        match = re.match(r"([A-Za-z0-9._-]+)(?:.*>=\s*([0-9.]+))?", requirement)
        assert match is not None, line
        name, least = match.group(1), match.group(2) or ""
        try:
            found: str | None = version(name)
        except PackageNotFoundError:
            found = None
        yield judge_wheel(name, least, found)


def _state(directory: Path) -> tuple[bool, str | None]:
    """Whether it is formatted, and what is wrong with it."""
    nearest = _nearest(directory)
    if not nearest.is_dir():
        return False, f"{nearest} is no directory"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return False, f"{nearest} cannot be written to"
    return (directory / "meta.properties").exists(), None


def _is_locked(directory: Path) -> bool:
    """Whether a node runs on it: looked at without making a lock file."""
    if not (directory / ".lock").exists():
        return False
    from moldau.runtime.files import RealFileSystem

    try:
        RealFileSystem().lock(str(directory / ".lock")).release()
    except BlockingIOError:
        return True
    except OSError:
        return False  # what is wrong with the directory is told elsewhere
    return False


def _bind_error(host: str, port: int) -> OSError | None:
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in addresses:
            with socket.socket(family, kind, protocol) as listening:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listening.bind(address)
    except OSError as error:
        return error
    return None


def _disk(directory: Path) -> tuple[int, int]:
    usage = shutil.disk_usage(_nearest(directory))
    return usage.free, usage.total


def _open_files() -> int | None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if hard == resource.RLIM_INFINITY else hard


def _newest(directory: Path) -> float | None:
    """When something in it was last written; its checkpoints are, about every minute."""
    try:
        with os.scandir(directory) as entries:
            return max((entry.stat().st_mtime for entry in entries if entry.is_file()), default=None)
    except OSError:
        return None


def _profiles() -> dict[str, str] | str:
    try:
        return bootstraps(config_path())
    except BadProfile as error:
        return error.message


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java") or (shutil.which("java", path=f"{home}/bin") if home else None)
    if java is None:
        return None
    try:
        ran = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stderr + ran.stdout


def _nearest(path: Path) -> Path:
    """The path, or what is there of the way to it."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.1f} MiB"
