"""The programs in the pages do what the pages say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.node import COMMAND, MoldauNode

ROOT = Path(__file__).parent.parent.parent

pytestmark = pytest.mark.interop


def program(page: str) -> str:
    """The one Python program of a page."""
    (found,) = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


def run(code: str) -> str:
    """What it prints, with the command of this environment on its path."""
    path = f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_prints_the_record_it_wrote(tmp_path: Path) -> None:
    code = program("README.md")
    shown = re.findall(r"print\(.*\)  # (.*)", code)
    with MoldauNode(tmp_path / "data") as node:
        assert run(code.replace("127.0.0.1:9092", node.bootstrap)).splitlines() == shown


def test_a_test_starts_and_ends_a_node_as_the_page_says() -> None:
    listing = 'subprocess.run(["moldau", "topic", "list", "--json", "-b", bootstrap], check=True)'
    code = program("docs/migrating.md")
    assert code.count("\n...\n") == 1
    ended = "\nassert node.returncode == 0"
    assert run(code.replace("\n...\n", f"\n{listing}\n") + ended) == "[]\n"


PROGRAM = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_programs_of_the_client_do_what_its_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs/client.md").read_text()
    # Those behind this mark need a broker with transactions.
    codes = PROGRAM.findall(
        re.sub(r"<!-- needs (?:transactions|share groups) -->\n```python\n.*?```", "", page, flags=re.DOTALL)
    )
    assert len(codes) == 9
    with MoldauNode(tmp_path / "data") as node:
        for code in codes:
            shown = re.findall(r"print\(.*\)  # (.*)", code)
            assert run(code.replace("127.0.0.1:9092", node.bootstrap)).splitlines() == shown
