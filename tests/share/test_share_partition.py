from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from moldau.share.batches import StateBatch
from moldau.share.partition import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    Acquired,
    Change,
    Limits,
    SharePartition,
)
from moldau.wire.errors import ErrorCode, KafkaError
from tests.share.share_samples import header

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
LIMITS = Limits(lock_duration_ms=1000, delivery_count_limit=5, record_locks_max=200)


class Harness:
    def __init__(self, start: int = 0, batches: Sequence[StateBatch] = (), limits: Limits = LIMITS) -> None:
        self.partition = SharePartition(start_offset=start, state_epoch=0, leader_epoch=0, batches=batches)
        self.limits = limits
        self.now_ms = 0

    def fetch(
        self,
        member: str,
        *log: tuple[int, int],
        records_max: int = 500,
        batch_size: int = 500,
        exact: bool = False,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> list[Acquired]:
        """From a log of these batches, as a leader reads it."""
        offset = self.partition.next_fetch_offset
        if not self.partition.can_acquire(self.limits):
            return []
        return self.partition.acquire(
            self.now_ms,
            member,
            offset,
            [header(first, last) for first, last in log if last >= offset],
            self.limits,
            records_max=records_max,
            batch_size=batch_size,
            is_record_limit=exact,
            aborted=aborted,
        )

    def begin(self, member: str, first: int, last: int, *types: int) -> Change:
        return self.partition.acknowledge(
            self.now_ms, member, [Acknowledgement(first, last, types)], self.limits
        )

    def complete(self, change: Change, *, is_written: bool = True) -> None:
        self.partition.complete(change, self.now_ms, self.limits, is_written=is_written)

    def acknowledge(self, member: str, first: int, last: int, *types: int) -> None:
        self.complete(self.begin(member, first, last, *types))

    def refusal(self, member: str, first: int, last: int, *types: int) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            self.begin(member, first, last, *types)
        return caught.value.code

    def expire(self, by_ms: int) -> Any:
        self.now_ms += by_ms
        return self.partition.expire(self.now_ms, self.limits)


def test_records_are_acquired_by_one_member_only() -> None:
    share = Harness()
    assert share.fetch("a", (0, 9)) == [Acquired(0, 9, 1)]
    assert share.fetch("b", (0, 9)) == []
    assert share.fetch("b", (0, 9), (10, 14)) == [Acquired(10, 14, 1)]
    assert share.partition.next_fetch_offset == 15


def test_batches_are_not_torn_unless_a_member_wants_no_more() -> None:
    log = (0, 9), (10, 19)
    assert Harness().fetch("a", *log, records_max=5) == [Acquired(0, 9, 1)]
    share = Harness()
    assert share.fetch("a", *log, records_max=5, exact=True) == [Acquired(0, 4, 1)]
    assert share.fetch("b", *log, records_max=7, exact=True) == [Acquired(5, 9, 1), Acquired(10, 11, 1)]


def test_what_is_acquired_comes_in_batches_of_the_wanted_size() -> None:
    log = (0, 4), (5, 9), (10, 14), (15, 19)
    assert Harness().fetch("a", *log, batch_size=10) == [Acquired(0, 9, 1), Acquired(10, 19, 1)]
    assert Harness().fetch("a", *log, batch_size=12) == [Acquired(0, 14, 1), Acquired(15, 19, 1)]


def test_the_start_passes_what_is_acknowledged_in_order() -> None:
    share = Harness()
    share.fetch("a", (0, 9))
    share.acknowledge("a", 5, 9, ACCEPT)
    assert (share.partition.start_offset, share.partition.delivery_complete_count) == (0, 5)
    share.acknowledge("a", 0, 4, ACCEPT)
    assert (share.partition.start_offset, share.partition.delivery_complete_count) == (10, 0)


def test_each_record_may_be_acknowledged_in_its_own_way() -> None:
    share = Harness()
    share.fetch("a", (0, 4))
    change = share.begin("a", 0, 4, ACCEPT, RELEASE, REJECT, GAP, ACCEPT)
    assert share.partition.to_write(change.batches).batches == [
        StateBatch(0, 0, ACKNOWLEDGED, 1),
        StateBatch(1, 1, AVAILABLE, 1),
        StateBatch(2, 3, ARCHIVED, 1),
        StateBatch(4, 4, ACKNOWLEDGED, 1),
    ]
    share.complete(change)
    assert share.partition.start_offset == 1
    assert share.fetch("b", (0, 4)) == [Acquired(1, 1, 2)]


def test_what_is_written_tells_the_start_as_it_was_and_what_is_done_with() -> None:
    share = Harness()
    share.fetch("a", (0, 9))
    write = share.partition.to_write(share.begin("a", 0, 9, ACCEPT).batches)
    assert (write.start_offset, write.delivery_complete_count) == (0, 10)
    assert write.batches == [StateBatch(0, 9, ACKNOWLEDGED, 1)]


def test_what_is_being_written_is_for_nobody() -> None:
    share = Harness()
    share.fetch("a", (0, 9))
    change = share.begin("a", 0, 9, RELEASE)
    assert share.fetch("b", (0, 9)) == []
    assert share.refusal("a", 0, 9, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    share.complete(change)
    assert share.fetch("b", (0, 9)) == [Acquired(0, 9, 2)]


def test_what_could_not_be_written_is_as_before() -> None:
    share = Harness()
    share.fetch("a", (0, 9))
    share.complete(share.begin("a", 0, 4, ACCEPT), is_written=False)
    assert share.fetch("b", (0, 9)) == []
    share.acknowledge("a", 0, 9, ACCEPT)
    assert share.partition.start_offset == 10


def test_a_lock_that_ends_while_it_is_written_ends_if_that_fails() -> None:
    share = Harness()
    share.fetch("a", (0, 9))
    change = share.begin("a", 0, 9, ACCEPT)
    assert share.expire(1000) is None
    share.complete(change, is_written=False)
    assert share.fetch("b", (0, 9)) == [Acquired(0, 9, 2)]


def test_one_wrong_acknowledgement_undoes_all() -> None:
    share = Harness()
    share.fetch("a", (0, 4))
    share.fetch("b", (0, 4), (5, 9))
    with pytest.raises(KafkaError):
        share.partition.acknowledge(
            0, "a", [Acknowledgement(0, 4, [ACCEPT]), Acknowledgement(5, 9, [ACCEPT])], LIMITS
        )
    assert share.partition.delivery_complete_count == 0
    share.acknowledge("a", 0, 4, ACCEPT)


def test_only_the_owner_acknowledges_and_only_what_there_is() -> None:
    share = Harness(start=5)
    assert share.refusal("a", 5, 9, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    share.fetch("a", (5, 9))
    assert share.refusal("b", 5, 9, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    assert share.refusal("a", 5, 12, ACCEPT) is ErrorCode.INVALID_REQUEST
    assert share.refusal("a", 10, 12, ACCEPT) is ErrorCode.INVALID_REQUEST
    assert share.refusal("a", 5, 9, 9) is ErrorCode.INVALID_REQUEST
    share.acknowledge("a", 0, 9, ACCEPT)  # what lies before the start does no harm


def test_a_lock_ends_and_the_records_are_for_others() -> None:
    share = Harness()
    share.fetch("a", (0, 9))
    assert share.partition.next_deadline_ms == 1000
    assert share.expire(999) is None
    assert share.expire(1).batches == [StateBatch(0, 9, AVAILABLE, 1)]
    assert share.partition.next_deadline_ms is None
    assert share.fetch("b", (0, 9)) == [Acquired(0, 9, 2)]
    assert share.refusal("a", 0, 9, ACCEPT) is ErrorCode.INVALID_RECORD_STATE


def test_a_lock_may_be_renewed() -> None:
    share = Harness()
    share.fetch("a", (0, 9))
    share.now_ms = 900
    change = share.begin("a", 0, 9, RENEW)
    assert change.batches == []
    assert share.expire(100) is None
    assert share.expire(899) is None
    assert share.expire(1) is not None


def test_renewal_may_be_forbidden() -> None:
    share = Harness(limits=LIMITS._replace(is_renewal_enabled=False))
    share.fetch("a", (0, 9))
    assert share.refusal("a", 0, 9, RENEW) is ErrorCode.INVALID_RECORD_STATE


def test_a_record_is_given_up_after_its_last_delivery() -> None:
    share = Harness(limits=LIMITS._replace(delivery_count_limit=2))
    share.fetch("a", (0, 1))
    share.acknowledge("a", 0, 1, RELEASE)
    assert share.fetch("a", (0, 1)) == [Acquired(0, 1, 2)]
    share.acknowledge("a", 0, 0, RELEASE)
    assert share.partition.start_offset == 1
    assert share.expire(1000).batches == [StateBatch(1, 1, ARCHIVED, 2)]
    assert share.partition.start_offset == 2


def test_records_that_fail_again_and_again_come_in_smaller_lots_and_at_last_alone() -> None:
    share = Harness()
    sizes = []
    for _ in range(5):
        got = share.fetch("a", (0, 7))
        sizes.append([each.last - each.first + 1 for each in got])
        share.acknowledge("a", got[0].first, got[-1].last, RELEASE)
    assert sizes == [[8], [8], [8], [4], [1]]
    assert share.partition.start_offset == 1


def test_a_member_that_goes_gives_back_what_it_had() -> None:
    share = Harness()
    share.fetch("a", (0, 4))
    share.fetch("b", (0, 4), (5, 9))
    change = share.partition.release("a", LIMITS)
    assert change.batches == [StateBatch(0, 4, AVAILABLE, 1)]
    share.complete(change)
    assert share.fetch("b", (0, 9)) == [Acquired(0, 4, 2)]


def test_there_is_a_limit_to_what_is_out() -> None:
    share = Harness(limits=LIMITS._replace(record_locks_max=10))
    assert share.fetch("a", (0, 5), (6, 11), (12, 20)) == [Acquired(0, 11, 1)]
    assert not share.partition.can_acquire(share.limits)
    share.acknowledge("a", 3, 3, RELEASE)
    assert share.fetch("b", (0, 5), (6, 11), (12, 20)) == [Acquired(3, 3, 2)]
    share.acknowledge("a", 0, 2, ACCEPT)
    assert share.fetch("b", (0, 5), (6, 11), (12, 20)) == [Acquired(12, 20, 1)]


def test_after_a_restart_what_was_not_written_is_fetched_again() -> None:
    share = Harness(5, [StateBatch(7, 9, ACKNOWLEDGED, 1), StateBatch(10, 11, AVAILABLE, 3)])
    assert share.partition.next_fetch_offset == 5
    assert share.fetch("a", (0, 12)) == [Acquired(5, 6, 1)]
    assert share.fetch("a", (0, 12)) == [Acquired(10, 10, 4)]
    share.acknowledge("a", 5, 6, ACCEPT)
    assert share.partition.start_offset == 10


def test_what_is_done_with_at_the_start_is_passed_at_once() -> None:
    share = Harness(5, [StateBatch(5, 9, ARCHIVED, 1), StateBatch(10, 11, AVAILABLE, 1)])
    assert share.partition.start_offset == 10


def test_records_that_were_compacted_away_are_given_up() -> None:
    share = Harness()
    share.fetch("a", (0, 4), (5, 9), (10, 14))
    share.acknowledge("a", 0, 14, RELEASE)
    assert share.fetch("b", (10, 14)) == [Acquired(10, 14, 2)]
    assert share.partition.start_offset == 10


def test_a_hole_in_the_log_is_passed() -> None:
    share = Harness()
    share.fetch("a", (0, 4))
    assert share.fetch("a", (0, 4), (10, 14)) == [Acquired(10, 14, 1)]
    share.acknowledge("a", 0, 4, ACCEPT)
    assert share.partition.start_offset == 10


def test_records_of_aborted_transactions_are_not_handed_out() -> None:
    share = Harness()
    assert share.fetch("a", (0, 9), aborted=[(2, 4)]) == [Acquired(0, 1, 1), Acquired(5, 9, 1)]
    share.acknowledge("a", 0, 1, ACCEPT)
    assert share.partition.start_offset == 5


def test_the_start_follows_that_of_the_log() -> None:
    share = Harness()
    share.fetch("a", (0, 9))
    share.partition.on_log_start_offset(4)
    assert share.partition.start_offset == 4
    share.acknowledge("a", 0, 9, ACCEPT)
    assert share.partition.start_offset == 10
    share.partition.on_log_start_offset(20)
    assert (share.partition.start_offset, share.partition.next_fetch_offset) == (20, 20)
