"""JoinGroup: who is taken in, when a rebalance begins and ends, and what each is told of it."""

from __future__ import annotations

import pytest

from moldau.groups.classic.group import ClassicState
from moldau.groups.classic.joining import NEW_MEMBER_TIMEOUT_MS
from moldau.wire.errors import ErrorCode, KafkaError
from tests.groups.classic.classic_members import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    ClassicDriver,
    error_of,
    subscription,
)

DELAY_MS = 3000


@pytest.fixture
def driver() -> ClassicDriver:
    return ClassicDriver()


class TestNewMembers:
    def test_a_new_member_is_given_an_id_to_join_with(self, driver: ClassicDriver) -> None:
        told = driver.send_join("").result()
        assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert told.member_id.startswith("client-") and len(told.member_id) == len("client-") + 36
        assert driver.group().state is ClassicState.EMPTY and not driver.group().members

    def test_before_version_4_it_joins_at_once(self, driver: ClassicDriver) -> None:
        joined = driver.send_join("", version=3)
        driver.advance(DELAY_MS)
        assert joined.result().error_code == ErrorCode.NONE
        assert joined.result().member_id == joined.result().leader

    def test_an_id_that_is_not_used_for_a_session_is_forgotten(self, driver: ClassicDriver) -> None:
        member_id = driver.send_join("").result().member_id
        driver.advance(SESSION_MS)
        assert error_of(driver.send_join(member_id)) == ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.timer_count == 0

    def test_a_rebalance_waits_for_those_who_were_given_an_id(self, driver: ClassicDriver) -> None:
        [first] = driver.settle(1)
        pending = driver.send_join("").result().member_id
        rejoined = driver.send_join(first)
        assert driver.group().state is ClassicState.PREPARING_REBALANCE and not rejoined.is_done
        driver.send_join(pending)
        assert rejoined.result().generation_id == 2 and len(rejoined.result().members) == 2

    def test_a_rebalance_goes_on_when_an_id_was_not_used(self, driver: ClassicDriver) -> None:
        [first] = driver.settle(1)
        driver.send_join("")
        rejoined = driver.send_join(first)
        driver.advance(SESSION_MS)
        assert rejoined.result().generation_id == 2

    def test_an_id_is_no_good_for_a_static_member(self, driver: ClassicDriver) -> None:
        pending = driver.send_join("").result().member_id
        refused = driver.send_join(pending, instance_id="one")
        assert error_of(refused) == ErrorCode.UNKNOWN_SERVER_ERROR

    def test_a_new_member_that_waits_too_long_is_let_go(self, driver: ClassicDriver) -> None:
        """It does not know its id yet: what it sends next is another join."""
        driver.settle(1, session_ms=1_800_000, rebalance_ms=1_800_000)
        joined = driver.send_join("", version=3, session_ms=1_800_000, rebalance_ms=1_800_000)
        driver.advance(NEW_MEMBER_TIMEOUT_MS - 1)
        assert not joined.is_done
        driver.advance(1)
        assert error_of(joined) == ErrorCode.UNKNOWN_MEMBER_ID and joined.result().member_id == ""

    def test_a_group_is_not_made_for_someone_with_an_id(self, driver: ClassicDriver) -> None:
        refused = driver.send_join("from-elsewhere")
        assert error_of(refused) == ErrorCode.UNKNOWN_MEMBER_ID
        assert refused.result().member_id == "from-elsewhere" and driver.log == []

    def test_a_group_that_cannot_be_written_is_none(self, driver: ClassicDriver) -> None:
        driver.write_failure = KafkaError(ErrorCode.NOT_COORDINATOR)
        for version in (3, 9):
            assert error_of(driver.send_join("", version=version)) == ErrorCode.NOT_COORDINATOR
        assert driver.shard.groups.get(GROUP) is None and driver.timer_count == 0

    @pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
    def test_session_timeouts_have_limits(self, driver: ClassicDriver, session_ms: int) -> None:
        refused = driver.send_join("", session_ms=session_ms)
        assert error_of(refused) == ErrorCode.INVALID_SESSION_TIMEOUT and driver.log == []

    def test_version_0_rebalances_within_a_session(self, driver: ClassicDriver) -> None:
        driver.send_join("", version=0, rebalance_ms=-1)
        assert driver.group().rebalance_timeout_ms() == SESSION_MS

    def test_what_two_joins_of_a_new_group_wait_for_is_one_commit(self, driver: ClassicDriver) -> None:
        driver.is_committing = False
        first, second = driver.send_join(""), driver.send_join("")
        assert not first.is_done and not second.is_done
        driver.commit()
        assert first.result().member_id in driver.group().pending_members
        assert second.result().member_id in driver.group().pending_members
        assert len(driver.log) == 1

    def test_a_group_that_was_deleted_before_its_first_join_went_on(self, driver: ClassicDriver) -> None:
        driver.is_committing = False
        joined = driver.send_join("")
        driver.delete()
        driver.commit()
        assert error_of(joined) == ErrorCode.COORDINATOR_NOT_AVAILABLE


class TestInitialRebalance:
    def test_it_is_put_off_once_for_who_comes_alone(self, driver: ClassicDriver) -> None:
        _, joined = driver.send_new()
        driver.advance(DELAY_MS - 1)
        assert not joined.is_done
        driver.advance(1)
        assert joined.result().generation_id == 1

    def test_it_is_put_off_again_as_long_as_more_come(self, driver: ClassicDriver) -> None:
        _, first = driver.send_new()
        for _ in range(4):
            driver.advance(DELAY_MS - 1)
            driver.send_new()
            driver.advance(1)
        assert not first.is_done
        driver.advance(DELAY_MS)
        assert len(first.result().members) == 5

    def test_it_is_put_off_no_longer_than_a_rebalance_may_take(self, driver: ClassicDriver) -> None:
        _, first = driver.send_new(rebalance_ms=7000)
        begun_ms = driver.now_ms
        while not first.is_done:
            driver.send_new(rebalance_ms=7000)
            driver.advance(500)
        assert driver.now_ms - begun_ms == 7000

    def test_without_a_delay_it_is_over_at_once(self) -> None:
        driver = ClassicDriver(group_initial_rebalance_delay_ms=0)
        _, joined = driver.send_new()
        driver.advance(0)
        assert joined.result().generation_id == 1

    def test_a_group_that_became_empty_begins_like_a_new_one(self, driver: ClassicDriver) -> None:
        [member] = driver.settle(1)
        driver.leave(member)
        _, joined = driver.send_new()
        driver.advance(DELAY_MS - 1)
        assert not joined.is_done
        driver.advance(1)
        assert joined.result().generation_id == 3  # the empty generation was the second

    def test_when_the_only_one_waited_for_has_gone_it_is_over(self, driver: ClassicDriver) -> None:
        _, joined = driver.send_new(rebalance_ms=SESSION_MS * 2)
        pending = driver.send_join("", session_ms=6000).result().member_id
        for _ in range(3):  # a newcomer each time, until the session of the pending one is over
            driver.advance(1999)
            driver.send_new(rebalance_ms=SESSION_MS * 2)
        driver.advance(6000 - 3 * 1999)
        assert pending not in driver.group().pending_members
        assert joined.result().generation_id == 1


class TestRebalances:
    def test_the_leader_is_told_of_all_members_and_the_others_of_none(self, driver: ClassicDriver) -> None:
        joins = [driver.send_new(protocols=[("range", bytes([n]))]) for n in range(3)]
        driver.advance(2 * DELAY_MS)
        leader, *others = [join.result() for _, join in joins]
        assert leader.leader == leader.member_id == joins[0][0]
        assert {each.member_id: each.metadata for each in leader.members} == {
            member_id: bytes([n]) for n, (member_id, _) in enumerate(joins)
        }
        assert all(other.members == [] and other.leader == leader.member_id for other in others)
        assert {each.protocol_name for each in (leader, *others)} == {"range"}
        assert {each.protocol_type for each in (leader, *others)} == {"consumer"}

    def test_a_new_member_makes_the_others_join_again(self, driver: ClassicDriver) -> None:
        first, second = driver.settle(2)
        third, joined = driver.send_new()
        assert driver.beat(first, 1) == driver.beat(second, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        driver.send_join(second)
        rejoined = driver.send_join(first)
        assert rejoined.result().generation_id == joined.result().generation_id == 2
        assert {each.member_id for each in rejoined.result().members} == {first, second, third}

    def test_who_does_not_join_in_time_is_out(self, driver: ClassicDriver) -> None:
        first, second = driver.settle(2, session_ms=30_000)
        _, joined = driver.send_new(session_ms=30_000)
        driver.send_join(second)
        for _ in range(5):
            driver.advance(REBALANCE_MS // 6)
            driver.beat(first, 1)
        assert not joined.is_done
        driver.advance(REBALANCE_MS // 6)
        assert joined.result().leader == second  # the leader was not there any more
        assert driver.beat(first, 1) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_the_slowest_member_says_how_long_it_may_take(self, driver: ClassicDriver) -> None:
        slow, quick = driver.settle(2, rebalance_ms=20_000, session_ms=30_000)
        driver.send_join(quick, rebalance_ms=5000, session_ms=30_000, protocols=[("range", b"new")])
        driver.advance(19_999)
        assert slow in driver.group().members
        driver.advance(1)
        assert slow not in driver.group().members

    def test_a_member_with_the_same_metadata_is_told_again_what_it_may_have_missed(
        self, driver: ClassicDriver
    ) -> None:
        (leader, first), (other, _) = driver.send_new(), driver.send_new()
        driver.advance(2 * DELAY_MS)
        assert driver.group().state is ClassicState.COMPLETING_REBALANCE
        assert driver.send_join(leader).result() == first.result()
        assert driver.send_join(other).result().members == []
        assert driver.group().state is ClassicState.COMPLETING_REBALANCE

    def test_new_metadata_while_the_leader_assigns_begins_another_rebalance(
        self, driver: ClassicDriver
    ) -> None:
        (_, _), (other, _) = driver.send_new(), driver.send_new()
        driver.advance(2 * DELAY_MS)
        waiting = driver.send_sync(other, 1)
        driver.send_join(other, protocols=[("range", b"new")])
        assert error_of(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
        assert driver.group().state is ClassicState.PREPARING_REBALANCE

    def test_a_follower_with_the_same_metadata_changes_nothing(self, driver: ClassicDriver) -> None:
        leader, other = driver.settle(2)
        told = driver.send_join(other).result()
        assert (told.generation_id, told.leader, told.members) == (1, leader, [])
        assert driver.group().state is ClassicState.STABLE

    def test_a_follower_with_new_metadata_begins_a_rebalance(self, driver: ClassicDriver) -> None:
        _, other = driver.settle(2)
        driver.send_join(other, protocols=[("range", b"new")])
        assert driver.group().state is ClassicState.PREPARING_REBALANCE

    def test_a_leader_that_joins_again_begins_a_rebalance(self, driver: ClassicDriver) -> None:
        leader, _ = driver.settle(2)
        driver.send_join(leader)
        assert driver.group().state is ClassicState.PREPARING_REBALANCE

    def test_a_lone_leader_that_joins_again_is_alone_in_the_next_generation(
        self, driver: ClassicDriver
    ) -> None:
        [leader] = driver.settle(1)
        assert driver.send_join(leader).result().generation_id == 2

    def test_a_join_sent_twice_is_answered_twice(self, driver: ClassicDriver) -> None:
        leader, other = driver.settle(2)
        lost = driver.send_join(other, protocols=[("range", b"new")])
        again = driver.send_join(other, protocols=[("range", b"new")])
        assert error_of(lost) == ErrorCode.REBALANCE_IN_PROGRESS
        driver.send_join(leader)
        assert again.result().generation_id == 2

    def test_an_unknown_member_of_a_group_is_told_so(self, driver: ClassicDriver) -> None:
        driver.settle(1)
        refused = driver.send_join("nobody")
        assert error_of(refused) == ErrorCode.UNKNOWN_MEMBER_ID
        assert refused.result().member_id == "nobody" and refused.result().protocol_name == ""

    def test_a_former_member_of_an_empty_group_is_unknown(self, driver: ClassicDriver) -> None:
        [member] = driver.settle(1)
        driver.leave(member)
        assert error_of(driver.send_join(member)) == ErrorCode.UNKNOWN_MEMBER_ID


class TestProtocols:
    def test_members_agree_on_what_most_like_best_of_what_all_know(self, driver: ClassicDriver) -> None:
        both = [("sticky", b"s"), ("range", b"r")]
        joins = [
            driver.send_new(protocols=protocols)[1]
            for protocols in ([*both, ("own", b"")], [("range", b"r"), ("sticky", b"s")], both)
        ]
        driver.advance(2 * DELAY_MS)
        assert {join.result().protocol_name for join in joins} == {"sticky"}
        assert [each.metadata for each in joins[0].result().members] == [b"s"] * 3

    def test_someone_who_shares_no_protocol_is_refused(self, driver: ClassicDriver) -> None:
        driver.settle(1, protocols=[("range", b""), ("sticky", b"")])
        for version in (3, 9):
            refused = driver.send_join("", protocols=[("other", b"")], version=version)
            assert error_of(refused) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert driver.group().state is ClassicState.STABLE

    def test_another_protocol_type_is_refused_until_the_group_is_empty(self, driver: ClassicDriver) -> None:
        [member] = driver.settle(1)
        refused = driver.send_join("", protocol_type="connect")
        assert error_of(refused) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        driver.leave(member)
        driver.send_join("", protocol_type="connect", version=3)
        assert driver.group().protocol_type == "connect"

    @pytest.mark.parametrize(("type", "protocols"), [("", [("range", b"")]), ("consumer", [])])
    def test_nothing_to_agree_on_is_refused(
        self, driver: ClassicDriver, type: str, protocols: list[tuple[str, bytes]]
    ) -> None:
        refused = driver.send_join("", protocol_type=type, protocols=protocols)
        assert error_of(refused) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_a_protocol_named_twice_counts_once(self, driver: ClassicDriver) -> None:
        _, joined = driver.send_new(protocols=[("range", b"1"), ("range", b"2")])
        driver.advance(DELAY_MS)
        assert joined.result().protocol_name == "range"
        assert joined.result().members[0].metadata == b"1"

    def test_the_topics_of_consumers_are_read_from_their_metadata(self, driver: ClassicDriver) -> None:
        for topics in (("a", "b"), ("b", "c")):
            driver.send_new(protocols=[("range", subscription(*topics))])
        assert driver.group().is_subscribed_to("z")  # nobody knows yet
        driver.advance(2 * DELAY_MS)
        assert driver.group().subscribed_topics == {"a", "b", "c"}
        assert not driver.group().is_subscribed_to("z")

    @pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\0\0\0\0\2\0\1a"])
    def test_of_metadata_that_cannot_be_read_no_topic_is_known(
        self, driver: ClassicDriver, metadata: bytes
    ) -> None:
        driver.settle(1, protocols=[("range", metadata)])
        assert driver.group().subscribed_topics is None
        assert driver.group().is_subscribed_to("any")

    def test_what_others_than_consumers_agree_on_is_their_own(self, driver: ClassicDriver) -> None:
        driver.send_join("", protocol_type="connect", protocols=[("x", subscription("a"))], version=3)
        driver.advance(DELAY_MS)
        assert not driver.group().is_subscribed_to("a")


class TestGroupMaxSize:
    def test_a_full_group_takes_no_more(self) -> None:
        driver = ClassicDriver(group_max_size=2)
        first, second = driver.settle(2)
        for version in (3, 9):
            refused = driver.send_join("", version=version)
            assert error_of(refused) == ErrorCode.GROUP_MAX_SIZE_REACHED
            assert refused.result().member_id == ""
        assert driver.send_join(second).result().error_code == ErrorCode.NONE
        assert driver.beat(first, 1) == ErrorCode.NONE

    def test_those_who_were_given_ids_do_not_count_until_they_join(self) -> None:
        driver = ClassicDriver(group_max_size=1)
        ids = [driver.send_join("").result().member_id for _ in range(2)]
        joins = [driver.send_join(member_id) for member_id in ids]
        assert error_of(joins[1]) == ErrorCode.GROUP_MAX_SIZE_REACHED
        driver.advance(SESSION_MS)
        assert joins[0].result().error_code == ErrorCode.NONE

    def test_a_group_over_the_limit_rebalances_when_loaded_and_the_last_are_out(self) -> None:
        roomy = ClassicDriver()
        members = roomy.settle(3)
        driver = ClassicDriver(group_max_size=2)
        driver.log = roomy.log
        driver.reload()
        assert driver.group().state is ClassicState.PREPARING_REBALANCE
        joins = [driver.send_join(member) for member in members]
        assert error_of(joins[2]) == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert [error_of(join) for join in joins[:2]] == [ErrorCode.NONE] * 2
        assert list(driver.group().members) == members[:2]
