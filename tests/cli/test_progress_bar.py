from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.cli.progress import progress
from tests.client.fake_broker import FakeBroker

MOLDAU = [sys.executable, "-c", "from moldau.cli.main import main; main()"]


def test_nobody_watches_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(10, "orders", prints=False) as seen:
        seen.update(10)
    assert capsys.readouterr() == ("", "")


def test_a_bar_is_for_a_terminal_and_does_not_mix_with_results(broker: FakeBroker, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"hello\n" * 1000)
    terminal, its_end = pty.openpty()
    try:
        with lines.open("rb") as source:
            subprocess.run([*MOLDAU, "produce", "a"], stdin=source, stderr=its_end, check=True, timeout=60)
        shown = os.read(terminal, 65536)
        assert b"a" in shown and b"100%" in shown
        command = [*MOLDAU, "consume", "a", "--from-beginning", "--to-end"]
        consumed = subprocess.run(command, stdout=subprocess.PIPE, stderr=its_end, check=True, timeout=60)
        assert consumed.stdout == b"hello\n" * 1000
        assert b"100%" in os.read(terminal, 65536)
    finally:
        os.close(terminal)
        os.close(its_end)
