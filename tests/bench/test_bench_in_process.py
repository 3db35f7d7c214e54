"""What requests cost in process: the node comes up, and what is asked of it is answered."""

from pathlib import Path

import pytest

from bench.in_process import measure
from moldau.runtime.real import run


def test_what_is_asked_for_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run(lambda runtime: measure(runtime, tmp_path / "data", ["heartbeat-*", "fetch-offsets"]))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["fetch-offsets", "heartbeat-classic", "heartbeat-consumer"]
    assert all(float(line.split()[1]) > 0 for line in lines)
