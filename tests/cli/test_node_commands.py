from __future__ import annotations

import json
from pathlib import Path

import pytest

from moldau.config.broker import BROKER_OPTIONS, BrokerConfig
from moldau.config.document import to_markdown
from moldau.config.single_node import node_properties
from moldau.config.topic import TopicConfig
from moldau.log.meta_properties import decode_meta_properties
from tests.cli.conftest import moldau

STATIC = """\
process.roles=broker,controller
node.id=3
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
"""
VOTERS = "controller.quorum.voters=3@127.0.0.1:9093\n"
DYNAMIC = "controller.quorum.bootstrap.servers=127.0.0.1:9093\n"


@pytest.fixture
def server_properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(f"{STATIC}{VOTERS}log.dirs={tmp_path}/a,{tmp_path}/b\n")
    return path


@pytest.fixture
def dynamic_properties(tmp_path: Path) -> Path:
    path = tmp_path / "dynamic.properties"
    path.write_text(f"{STATIC}{DYNAMIC}log.dirs={tmp_path}/c\n")
    return path


def test_every_directory_is_formatted(server_properties: Path) -> None:
    directories = [server_properties.parent / name for name in ("a", "b")]
    result = moldau("format", "--config", str(server_properties), "--cluster-id", "cluster-1")
    assert (result.exit_code, result.output.splitlines()) == (
        0,
        [f"formatted {directory} for node 3 of cluster cluster-1" for directory in directories],
    )
    found = [
        decode_meta_properties((directory / "meta.properties").read_bytes(), "") for directory in directories
    ]
    assert {(properties.cluster_id, properties.node_id) for properties in found} == {("cluster-1", 3)}
    assert found[0].directory_id != found[1].directory_id
    assert (directories[0] / "bootstrap.checkpoint").exists()
    assert not (directories[0] / "__cluster_metadata-0").exists()


def test_what_is_formatted_is_not_formatted_again(server_properties: Path) -> None:
    arguments = ["format", "-c", str(server_properties), "-t"]
    assert moldau(*arguments, "one").exit_code == 0
    before = (server_properties.parent / "a" / "meta.properties").read_bytes()
    again = moldau(*arguments, "one")
    assert (again.exit_code, again.stderr.count("already formatted")) == (1, 1)
    assert moldau(*arguments, "one", "--ignore-formatted").exit_code == 0
    assert moldau(*arguments, "two", "--ignore-formatted").exit_code == 1
    assert (server_properties.parent / "a" / "meta.properties").read_bytes() == before


def test_a_controller_needs_its_quorum_in_one_way(server_properties: Path, dynamic_properties: Path) -> None:
    for path, arguments in [
        (server_properties, ["--standalone"]),
        (server_properties, ["--no-initial-controllers"]),
        (dynamic_properties, []),
        (dynamic_properties, ["--standalone", "--no-initial-controllers"]),
    ]:
        result = moldau("format", "-c", str(path), "-t", "x", *arguments)
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1
    assert [path for path in server_properties.parent.iterdir() if path.is_dir()] == []


def test_a_standalone_controller_is_its_quorum(dynamic_properties: Path) -> None:
    assert moldau("format", "-c", str(dynamic_properties), "-t", "x", "--standalone").exit_code == 0
    snapshot = dynamic_properties.parent / "c/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
    result = moldau("dump", "--deep", str(snapshot))
    assert 'KRaftVersion {"version":0,"kRaftVersion":1}' in result.output
    assert '"endpoints":[{"name":"CONTROLLER","host":"127.0.0.1","port":9093}]' in result.output


def test_a_data_directory_needs_no_properties(tmp_path: Path) -> None:
    assert moldau("format", "--data-dir", str(tmp_path / "data")).exit_code == 0
    assert (tmp_path / "data" / "meta.properties").exists()


@pytest.mark.parametrize("command", ["format", "up"])
def test_a_home_that_is_not_there_is_told(command: str) -> None:
    result = moldau(command, "--data-dir", "~nobody-of-this-name/data")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "give another --data-dir" in result.stderr


def test_a_data_directory_that_is_formatted_is_left_alone(tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    assert moldau("format", "--data-dir", directory).exit_code == 0
    before = (tmp_path / "data" / "meta.properties").read_bytes()
    again = moldau("format", "--data-dir", directory)
    assert again.stderr == (
        f"moldau: Log directory {directory} is already formatted (--ignore-formatted leaves it as it is)\n"
    )
    left = moldau("format", "--data-dir", directory, "--ignore-formatted")
    assert (left.exit_code, left.output) == (0, f"{directory} is formatted already\n")
    assert (tmp_path / "data" / "meta.properties").read_bytes() == before


@pytest.mark.parametrize("command", ["format", "broker"])
def test_all_that_is_wrong_with_properties_is_told(command: str, tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(STATIC + VOTERS + "num.io.threads=many\nno.such.option=1\n")
    identity = ["--cluster-id", "x"] if command == "format" else []
    result = moldau(command, "--config", str(path), *identity, "-o", "log.segment.bytes=1")
    assert result.exit_code == 2
    names = ("log.segment.bytes", "no.such.option", "num.io.threads")
    told = result.stderr.splitlines()
    assert [sum(name in line for line in told) for name in names] == [1, 1, 1]
    assert len(told) == 3
    assert "moldau: Unknown property no.such.option" in told


@pytest.mark.parametrize(("content", "code"), [(None, 1), (b"a=\\uZZZZ", 2)], ids=["missing", "malformed"])
def test_a_file_that_is_no_properties(tmp_path: Path, content: bytes | None, code: int) -> None:
    path = tmp_path / "server.properties"
    if content is not None:
        path.write_bytes(content)
    result = moldau("broker", "--config", str(path))
    assert (result.exit_code, result.stderr.count("\n")) == (code, 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "0.0.0.0", "::"])
def test_a_node_of_its_own_is_soundly_configured(host: str) -> None:
    config = BrokerConfig.parse(node_properties("/data", host, 9092))
    assert [(listener.host, listener.port) for listener in config.listeners.broker] == [(host, 9092)]
    advertised = config.listeners.advertised[0].host
    assert advertised == (None if host in ("0.0.0.0", "::") else host)
    assert config.log_dirs == ("/data",)


def test_a_node_of_its_own_may_have_another_id() -> None:
    config = BrokerConfig.parse(node_properties("/data", options=[("node.id", "5")]))
    assert [voter.id for voter in config.voters] == [5]


def test_options_are_listed() -> None:
    options = json.loads(moldau("config", "--broker", "--json").output)
    names = [option["name"] for option in options]
    assert names == [name for name, option in BROKER_OPTIONS.items() if not option.internal]
    topic = json.loads(moldau("config", "--topic", "--json").output)
    assert len(topic) == len([option for option in TopicConfig.OPTIONS if not option.internal])
    text = moldau("config").output
    assert all(f"\n{name}\n" in f"\n{text}" for name in names)
    assert moldau("config", "--markdown").output == to_markdown()


def test_options_are_found_by_name_and_pattern() -> None:
    (option,) = json.loads(moldau("config", "log.segment.bytes", "--json").output)
    assert (option["type"], option["default"], option["changes"]) == ("int", "1073741824", "cluster-wide")
    found = json.loads(moldau("config", "log.roll.*", "--json").output)
    assert {option["name"] for option in found} >= {"log.roll.ms", "log.roll.hours", "log.roll.jitter.ms"}
    result = moldau("config", "log.roll.ms", "nope")
    assert (result.exit_code, result.stderr) == (1, "moldau: no option is named nope\n")
    assert result.stdout.startswith("log.roll.ms\n")
    result = moldau("config", "log.rol.ms", "nope")
    assert result.stderr == "moldau: no option is named log.rol.ms (did you mean log.roll.ms?), nope\n"
