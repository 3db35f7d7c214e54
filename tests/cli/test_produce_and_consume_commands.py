from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from moldau.cli.stdin import LINE_BYTES_MAX
from moldau.records.batch import iterate_headers
from moldau.records.record import Record, read_records
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode
from moldau.wire.messages.fetch import FetchResponse
from tests.cli.conftest import moldau
from tests.client.fake_broker import FakeBroker

MOLDAU = [sys.executable, "-c", "from moldau.cli.main import main; main()"]


def produce(lines: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """In a process of its own: it reads the descriptor, not `sys.stdin`."""
    return subprocess.run(
        [*MOLDAU, "produce", *arguments], input=lines, capture_output=True, check=False, timeout=60
    )


def written(broker: FakeBroker, topic: str, partition: int = 0) -> list[Record]:
    log = bytes(broker.topics[topic].logs[partition])
    return [
        record
        for position, header in iterate_headers(log)
        for record in read_records(log[position : position + header.size])
    ]


def consume(*arguments: str) -> Any:
    return moldau("consume", *arguments, "--timeout", "0.2")


def test_lines_are_records(broker: FakeBroker) -> None:
    result = produce(b"one\r\ntwo\n\nlast", "new", "--compression", "lz4", "--header", "a=b=c")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    records = written(broker, "new")
    assert [record.value for record in records] == [b"one", b"two", b"", b"last"]
    assert {(record.key, record.headers) for record in records} == {(None, (("a", b"b=c"),))}
    assert {header.codec for _, header in iterate_headers(broker.topics["new"].logs[0])} == {3}


def test_lines_have_keys_and_go_where_they_are_told(broker: FakeBroker) -> None:
    broker.add_topic("a", 3)
    assert produce(b"k::v\n::\n", "a", "--key-separator", "::", "--partition", "2").returncode == 0
    assert [(record.key, record.value) for record in written(broker, "a", 2)] == [(b"k", b"v"), (b"", b"")]


def test_a_line_without_key_ends_it_after_the_lines_before(broker: FakeBroker) -> None:
    result = produce(b"k:v\noops\nl:w\n", "a", "--key-separator", ":", "--acks", "1")
    assert result.returncode == 1
    assert result.stderr == b"moldau: line 2 has no key separator ':'; the line before it is written\n"
    assert [record.value for record in written(broker, "a")] == [b"v"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b'{"value": 3}', 'has a value that is neither a string, null nor {"base64": "..."}'),
        (b'{"key": {"base64": "!"}}', "has a key that is no valid base64"),
        (b'{"headers": [["a"]]}', "has headers that are no list of [name, value] pairs"),
        (b'{"partition": -1}', "has a partition that is no number from 0 to 2147483647"),
        (b'{"timestamp": "x"}', "has a timestamp that is no number from -1 to 9223372036854775807"),
        (b'{"value": "\\ud800"}', "has a value that is half of a pair of surrogates"),
        (b'{"headers": {"\\ud800": "x"}}', "has headers that are no list of [name, value] pairs"),
        (b"[" * 100_000, "is not JSON"),
    ],
)
def test_bad_json_is_explained(broker: FakeBroker, line: bytes, problem: str) -> None:
    result = produce(line, "a", "--json")
    assert result.returncode == 1
    assert result.stderr.decode() == f"moldau: line 1 {problem}\n"


def test_json_goes_out_as_it_came_in(broker: FakeBroker) -> None:
    broker.add_topic("a", 2)
    records = [
        {"key": "ключ", "value": None, "headers": [["h", "x"], ["h", None]], "timestamp": 5, "partition": 1},
        {"key": None, "value": {"base64": base64.b64encode(b"\xff").decode()}, "headers": [], "timestamp": 7},
    ]
    lines = "".join(json.dumps({**record, "partition": 1}) + "\n" for record in records)
    assert produce(lines.encode(), "a", "--json").returncode == 0
    result = consume("a", "--from-beginning", "--json")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert found == [
        {"topic": "a", "offset": offset, **record, "partition": 1} for offset, record in enumerate(records)
    ]


def test_interrupting_a_producer_that_waits_ends_it_at_once(broker: FakeBroker) -> None:
    process = subprocess.Popen(
        [*MOLDAU, "produce", "a"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(b"first\n")
    process.stdin.flush()
    while "a" not in broker.topics or not broker.topics["a"].end_offset(0):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert process.communicate()[1] == b"\n"  # so that the prompt does not follow ^C


def test_a_refused_batch_is_told_with_its_lines(broker: FakeBroker) -> None:
    broker.add_topic("a")
    result = produce(b"1\n2\n3\n", "a", "--partition", "7")
    assert result.returncode == 1
    assert result.stderr.decode() == (
        "moldau: lines 1 to 3: UNKNOWN_TOPIC_OR_PARTITION: topic 'a' has no partition 7 (it has 1)\n"
    )


def test_a_line_without_end_is_told_with_its_number(broker: FakeBroker) -> None:
    result = produce(b"one\n" + bytes(LINE_BYTES_MAX + (1 << 20)), "a")
    assert result.returncode == 1
    assert result.stderr.decode() == (
        f"moldau: line 2 has more than {LINE_BYTES_MAX} bytes; the line before it is written\n"
    )


def test_bytes_of_the_command_line_are_written_as_they_are(broker: FakeBroker) -> None:
    header, separator = os.fsdecode(b"\xfe=\xff"), os.fsdecode(b"\xfd")
    assert produce(b"k\xfdv\n", "a", "--header", header, "--key-separator", separator).returncode == 0
    (record,) = written(broker, "a")
    assert (record.key, record.value, record.headers) == (b"k", b"v", ((os.fsdecode(b"\xfe"), b"\xff"),))


@pytest.fixture
def filled(broker: FakeBroker) -> FakeBroker:
    broker.add_topic("a", 2)
    lines = b'{"key":"k1","value":"v1","headers":{"h":"x"},"partition":0,"timestamp":1000}\n'
    lines += b'{"value":"v2","partition":0,"timestamp":2000}\n'
    assert produce(lines, "a", "--json").returncode == 0
    assert produce(b'{"key":"k3","partition":0,"timestamp":3000}\n', "a", "--json").returncode == 0
    return broker


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["--to-end"], "v1\nv2\nnull\n"),
        (["--until-offset", "1", "--partition", "0"], "v1\n"),
        (["--until-offset", "0"], ""),
        (["--until-timestamp", "2500"], "v1\nv2\n"),
        (["--until-timestamp", "9000"], "v1\nv2\nnull\n"),
        (["--to-end", "--max-messages", "2"], "v1\nv2\n"),
        (["--to-end", "--match-key", "^k[1-2]"], "v1\n"),
        (["--to-end", "--match-header", "h=x"], "v1\n"),
        (["--to-end", "--match-key", ".", "--max-messages", "2", "--key"], "k1\tv1\nk3\tnull\n"),
    ],
)
def test_consuming_ends_by_itself(filled: FakeBroker, arguments: list[str], output: str) -> None:
    result = moldau("consume", "a", "--from-beginning", *arguments)
    assert (result.exit_code, result.stdout, result.exception) == (0, output, None)


def test_the_end_is_where_it_was_when_it_began(filled: FakeBroker) -> None:
    assert moldau("consume", "a", "--to-end").stdout == ""  # it starts there
    more = b"".join(b'{"value":"%d","partition":1}\n' % number for number in range(300))
    assert produce(more, "a", "--json").returncode == 0
    result = moldau("consume", "a", "--from-beginning", "--to-end")
    assert sorted(result.stdout.split()) == sorted(["v1", "v2", "null", *map(str, range(300))])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--follow", "--to-end"], "give one of --follow, --to-end, --until-offset and --until-timestamp"),
        (["--match-key", "("], "'(' is no regular expression"),
        (["--match-header", "=x"], "'=x' names no header"),
        (["--match-json", "a b"], "'a b' is neither PATH nor PATH=VALUE"),
    ],
)
def test_stops_and_filters_that_are_none(filled: FakeBroker, arguments: list[str], message: str) -> None:
    result = moldau("consume", "a", *arguments)
    assert result.exit_code == 2 and message in result.stderr


def test_a_time_to_come_is_no_end(filled: FakeBroker) -> None:
    result = moldau("consume", "a", "--until-timestamp", "9999-01-01T00:00:00")
    assert result.exit_code == 1 and "--until-timestamp is still to come" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["--from-beginning"], "v1\nv2\nnull\n"),
        (["--from-beginning", "--key"], "k1\tv1\nnull\tv2\nk3\tnull\n"),
        (
            ["--offset", "earliest", "--headers", "--key", "--key-separator", "|", "--max-messages", "2"],
            "h:x|k1|v1\nNO_HEADERS|null|v2\n",
        ),
        (["--partition", "0", "--offset", "1"], "v2\nnull\n"),
        (["--partition", "1", "--from-beginning"], ""),
        (["--timestamp", "2500"], "null\n"),
        (["--timestamp", "1970-01-01T00:00:02.500+00:00"], "null\n"),
        (["--timestamp", "9000"], ""),
        ([], ""),
    ],
)
def test_records_are_printed(filled: FakeBroker, arguments: list[str], output: str) -> None:
    result = consume("a", *arguments)
    assert (result.exit_code, result.stdout) == (0, output)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["nope"],
            "moldau: UNKNOWN_TOPIC_OR_PARTITION: there is no topic 'nope' ('moldau topic list' shows "
            "what is there)\n",
        ),
        (["a", "--partition", "2"], "topic 'a' has no partition 2 (it has 2)\n"),
        (
            ["a", "--partition", "0", "--offset", "4"],
            "OFFSET_OUT_OF_RANGE: partition a-0 begins at 0 and ends at 3, offset 4 is not in it\n",
        ),
    ],
)
def test_what_cannot_be_consumed_is_told(filled: FakeBroker, arguments: list[str], message: str) -> None:
    result = consume(*arguments)
    assert result.exit_code == 1
    assert result.stderr.endswith(message)


def test_time_that_is_up_while_reading_fails_is_no_end_of_the_records(filled: FakeBroker) -> None:
    filled.overrides[ApiKey.FETCH] = lambda _: FetchResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    result = consume("a", "--from-beginning")
    assert result.exit_code == 1
    assert result.stderr.startswith("moldau: KAFKA_STORAGE_ERROR: fetch from node ")


@pytest.mark.parametrize("timeout", ["0", "-1", "nan", "inf", "soon"])
def test_a_timeout_is_a_time(timeout: str) -> None:
    result = moldau("consume", "a", "--timeout", timeout)
    assert result.exit_code == 2
    assert f"{timeout!r} is no time above 0" in result.stderr


def test_a_reader_that_goes_away_ends_it_though_nothing_comes(filled: FakeBroker) -> None:
    process = subprocess.Popen(
        [*MOLDAU, "consume", "a", "--from-beginning"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"v1\n"
    process.stdout.close()
    process.stdout = None
    assert process.communicate(timeout=30)[1] == b""
    assert process.returncode == 141
