"""The Python of docs/testing.md is what it claims to be: tests that pass, in a pytest of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.interop
def test_the_examples_pass(tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) >= 6
    for number, block in enumerate(blocks):
        assert re.search(r"^ *def test_", block, re.MULTILINE), f"block {number} is no test:\n{block}"
        (tmp_path / f"test_block_{number}.py").write_text(block)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
