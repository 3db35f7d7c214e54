from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.group_plan import from_csv, to_csv
from moldau.cli.group_reset import date_and_time, duration
from moldau.client.cluster import TopicPartition
from moldau.records.builder import build_batch
from moldau.records.record import Record
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode
from moldau.wire.messages.list_groups import FetchedPartition, FetchedTopic, FetchingClient
from tests.cli.conftest import completed, moldau
from tests.client.fake_broker import FakeBroker
from tests.client.fake_groups import FakeGroups, FakeMember


@pytest.fixture
def groups(broker: FakeBroker) -> Iterator[FakeGroups]:
    """A topic `orders` of three partitions with ten records each, and a few groups."""
    topic = broker.add_topic("orders", 3)
    for log in topic.logs:
        log += build_batch([Record(0, 1000 + number, None, b"x") for number in range(10)])
    found = FakeGroups(broker)
    found.add("idle", committed={("orders", 0): 4, ("orders", 1): 10})
    found.add(
        "busy",
        type="consumer",
        state="Stable",
        committed={("orders", 2): 7},
        members=[FakeMember("m-1", "billing", {"orders": [1, 2]}, instance_id="i-1")],
        subscribed={"orders"},
    )
    found.add("old", state="Stable", members=[FakeMember("m-2", "audit", {"orders": [0]})])
    found.add("shared", type="share", protocol_type="share", committed={("orders", 1): 3})
    return found


# ---------------------------------------------------------------- list


def test_groups_are_listed(groups: FakeGroups) -> None:
    assert moldau("group", "list").output == (
        "GROUP   TYPE      STATE   PROTOCOL\n"
        "busy    Consumer  Stable  consumer\n"
        "idle    Classic   Empty   consumer\n"
        "old     Classic   Stable  consumer\n"
        "shared  Share     Empty   share\n"
    )


def test_groups_are_listed_by_state_and_type(groups: FakeGroups) -> None:
    def names(*options: str) -> list[str]:
        return [group["group"] for group in json.loads(moldau("group", "list", "--json", *options).stdout)]

    assert names("--state", "empty") == ["idle", "shared"]
    assert names("--type", "classic,Consumer", "--state", "STABLE") == ["busy", "old"]
    assert names("--state", "Dead") == []
    assert moldau("group", "list", "--type", "nope").exit_code == 2


def test_an_old_broker_tells_less(groups: FakeGroups) -> None:
    groups.is_old()
    (busy, *_) = json.loads(moldau("group", "list", "--json").stdout)
    assert busy == {"group": "busy", "type": None, "state": None, "protocol_type": "consumer"}
    result = moldau("group", "list", "--state", "empty")
    assert (result.exit_code, "states_filter" in result.stderr) == (1, True)


# ---------------------------------------------------------------- describe


def test_offsets_and_lag_are_described(groups: FakeGroups) -> None:
    result = moldau("group", "describe", "busy", "idle", "shared")
    assert (result.exit_code, result.output) == (
        0,
        "group busy  Consumer  Stable  1 member\n"
        "  TOPIC   PARTITION  CURRENT OFFSET  LOG END OFFSET  LAG  HOST       CLIENT\n"
        "  orders          1               -              10    -  /10.0.0.1  billing\n"
        "  orders          2               7              10    3  /10.0.0.1  billing\n"
        "\n"
        "group idle  Classic  Empty  no active members\n"
        "  TOPIC   PARTITION  CURRENT OFFSET  LOG END OFFSET  LAG  HOST  CLIENT\n"
        "  orders          0               4              10    6  -     -\n"
        "  orders          1              10              10    0  -     -\n"
        "\n"
        "group shared  Share  Empty  no active members\n"
        "  TOPIC   PARTITION  START OFFSET  LOG END OFFSET  LAG\n"
        "  orders          1             3              10    1\n",
    )


def test_members_are_described(groups: FakeGroups) -> None:
    assert moldau("group", "describe", "busy", "old", "--members").output == (
        "group busy  Consumer  Stable  1 member\n"
        "  MEMBER  INSTANCE  HOST       CLIENT   PARTITIONS\n"
        "  m-1     i-1       /10.0.0.1  billing           2\n"
        "\n"
        "group old  Classic  Stable  1 member\n"
        "  MEMBER  HOST       CLIENT  PARTITIONS\n"
        "  m-2     /10.0.0.1  audit            1\n"
    )
    assert moldau("group", "describe", "busy", "old", "--members", "--verbose").output == (
        "group busy  Consumer  Stable  1 member\n"
        "  MEMBER  INSTANCE  HOST       CLIENT   PARTITIONS  EPOCH  ASSIGNMENT  TARGET\n"
        "  m-1     i-1       /10.0.0.1  billing           2      4  orders:1,2  orders:1,2\n"
        "\n"
        "group old  Classic  Stable  1 member\n"
        "  MEMBER  HOST       CLIENT  PARTITIONS  ASSIGNMENT\n"
        "  m-2     /10.0.0.1  audit            1  orders:0\n"
    )


def test_states_are_described(groups: FakeGroups) -> None:
    where = f"127.0.0.1:{groups.broker.port}"
    assert moldau("group", "describe", "busy", "old", "--state", "--verbose").output == (
        f"GROUP  TYPE      STATE   ASSIGNOR  {'COORDINATOR':{len(where)}}  NODE  MEMBERS"
        "  EPOCH  TARGET EPOCH\n"
        f"busy   Consumer  Stable  uniform   {where}     1        1      5             4\n"
        f"old    Classic   Stable  range     {where}     1        1      -             -\n"
    )


def test_a_description_as_json_has_everything(groups: FakeGroups) -> None:
    (busy,) = json.loads(moldau("group", "describe", "busy", "--json").stdout)
    assert busy == {
        "group": "busy",
        "type": "Consumer",
        "state": "Stable",
        "protocol_type": "consumer",
        "assignor": "uniform",
        "coordinator": {"node_id": 1, "host": "127.0.0.1", "port": groups.broker.port},
        "epoch": 5,
        "target_epoch": 4,
        "members": [
            {
                "member_id": "m-1",
                "instance_id": "i-1",
                "client_id": "billing",
                "host": "/10.0.0.1",
                "epoch": 4,
                "assignment": {"orders": [1, 2]},
                "target": {"orders": [1, 2]},
                "upgraded": True,
            }
        ],
        "offsets": [
            {
                "topic": "orders",
                "partition": index,
                "current_offset": current,
                "log_end_offset": 10,
                "lag": lag,
                "member_id": "m-1",
                "host": "/10.0.0.1",
                "client_id": "billing",
            }
            for index, current, lag in ((1, None, None), (2, 7, 3))
        ],
    }


def test_without_names_all_groups_are_described_that_can_be(groups: FakeGroups) -> None:
    groups.add("app", type="streams", protocol_type="streams")
    result = moldau("group", "describe", "--members", "--json")
    described = json.loads(result.stdout)
    assert (result.exit_code, moldau("group", "lag").exit_code) == (0, 0)
    assert [group["group"] for group in described] == ["busy", "idle", "old", "shared"]
    assert "offsets" not in described[0]


def test_what_is_committed_for_a_topic_that_is_gone_is_told(groups: FakeGroups) -> None:
    groups.groups["idle"].committed = {("gone", 0): 5, ("orders", 7): 5}
    (idle,) = json.loads(moldau("group", "describe", "idle", "--json").stdout)
    told = [
        (row["topic"], row["current_offset"], row["log_end_offset"], row["lag"]) for row in idle["offsets"]
    ]
    assert told == [("gone", 5, None, None), ("orders", 5, None, None)]


@pytest.mark.parametrize("is_old", [False, True])
def test_a_group_that_is_not_there_is_an_error_after_the_others(groups: FakeGroups, is_old: bool) -> None:
    if is_old:
        groups.is_old()
    result = moldau("group", "describe", "nope", "idle")
    assert result.exit_code == 1
    assert "group idle  Classic  Empty" in result.stdout
    assert result.stderr == "moldau: GROUP_ID_NOT_FOUND: there is no group 'nope'\n"


def test_what_passes_is_tried_again(groups: FakeGroups) -> None:
    groups.passing = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert moldau("group", "describe", "idle", "--members").exit_code == 0
    assert len(groups.broker.asked(ApiKey.FIND_COORDINATOR)) == 3


def test_groups_are_asked_for_together(groups: FakeGroups) -> None:
    moldau("group", "describe", "idle", "old")
    assert len(groups.broker.asked(ApiKey.FIND_COORDINATOR)) == 2  # for the groups, then for their offsets
    assert [request.groups for request in groups.broker.asked(ApiKey.DESCRIBE_GROUPS)] == [["idle", "old"]]
    assert len(groups.broker.asked(ApiKey.OFFSET_FETCH)) == 1


# ---------------------------------------------------------------- lag


def test_lag_is_told_of_the_one_most_behind_first(groups: FakeGroups) -> None:
    result = moldau("group", "lag")
    assert result.exit_code == 0
    assert result.stdout == (
        "GROUP   STATE   TOPIC   PARTITIONS  COMMITTED  LAG\n"
        "idle    Empty   orders           2          2    6\n"
        "busy    Stable  orders           2          1    3\n"
        "shared  Empty   orders           1          1    1\n"
        "old     Stable  orders           1          0    -\n"
    )
    assert result.stderr == ("moldau: who reads without committing is not shown: these brokers do not tell\n")


def test_lag_is_told_of_clients_that_commit_nothing(groups: FakeGroups) -> None:
    def client(client_id: str, host: str, index: int, position: int) -> FetchingClient:
        partition = FetchedPartition(index=index, position=position, high_watermark=10, age_ms=1234)
        return FetchingClient(
            client_id=client_id, host=host, topics=[FetchedTopic(name="orders", partitions=[partition])]
        )

    groups.clients = [client("spark-1", "10.0.0.9", 0, 8), client("billing", "10.0.0.1", 1, 10)]
    result = moldau("group", "lag", "--partitions")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.partition("\n\n")[2] == (
        "CLIENT   HOST      GROUP  TOPIC   PARTITION  POSITION  HIGH WATERMARK  LAST FETCH  LAG\n"
        "spark-1  10.0.0.9  -      orders          0         8              10  1.2 s ago     2\n"
        "billing  10.0.0.1  busy   orders          1        10              10  1.2 s ago     0\n"
    )
    of_busy = json.loads(moldau("group", "lag", "busy", "--json").stdout)
    assert [(client["client_id"], client["group"]) for client in of_busy["clients"]] == [("billing", "busy")]
    assert [(row["partition"], row["lag"]) for row in of_busy["groups"]] == [(1, None), (2, 3)]


def test_an_old_broker_is_not_asked_who_reads(groups: FakeGroups) -> None:
    groups.is_old()
    assert json.loads(moldau("group", "lag", "idle", "--json").stdout)["clients"] is None


# ---------------------------------------------------------------- reset-offsets


def test_a_reset_changes_nothing_by_default(groups: FakeGroups) -> None:
    before = dict(groups.groups["idle"].committed)
    result = moldau("group", "reset-offsets", "idle", "--all-topics", "--to-earliest")
    assert (result.exit_code, result.stdout) == (
        0,
        "GROUP  TOPIC   PARTITION  CURRENT OFFSET  NEW OFFSET\n"
        "idle   orders          0               4           0\n"
        "idle   orders          1              10           0\n",
    )
    assert result.stderr == "moldau: nothing has been changed: that takes --execute\n"
    assert groups.groups["idle"].committed == before


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ("--all-topics --to-earliest", {0: 0, 1: 0}),
        ("--topic orders --to-latest", {0: 10, 1: 10, 2: 10}),
        ("--topic orders --to-current", {0: 4, 1: 10, 2: 10}),
        ("--topic orders:0,2 --to-offset 6", {0: 6, 2: 6, 1: 10}),
        ("--topic orders:0 --topic orders:1 --shift-by -3", {0: 1, 1: 7}),
        ("--all-topics --to-datetime 1970-01-01T00:00:01.009", {0: 0, 1: 0}),
        ("--all-topics --to-datetime 1970-01-01T00:00:01.010Z", {0: 10, 1: 10}),
        ("--all-topics --by-duration P100000D", {0: 0, 1: 0}),
        ("--all-topics --by-duration PT1H", {0: 10, 1: 10}),
    ],
)
def test_groups_are_moved(groups: FakeGroups, options: str, offsets: dict[int, int]) -> None:
    assert moldau("group", "reset-offsets", "idle", *options.split(), "--execute").exit_code == 0
    assert groups.groups["idle"].committed == {("orders", index): offset for index, offset in offsets.items()}


def test_offsets_that_are_not_there_become_the_nearest(groups: FakeGroups) -> None:
    result = moldau(
        "group", "reset-offsets", "idle", "--topic", "orders:0", "--to-offset", "99", "--execute", "--json"
    )
    assert json.loads(result.stdout) == [
        {"group": "idle", "topic": "orders", "partition": 0, "current_offset": 4, "new_offset": 10}
    ]
    assert result.stderr == "moldau: partition orders-0 has no offset 99: it is moved to 10\n"
    moldau("group", "reset-offsets", "idle", "--topic", "orders:0", "--shift-by", "-99", "--execute")
    assert groups.groups["idle"].committed["orders", 0] == 0


def test_a_group_with_members_is_not_moved(groups: FakeGroups) -> None:
    result = moldau(
        "group", "reset-offsets", "busy", "idle", "--topic", "orders:0", "--to-latest", "--execute"
    )
    assert result.exit_code == 1
    assert result.stderr == (
        "moldau: group 'busy': NON_EMPTY_GROUP: it has to be inactive to be moved, and is Stable\n"
    )
    assert groups.groups["busy"].committed == {("orders", 2): 7}
    assert groups.groups["idle"].committed["orders", 0] == 10


def test_a_group_that_is_not_there_comes_to_be(groups: FakeGroups) -> None:
    moldau("group", "reset-offsets", "new", "--topic", "orders:1", "--to-offset", "5", "--execute")
    assert groups.groups["new"].committed == {("orders", 1): 5}


def test_share_groups_are_moved(groups: FakeGroups) -> None:
    moldau("group", "reset-offsets", "shared", "--all-topics", "--shift-by", "2", "--execute")
    assert groups.groups["shared"].committed == {("orders", 1): 5}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--topic orders --shift-by 1", "cannot shift partition orders-2: nothing is committed for it"),
        ("--topic nope --to-latest", "there is no topic 'nope'"),
        ("--topic orders:3 --to-latest", "topic 'orders' has no partition 3 (it has 3)"),
    ],
)
def test_what_cannot_be_is_refused(groups: FakeGroups, options: str, reason: str) -> None:
    before = dict(groups.groups["idle"].committed)
    result = moldau("group", "reset-offsets", "idle", *options.split(), "--execute")
    assert (result.exit_code, result.stdout) == (1, "")
    assert reason in result.stderr
    assert groups.groups["idle"].committed == before


@pytest.mark.parametrize(
    "options",
    [
        "idle --all-topics",
        "idle --all-topics --to-earliest --to-offset 0",
        "idle --to-earliest",
        "idle --all-topics --topic orders --to-earliest",
        "idle --topic orders:x --to-earliest",
        "idle --all-topics --to-earliest --execute --dry-run",
        "idle --all-topics --to-earliest --export --json",
        "--all-topics --to-earliest",
        "idle --all-groups --all-topics --to-earliest",
    ],
)
def test_a_wrong_command_line_is_refused(groups: FakeGroups, options: str) -> None:
    assert moldau("group", "reset-offsets", *options.split()).exit_code == 2


def test_a_plan_goes_out_and_comes_back(groups: FakeGroups, tmp_path: Path) -> None:
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    reset = ("group", "reset-offsets")
    one.write_text(moldau(*reset, "idle", "--all-topics", "--to-current", "--export").stdout)
    assert one.read_text() == "orders,0,4\norders,1,10\n"
    two.write_text(
        moldau(*reset, "idle", "new", "--topic", "orders:2", "--to-offset", "3", "--export").stdout
    )
    assert two.read_text() == "idle,orders,2,3\nnew,orders,2,3\n"
    assert moldau(*reset, "new", "--from-file", str(one), "--execute").exit_code == 0
    assert groups.groups["new"].committed == {("orders", 0): 4, ("orders", 1): 10}
    assert moldau(*reset, "new", "idle", "--from-file", str(two), "--execute").exit_code == 0
    assert groups.groups["idle"].committed["orders", 2] == groups.groups["new"].committed["orders", 2] == 3
    result = moldau(*reset, "idle", "new", "--from-file", str(one))
    assert (result.exit_code, result.stderr) == (
        1,
        f"moldau: {one}: line 1 is not group,topic,partition,offset\n",
    )
    assert "the file has no plan for it" in moldau(*reset, "third", "--from-file", str(two)).stderr


def test_all_groups_are_those_of_consumers(groups: FakeGroups) -> None:
    groups.add("connect-cluster", protocol_type="connect")
    groups.groups["old"].members.clear()
    groups.groups["old"].state = "Empty"
    result = moldau(
        "group", "reset-offsets", "--all-groups", "--topic", "orders:0", "--to-latest", "--export"
    )
    assert (result.exit_code, result.stdout) == (1, "idle,orders,0,10\nold,orders,0,10\n")
    assert "group 'busy'" in result.stderr


# ---------------------------------------------------------------- delete


def test_names_of_groups_are_completed(groups: FakeGroups) -> None:
    assert completed("moldau group describe i") == ["idle"]
    assert completed("moldau group reset-offsets nobody") == []


def test_groups_are_deleted(groups: FakeGroups) -> None:
    result = moldau("group", "delete", "busy", "nope", "idle")
    assert (result.exit_code, result.stdout) == (1, "deleted group idle\n")
    assert result.stderr == (
        "moldau: group 'busy': NON_EMPTY_GROUP: it has members\n"
        "moldau: GROUP_ID_NOT_FOUND: there is no group 'nope'\n"
    )
    again = moldau("group", "delete", "idle", "--if-exists", "--json")
    assert (again.exit_code, json.loads(again.stdout)) == (0, [])
    assert moldau("group", "delete").exit_code == 2
    assert set(groups.groups) == {"busy", "old", "shared"}


def test_committed_offsets_are_deleted(groups: FakeGroups) -> None:
    result = moldau("group", "delete-offsets", "idle", "--topic", "orders:1,9", "--topic", "nope")
    assert (result.exit_code, result.stdout) == (1, "deleted what group idle has committed for orders-1\n")
    assert result.stderr.count("UNKNOWN_TOPIC_OR_PARTITION") == 2
    assert groups.groups["idle"].committed == {("orders", 0): 4}
    result = moldau("group", "delete-offsets", "busy", "--topic", "orders:2")
    assert (result.exit_code, result.stderr) == (
        1,
        "moldau: GROUP_SUBSCRIBED_TO_TOPIC: partition orders-2\n",
    )
    assert moldau("group", "delete-offsets", "idle").exit_code == 2
    moldau("group", "delete-offsets", "shared", "--topic", "orders")
    assert groups.groups["shared"].committed == {}


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1H", 3_600_000),
        ("P1D", 86_400_000),
        ("P2DT3H4M5.678S", 183_845_678),
        ("pt15m", 900_000),
        ("-PT10S", -10_000),
        ("PT-10S", -10_000),
        ("PT0.5S", 500),
    ],
)
def test_durations_are_those_of_java(text: str, ms: int) -> None:
    assert duration(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "1h", "P1H", "PT1D", "P1DT", "P1Y", "PTS", "PT1.5H"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        duration(text)


def test_times_are_utc_unless_they_say_otherwise() -> None:
    assert date_and_time("2020-01-01T00:00:00.000") == date_and_time("2020-01-01T02:00:00+02:00")
    for text in ("2020-01-01", "yesterday", "2020-13-01T00:00:00"):
        with pytest.raises(click.BadParameter):
            date_and_time(text)


names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=40)


@given(st.dictionaries(names, st.dictionaries(st.tuples(names, st.integers(0)), st.integers(0), min_size=1)))
def test_a_plan_is_read_as_it_was_written(plans: dict[str, dict[tuple[str, int], int]]) -> None:
    written = {
        group: {TopicPartition(*place): offset for place, offset in plan.items()}
        for group, plan in plans.items()
    }
    assert from_csv(to_csv(written, with_groups=True).splitlines(), None) == written
    for group, plan in written.items():
        assert from_csv(to_csv({group: plan}, with_groups=False).splitlines(), group) == {group: plan}


def test_long_and_strange_names_are_quoted() -> None:
    plan = {TopicPartition("x" * 25, 0): 1}
    assert to_csv({'a"b': plan}, with_groups=True) == f'"a""b","{"x" * 25}",0,1\n'
