from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.cli.conftest import completed, moldau
from tests.client.fake_broker import FakeBroker


def test_subcommands_and_options_are_completed() -> None:
    assert completed("moldau to") == ["topic"]
    assert completed("moldau consume x --match-") == ["--match-key", "--match-header", "--match-json"]


def test_the_cluster_knows_its_topics(broker: FakeBroker) -> None:
    for name in ("orders", "old", "payments"):
        broker.add_topic(name)
    assert completed("moldau consume o") == ["old", "orders"]
    assert completed("moldau topic describe old p") == ["payments"]
    assert completed("moldau topic delete or") == ["orders"]


def test_a_cluster_that_is_away_has_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOLDAU_BOOTSTRAP", "127.0.0.1:1")
    assert completed("moldau consume o", patience_s=0.1) == []


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
