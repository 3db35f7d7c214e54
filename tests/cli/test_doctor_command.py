from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path

import pytest

from moldau.cli import doctor
from moldau.cli.doctor import FAIL, OK, WARN, Finding
from moldau.runtime.files import RealFileSystem
from tests.cli.conftest import moldau


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def by_check(*arguments: str) -> tuple[int, dict[str, tuple[str, str, str | None]]]:
    result = moldau("doctor", "--json", *arguments)
    found = json.loads(result.stdout)
    return result.exit_code, {one["check"]: (one["status"], one["found"], one["advice"]) for one in found}


def test_a_good_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    place = ["--data-dir", str(tmp_path / "data"), "--port", str(free_port())]
    code, found = by_check(*place)
    assert code == 0
    assert {found[name][0] for name in ("python", "wheel crc32c", "data directory", "port", "clock")} == {OK}
    assert "will be made" in found["data directory"][1]
    assert not (tmp_path / "data").exists()
    shown = moldau("doctor", *place)
    assert shown.stdout.splitlines()[0].split() == ["CHECK", "STATUS", "FOUND"]


def test_a_node_that_runs_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = ["--data-dir", str(tmp_path), "--port", str(listening.getsockname()[1])]
        lock = RealFileSystem().lock(str(tmp_path / ".lock"))
        _, found = by_check(*place)
        assert found["data directory"][:2] == (OK, f"{tmp_path}: in use by a running node")
        assert found["port"][0] == OK
        lock.release()
        code, found = by_check(*place)
    assert code == 1
    assert found["data directory"][:2] == (OK, f"{tmp_path}: holds a node's data")
    assert found["port"][0] == FAIL and "another --port" in (found["port"][2] or "")


def test_a_data_directory_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    data = tmp_path / "file" / "data"
    code, found = by_check("--data-dir", str(data), "--port", str(free_port()))
    assert code == 1
    assert found["data directory"][:2] == (FAIL, f"{data}: {data.parent} is no directory")
    result = moldau("doctor", "--data-dir", str(tmp_path / "file"), "--port", str(free_port()))
    assert result.exit_code == 1
    assert "fail: data directory: give another by --data-dir" in result.stdout


def busy(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("finding", "status"),
    [
        (doctor.judge_python((3, 10), "CPython", "3.10.1"), FAIL),
        (doctor.judge_python((3, 12), "PyPy", "3.12.1"), WARN),
        (doctor.judge_wheel("crc32c", "2.7", None), FAIL),
        (doctor.judge_wheel("crc32c", "2.7", "2.6.9"), FAIL),
        (doctor.judge_wheel("crc32c", "2.7", "2.10"), OK),
        (doctor.judge_wheel("uvloop", "0.21", None), WARN),
        (doctor.judge_port("::", 9092, busy(errno.EADDRINUSE), True), OK),
        (doctor.judge_port("::", 80, busy(errno.EACCES), False), FAIL),
        (doctor.judge_port("192.0.2.1", 9092, busy(errno.EADDRNOTAVAIL), False), FAIL),
        (doctor.judge_disk(10 << 20, 1 << 40), FAIL),
        (doctor.judge_disk(500 << 20, 1 << 40), WARN),
        (doctor.judge_disk(2 << 30, 1 << 40), OK),
        (doctor.judge_open_files(None), OK),
        (doctor.judge_open_files(4096), WARN),
        (doctor.judge_open_files(256), FAIL),
        (doctor.judge_clock(0, None), FAIL),
        (doctor.judge_clock(1.8e9, 1.8e9 + 60), WARN),
        (doctor.judge_clock(1.8e9, 1.8e9 - 60), OK),
        (doctor.judge_profiles(Path("c"), "c is not TOML"), FAIL),
        (doctor.judge_profiles(Path("c"), {"b": "x", "a": "y"}), OK),
        (doctor.judge_java(None), WARN),
        (doctor.judge_java(""), WARN),
        (doctor.judge_java('java version "1.8.0_402"'), WARN),
        (doctor.judge_java('openjdk version "21.0.2" 2024-01-16'), OK),
    ],
)
def test_what_it_means(finding: Finding, status: str) -> None:
    assert finding.status == status
    assert bool(finding.advice) == (status != OK)
