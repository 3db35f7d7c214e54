"""A group that changes its protocol, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.groups.classic.group import ClassicGroup
from moldau.groups.consumer.embedded import read_assignment, write_assignment
from moldau.groups.consumer.group import ConsumerGroup
from moldau.groups.consumer.member import Member, MemberState
from moldau.wire.codec import encode
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from tests.groups.classic.classic_members import GROUP, REBALANCE_MS, SESSION_MS, ClassicDriver
from tests.groups.consumer.consumer_driver import INTERVAL_MS, ConsumerDriver, assigned

NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
AGAIN = ErrorCode.REBALANCE_IN_PROGRESS


class MixedDriver(ConsumerDriver):
    """Of members of both protocols. All classic ones read the topic "four"."""

    send_join = ClassicDriver.send_join
    send_sync = ClassicDriver.send_sync
    send_beat = ClassicDriver.send_beat

    @property
    def kind(self) -> type:
        return type(self.shard.groups.find(GROUP))

    @property
    def classic(self) -> ClassicGroup:
        group = self.shard.groups.find(GROUP)
        assert isinstance(group, ClassicGroup)
        return group

    def member(self, member_id: str) -> Member:
        return self.group.members[member_id]

    def send(self, member_id: str = "", owned: tuple[int, ...] = (), **options: Any) -> Any:
        subscription = ConsumerProtocolSubscription(
            topics=["four"],
            owned_partitions=[
                ConsumerProtocolSubscriptionTopicPartition(topic="four", partitions=list(owned))
            ],
        )
        metadata = bytes(encode(subscription, 1, bytearray(b"\x00\x01")))
        options.setdefault("protocols", [("range", metadata)])
        return self.send_join(member_id, **options)

    def new(self, **options: Any) -> tuple[str, Any]:
        member_id: str = self.send(**options).result().member_id
        return member_id, self.send(member_id, **options)

    def assignment(self, *partitions: int) -> bytes:
        return write_assignment({self.ids["four"]: partitions}, 1, self.environment.image)

    def begin_classic(self) -> str:
        """A classic group whose only member has all of the topic."""
        member_id, joined = self.new()
        self.advance(3000)
        generation = joined.result().generation_id
        self.send_sync(member_id, generation, {member_id: self.assignment(0, 1, 2, 3)}).result()
        return member_id


@pytest.fixture
def driver() -> MixedDriver:
    return MixedDriver({"four": 4})


def refusal(driver: MixedDriver) -> str | None:
    code, message = driver.failure("m", 0, topics=["four"], owned={}, rebalance_timeout_ms=1)
    assert code is NOT_FOUND
    assert driver.kind is ClassicGroup
    return message


# ------------------------------------------------------------ from classic to consumer


def test_members_stay_with_what_they_have(driver: MixedDriver) -> None:
    member_id = driver.begin_classic()
    driver.join("m", "four")
    assert driver.kind is ConsumerGroup
    member = driver.member(member_id)
    assert (member.epoch, member.state, member.is_classic) == (1, MemberState.STABLE, True)
    assert driver.topic_of(member_id, "four") == {0, 1, 2, 3}
    assert driver.target(member_id) == {driver.ids["four"]: {0, 1}}
    assert driver.replayed().groups.groups.keys() == {GROUP}


def test_who_waits_is_told_to_join_again(driver: MixedDriver) -> None:
    one = driver.begin_classic()
    _, waiting = driver.new()
    assert not waiting.is_done
    driver.join("m", "four")
    assert ErrorCode(waiting.result().error_code) is AGAIN
    assert set(driver.group.members) >= {one, "m"}


def test_who_waits_for_an_assignment_is_told_to_join_again(driver: MixedDriver) -> None:
    one, joined = driver.new()
    two, _ = driver.new()
    driver.advance(6000)
    follower = two if joined.result().leader == one else one
    waiting = driver.send_sync(follower, 1)
    assert not waiting.is_done
    driver.join("m", "four")
    assert ErrorCode(waiting.result().error_code) is AGAIN


def test_a_group_that_never_had_a_generation_is_one_from_its_first_epoch(driver: MixedDriver) -> None:
    member_id, waiting = driver.new()
    driver.join("m", "four")
    assert ErrorCode(waiting.result().error_code) is AGAIN
    assert driver.member(member_id).epoch == 1
    assert driver.group.epoch == 2


def test_the_sessions_of_classic_members_are_their_own(driver: MixedDriver) -> None:
    member_id = driver.begin_classic()
    driver.join("m", "four")
    driver.advance(SESSION_MS - 1)
    assert member_id in driver.group.members
    driver.advance(1)
    assert member_id not in driver.group.members


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_the_policy_may_not_allow_it(policy: str) -> None:
    driver = MixedDriver({"four": 4}, group_consumer_migration_policy=policy)
    driver.begin_classic()
    assert refusal(driver) == (
        f"Cannot upgrade classic group {GROUP} to consumer group because online upgrade is disabled."
    )


def test_groups_of_others_than_consumers_stay_what_they_are(driver: MixedDriver) -> None:
    driver.new(protocol_type="connect")
    driver.advance(3000)
    message = refusal(driver)
    assert message is not None and "does not use the consumer embedded protocol" in message


def test_a_group_that_would_be_too_large_stays_classic() -> None:
    driver = MixedDriver({"four": 4}, group_consumer_max_size=1)
    driver.new()
    driver.new()
    message = refusal(driver)
    assert message is not None and "exceeds the consumer group maximum size" in message


@pytest.mark.parametrize(
    ("assignment", "words"), [(b"\x00", "malformed"), (bytes(6) + b"\x00\x00\x00\x01x", "custom assignor")]
)
def test_what_cannot_be_read_is_not_lost(driver: MixedDriver, assignment: bytes, words: str) -> None:
    member_id, joined = driver.new()
    driver.advance(3000)
    driver.send_sync(member_id, joined.result().generation_id, {member_id: assignment}).result()
    message = refusal(driver)
    assert message is not None and words in message


# ------------------------------------------------------------ classic members of a consumer group


def test_a_classic_member_gives_up_by_joining_again(driver: MixedDriver) -> None:
    member_id = driver.begin_classic()
    driver.join("m", "four")
    assert driver.send_beat(member_id, 1).result().error_code == AGAIN
    joined = driver.send(member_id, owned=(0, 1, 2, 3)).result()
    assert (joined.generation_id, joined.leader, joined.members) == (1, "", [])
    assert driver.member(member_id).state is MemberState.UNREVOKED_PARTITIONS
    synced = driver.send_sync(member_id, 1).result()
    (topic,) = read_assignment(synced.assignment).assigned_partitions
    assert (topic.topic, topic.partitions) == ("four", [0, 1])
    assert driver.send_beat(member_id, 1).result().error_code == AGAIN
    assert driver.send(member_id, owned=(0, 1)).result().generation_id == 2
    driver.send_sync(member_id, 2).result()
    assert driver.send_beat(member_id, 2).result().error_code == ErrorCode.NONE
    assert assigned(driver.beat("m", 2)) == {driver.ids["four"]: {2, 3}}


def test_who_does_not_join_again_in_time_is_out(driver: MixedDriver) -> None:
    member_id = driver.begin_classic()
    driver.join("m", "four")
    for _ in range(REBALANCE_MS // 5000):
        assert driver.send_beat(member_id, 1).result().error_code == AGAIN
        assert member_id in driver.group.members
        driver.advance(5000)
        driver.beat("m", driver.member("m").epoch)
    assert member_id not in driver.group.members


def test_who_does_not_ask_for_its_assignment_in_time_is_out(driver: MixedDriver) -> None:
    driver.join("m", "four")
    member_id, joined = driver.new()
    generation = joined.result().generation_id
    for _ in range(REBALANCE_MS // 5000):
        assert member_id in driver.group.members
        driver.send_beat(member_id, generation)
        driver.beat("m", 2)
        driver.advance(5000)
    assert member_id not in driver.group.members


def test_a_new_classic_member_is_given_an_id_first(driver: MixedDriver) -> None:
    driver.join("m", "four")
    asked = driver.send().result()
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert asked.member_id not in driver.group.members
    joined = driver.send(asked.member_id).result()
    assert (joined.member_id, joined.protocol_type, joined.protocol_name) == (
        asked.member_id,
        "consumer",
        "range",
    )
    assert driver.send(version=3).result().error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": [("sticky", b"")]}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": [("range", b"\x00")]}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"instance_id": "none"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_not_join(driver: MixedDriver, options: dict[str, Any], code: ErrorCode) -> None:
    driver.join("m", "four")
    driver.new()
    answer = driver.send("x", **options).result()
    assert (answer.error_code, answer.member_id) == (code, "")


def test_a_session_that_is_too_long_is_refused(driver: MixedDriver) -> None:
    driver.join("m", "four")
    with pytest.raises(KafkaError) as caught:
        driver.send(session_ms=10_000_000).result()
    assert caught.value.code is ErrorCode.INVALID_SESSION_TIMEOUT


# ------------------------------------------------------------ from consumer to classic


def mixed(driver: MixedDriver) -> str:
    """A stable consumer group of "m" and of a classic member, whose id it gives."""
    driver.join("m", "four")
    driver.advance(INTERVAL_MS)
    member_id, _ = driver.new()
    driver.beat("m", 2)
    driver.beat("m", 2, owned={driver.ids["four"]: {0, 1}})
    driver.send(member_id)
    driver.send_sync(member_id, 3).result()
    assert driver.group.state == "Stable"
    return member_id


@pytest.mark.parametrize("leaves", [True, False])
def test_a_group_of_classic_members_only_is_classic(driver: MixedDriver, leaves: bool) -> None:
    member_id = mixed(driver)
    if leaves:
        driver.beat("m", -1)
    else:
        for _ in range(9):
            driver.send_beat(member_id, 3)
            driver.advance(5000)
    group = driver.classic
    assert (group.state, group.generation, group.protocol_name) == ("PreparingRebalance", 3, "range")
    (topic,) = read_assignment(group.members[member_id].assignment).assigned_partitions
    assert topic.partitions == [2, 3]
    assert driver.send_beat(member_id, 3).result().error_code == AGAIN
    assert driver.send(member_id).result().generation_id == 4


def test_it_is_classic_for_another_coordinator_too(driver: MixedDriver) -> None:
    member_id = mixed(driver)
    driver.beat("m", -1)
    driver.reload()
    assert set(driver.classic.members) == {member_id}
    driver.advance(SESSION_MS)
    assert driver.classic.is_empty()


def test_the_last_instance_that_comes_back_classic_makes_it_classic(driver: MixedDriver) -> None:
    driver.join("m", "four", instance_id="one")
    joined = driver.send(instance_id="one", owned=(0, 1, 2, 3)).result()
    assert driver.kind is ClassicGroup
    assert (driver.classic.state, joined.generation_id, driver.classic.generation) == ("Stable", 2, 2)
    assert driver.send_beat(joined.member_id, 2, instance_id="one").result().error_code == 0
    synced = driver.send_sync(joined.member_id, 2, instance_id="one").result()
    assert read_assignment(synced.assignment).assigned_partitions[0].partitions == [0, 1, 2, 3]


@pytest.mark.parametrize("options", [{"group_consumer_migration_policy": "upgrade"}, {"group_max_size": 1}])
def test_a_group_may_have_to_stay_a_consumer_group(options: dict[str, Any]) -> None:
    driver = MixedDriver({"four": 4}, **options)
    driver.join("m", "four")
    for _ in range(2):
        driver.new()
    driver.beat("m", -1)
    assert driver.kind is ConsumerGroup


def test_a_change_that_could_not_be_written_has_not_happened(driver: MixedDriver) -> None:
    member_id = mixed(driver)
    driver.write_failure = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answer = driver.beat("m", -1)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.kind is ConsumerGroup
    driver.write_failure = None
    assert driver.send_beat(member_id, 3).result().error_code == ErrorCode.NONE
    driver.beat("m", -1)
    assert driver.kind is ClassicGroup


def test_who_joins_before_the_change_is_committed_is_in_the_rebalance(driver: MixedDriver) -> None:
    member_id = mixed(driver)
    driver.is_committing = False
    driver.send_heartbeat("m", -1)
    waiting = driver.send(member_id)
    driver.commit()
    assert waiting.result().generation_id == 4
