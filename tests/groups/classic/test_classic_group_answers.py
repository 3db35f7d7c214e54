"""What a classic group says to DescribeGroups, to offsets, and to who wants to delete it."""

from __future__ import annotations

import pytest

from moldau.groups.classic.group import ClassicGroup, ClassicState
from moldau.groups.group import Group, GroupType
from moldau.wire.errors import ErrorCode, KafkaError
from tests.groups.classic.classic_members import GROUP, ClassicDriver, subscription


@pytest.fixture
def driver() -> ClassicDriver:
    return ClassicDriver()


def code_of(call, *args: object, **options: object) -> ErrorCode:
    try:
        call(*args, **options)
    except KafkaError as failure:
        return failure.code
    return ErrorCode.NONE


def at(driver: ClassicDriver, state: ClassicState) -> ClassicGroup:
    """The group with one member in its first generation, or with one to come, or without any."""
    match state:
        case ClassicState.EMPTY:
            driver.leave(*driver.settle(1))
        case ClassicState.PREPARING_REBALANCE:
            driver.settle(1)
            driver.send_join("", version=3)
        case ClassicState.COMPLETING_REBALANCE:
            driver.send_new()
            driver.advance(3000)
        case ClassicState.STABLE:
            driver.settle(1)
    assert driver.group().state is state
    return driver.group()


LIVE = [state for state in ClassicState if state is not ClassicState.DEAD]


class TestDescribe:
    def test_a_stable_group_is_told_whole(self, driver: ClassicDriver) -> None:
        [member] = driver.settle(1, protocols=[("range", b"m")])
        told = driver.describe()
        assert (told.error_code, told.group_state) == (0, "Stable")
        assert (told.protocol_type, told.protocol_data) == ("consumer", "range")
        [described] = told.members
        assert (described.member_id, described.client_id, described.client_host) == (
            member,
            "client",
            "/127.0.0.1",
        )
        assert (described.member_metadata, described.member_assignment) == (b"m", b"part 0")

    def test_of_one_in_a_rebalance_the_metadata_is_not_told(self, driver: ClassicDriver) -> None:
        at(driver, ClassicState.PREPARING_REBALANCE)
        told = driver.describe()
        assert (told.group_state, told.protocol_data) == ("PreparingRebalance", "")
        assert [each.member_metadata for each in told.members] == [b"", b""]
        assert [each.member_assignment for each in told.members] == [b"part 0", b""]

    def test_one_without_members_is_told_without(self, driver: ClassicDriver) -> None:
        driver.shard.classic.create_group(GROUP)
        told = driver.describe()
        assert (told.group_state, told.protocol_type, told.members) == ("Empty", "", [])

    def test_one_that_is_not_there_is_dead(self, driver: ClassicDriver) -> None:
        told = driver.describe("none", version=5)
        assert (told.group_state, told.error_code) == ("Dead", 0)
        told = driver.describe("none", version=6)
        assert (told.group_state, told.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
        assert told.error_message == "Group none not found."


class TestOffsetCommits:
    @pytest.mark.parametrize("state", LIVE)
    @pytest.mark.parametrize("is_transactional", [False, True])
    def test_without_a_generation_the_group_has_to_be_empty(
        self, driver: ClassicDriver, state: ClassicState, is_transactional: bool
    ) -> None:
        group = at(driver, state)
        code = code_of(group.check_offset_commit, "", None, -1, is_transactional=is_transactional, version=9)
        is_fine = state is ClassicState.EMPTY or is_transactional
        assert code == (ErrorCode.NONE if is_fine else ErrorCode.UNKNOWN_MEMBER_ID)

    @pytest.mark.parametrize("state", LIVE)
    @pytest.mark.parametrize("is_transactional", [False, True])
    def test_a_member_may_commit_unless_the_leader_assigns(
        self, driver: ClassicDriver, state: ClassicState, is_transactional: bool
    ) -> None:
        group = at(driver, state)
        member = next(iter(group.members), "gone")
        code = code_of(
            group.check_offset_commit,
            member,
            None,
            group.generation,
            is_transactional=is_transactional,
            version=9,
        )
        if state is ClassicState.EMPTY:
            assert code == ErrorCode.UNKNOWN_MEMBER_ID
        elif state is ClassicState.COMPLETING_REBALANCE and not is_transactional:
            assert code == ErrorCode.REBALANCE_IN_PROGRESS
        else:
            assert code == ErrorCode.NONE

    @pytest.mark.parametrize(
        ("member_id", "instance_id", "generation", "code"),
        [
            ("right", "one", 1, ErrorCode.NONE),
            ("right", None, 1, ErrorCode.NONE),
            ("right", "one", 0, ErrorCode.ILLEGAL_GENERATION),
            ("right", "one", -1, ErrorCode.ILLEGAL_GENERATION),
            ("wrong", "one", 1, ErrorCode.FENCED_INSTANCE_ID),
            ("wrong", None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
            ("right", "two", 1, ErrorCode.UNKNOWN_MEMBER_ID),
            ("", "one", -1, ErrorCode.FENCED_INSTANCE_ID),
            ("", None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_what_it_says_of_itself_has_to_be_right(
        self,
        driver: ClassicDriver,
        member_id: str,
        instance_id: str | None,
        generation: int,
        code: ErrorCode,
    ) -> None:
        driver.send_join("", instance_id="one")
        driver.advance(3000)
        [right] = driver.sync_all(list(driver.group().members))
        member_id = right if member_id == "right" else member_id
        check = driver.group().check_offset_commit
        assert code_of(check, member_id, instance_id, generation, is_transactional=False, version=9) == code


class TestDeletion:
    @pytest.mark.parametrize("state", LIVE)
    def test_only_an_empty_group_may_be_deleted(self, driver: ClassicDriver, state: ClassicState) -> None:
        code = code_of(at(driver, state).check_delete)
        assert code == (ErrorCode.NONE if state is ClassicState.EMPTY else ErrorCode.NON_EMPTY_GROUP)

    @pytest.mark.parametrize("state", LIVE)
    def test_offsets_of_consumers_may_be_deleted_and_of_others_when_they_have_gone(
        self, driver: ClassicDriver, state: ClassicState
    ) -> None:
        group = at(driver, state)
        assert code_of(group.check_offset_delete) == ErrorCode.NONE
        group.protocol_type = "connect"
        code = code_of(group.check_offset_delete)
        assert code == (ErrorCode.NONE if state is ClassicState.EMPTY else ErrorCode.NON_EMPTY_GROUP)

    def test_a_tombstone_ends_the_group_and_everything_about_it(self, driver: ClassicDriver) -> None:
        pending = driver.send_join("").result().member_id
        driver.delete()
        assert driver.shard.groups.get(GROUP) is None and driver.timer_count == 0
        assert driver.replayed().groups.get(GROUP) is None
        assert driver.send_join(pending).result().error_code == ErrorCode.UNKNOWN_MEMBER_ID


class TestOffsetExpiry:
    def expiry(self, group: ClassicGroup, topic: str = "other") -> int | None:
        return group.offset_expiration_base_ms(topic, 17)

    def test_without_members_ever_it_counts_from_the_commit(self, driver: ClassicDriver) -> None:
        assert self.expiry(driver.shard.classic.create_group(GROUP)) == 17

    def test_it_counts_from_when_the_last_member_went(self, driver: ClassicDriver) -> None:
        group = at(driver, ClassicState.EMPTY)
        assert self.expiry(group) == group.state_since_ms == driver.now_ms

    def test_where_that_was_not_written_it_counts_from_the_commit(self) -> None:
        group = ClassicGroup(GROUP, protocol_type="connect")
        assert self.expiry(group) == 17

    def test_what_a_stable_group_does_not_read_expires(self, driver: ClassicDriver) -> None:
        driver.settle(1, protocols=[("range", subscription("read"))])
        assert self.expiry(driver.group(), "read") is None
        assert self.expiry(driver.group(), "other") == 17

    def test_in_a_rebalance_nothing_does(self, driver: ClassicDriver) -> None:
        driver.settle(1, protocols=[("range", subscription("read"))])
        driver.send_join("", version=3)
        assert self.expiry(driver.group()) is None

    def test_where_it_is_not_known_what_is_read_nothing_does(self, driver: ClassicDriver) -> None:
        driver.settle(1, protocols=[("range", b"")])
        assert self.expiry(driver.group()) is None

    def test_of_others_than_consumers_nothing_does_while_there_are_members(
        self, driver: ClassicDriver
    ) -> None:
        driver.settle(1, protocol_type="connect")
        assert self.expiry(driver.group()) is None

    def test_a_group_without_members_and_offsets_goes_by_itself(self) -> None:
        assert ClassicGroup(GROUP).should_expire()


def test_it_is_a_group_like_the_others() -> None:
    group: Group = ClassicGroup(GROUP)
    assert (group.type, group.type.value, group.protocol_type) == (GroupType.CLASSIC, "classic", "")
    assert group.state == "Empty" and group.is_empty()
    assert code_of(group.check_offset_fetch, None, -1) == ErrorCode.NONE
