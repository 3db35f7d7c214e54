"""The plugin in a pytest of its own, as users have it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from moldau.testing import plugin

TESTS = """
    import sys

    import pytest

    pids = set()

    def test_costs_nothing_before_it_is_used():
        mine = sorted(name for name in sys.modules if name.partition(".")[0] == "moldau")
        assert mine == ["moldau", "moldau.testing", "moldau.testing.plugin"]

    @pytest.mark.parametrize("number", range(3))
    def test_one_node_and_each_time_it_is_as_new(moldau, number):
        pids.add(moldau.process.pid)
        assert len(pids) == 1
        assert moldau.topics() == []
        moldau.produce("made-by-my-program", "a")
        moldau.fail_next("Metadata", error="LEADER_NOT_AVAILABLE")

    def test_options(moldau):
        moldau.produce("three", "a", partition=2)
"""


def test_in_a_run_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmoldau_options =\n    num.partitions = 3\n")
    (tmp_path / "test_it.py").write_text(textwrap.dedent(TESTS))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "5 passed" in ran.stdout


def test_options_are_lines_of_names_and_values() -> None:
    assert plugin._options(["a.b = c = d", "e="]) == {"a.b": "c = d", "e": ""}
    with pytest.raises(pytest.UsageError, match=r"'num\.partitions' is not name=value"):
        plugin._options(["num.partitions"])
