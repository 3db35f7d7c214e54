"""Which cluster a command means: by the command line, the environment, or a profile."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from moldau.cli.profile import names
from moldau.cli.remote import bootstrap_option
from moldau.client.cluster import Address
from tests.cli.conftest import completed, moldau

FILE = """
[profiles.default]
bootstrap = "d"
[profiles.staging]
bootstrap = "s1:1,s2"
"""


@click.command()
@bootstrap_option
def meant(bootstrap: list[Address]) -> None:
    click.echo(",".join(map(str, bootstrap)))


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("MOLDAU_BOOTSTRAP", "MOLDAU_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "moldau" / "config.toml"
    path.parent.mkdir()
    return path


@pytest.mark.parametrize(
    ("arguments", "environment", "cluster"),
    [
        ([], {}, "d:9092"),
        (["--profile", "staging"], {}, "s1:1,s2:9092"),
        ([], {"MOLDAU_PROFILE": "staging"}, "s1:1,s2:9092"),
        ([], {"MOLDAU_BOOTSTRAP": "e:2"}, "e:2"),
        ([], {"MOLDAU_BOOTSTRAP": "e:2", "MOLDAU_PROFILE": "staging"}, "e:2"),
        (["--profile", "staging"], {"MOLDAU_BOOTSTRAP": "e:2"}, "s1:1,s2:9092"),
        (["-b", "c:3"], {"MOLDAU_BOOTSTRAP": "e:2", "MOLDAU_PROFILE": "staging"}, "c:3"),
    ],
)
def test_who_goes_before_whom(
    config: Path, arguments: list[str], environment: dict[str, str], cluster: str
) -> None:
    config.write_text(FILE)
    result = CliRunner(env=environment).invoke(meant, arguments)
    assert (result.exit_code, result.output) == (0, f"{cluster}\n")


def test_without_a_file_it_is_this_machine(config: Path) -> None:
    assert CliRunner().invoke(meant).output == "127.0.0.1:9092\n"
    assert names() == []


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (FILE, ["-b", "a", "--profile", "staging"], "give either --bootstrap or --profile"),
        (FILE, ["--profile", "prod"], "has no profile 'prod' (it has default, staging); add [profiles.prod]"),
        ("[", [], "is not TOML"),
        ("[cluster]", [], "'cluster' is not known; clusters are tables called [profiles.NAME]"),
        ("profiles = 1", [], "'profiles' is no table"),
        ("[profiles.default]", [], "the profile 'default' needs bootstrap"),
        ('[profiles.default]\nbootstrap = "x"\nport = 1', [], "has 'port', which is not known"),
        ('[profiles.default]\nbootstrap = "x:y"', [], "profile 'default': 'x:y' is not host:port"),
    ],
)
def test_what_is_wrong_is_told(config: Path, text: str, arguments: list[str], message: str) -> None:
    config.write_text(text)
    result = moldau("topic", "list", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr and result.stderr.count("\n") == 1


def test_profiles_are_completed(config: Path) -> None:
    config.write_text(FILE)
    assert completed("moldau topic list --profile s") == ["staging"]
