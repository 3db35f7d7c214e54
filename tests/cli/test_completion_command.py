from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.cli.conftest import moldau


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_ask(shell: str) -> None:
    result = moldau("completion", shell)
    assert result.exit_code == 0
    assert f"_MOLDAU_COMPLETE={shell}_complete" in result.stdout


def test_bash_takes_it() -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    script = moldau("completion", "bash").stdout + "\ncomplete -p moldau"
    ran = subprocess.run([bash, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0 and "moldau" in ran.stdout, ran.stderr


def test_other_shells_are_not_known() -> None:
    assert moldau("completion", "tcsh").exit_code == 2
