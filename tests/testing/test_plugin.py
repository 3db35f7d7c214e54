"""The plugin in a pytest of its own, as users have it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path


def pytest_on(directory: Path, test: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_it.py").write_text(textwrap.dedent(test))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_one_node_for_all_and_a_fresh_start_for_each(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmoldau_options =\n    num.partitions = 3\n")
    ran = pytest_on(
        tmp_path,
        """
        import pytest

        pids = set()

        @pytest.mark.parametrize("number", range(3))
        def test_same(moldau, number):
            pids.add(moldau.process.pid)
            assert len(pids) == 1
            assert moldau.topics() == []
            moldau.produce("made-by-my-program", "a")
            moldau.fail_next("Metadata", error="LEADER_NOT_AVAILABLE")

        def test_options(moldau):
            moldau.produce("three", "a", partition=2)
        """,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_it_costs_nothing_unless_used(tmp_path: Path) -> None:
    ran = pytest_on(
        tmp_path,
        """
        import sys

        def test_nothing():
            mine = sorted(name for name in sys.modules if name.partition(".")[0] == "moldau")
            assert mine == ["moldau", "moldau.testing", "moldau.testing.plugin"]
        """,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_an_option_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmoldau_options = num.partitions\n")
    ran = pytest_on(tmp_path, "def test_it(moldau): pass")
    assert ran.returncode == 1
    assert "moldau_options: 'num.partitions' is not name=value" in ran.stdout
