from __future__ import annotations

import pytest

from moldau.txn.marking import Marking, Verdict, verdict_on
from moldau.txn.transaction import Markers
from moldau.wire.errors import ErrorCode

DONE = {
    ErrorCode.NONE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.UNSUPPORTED_VERSION,
}


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_what_may_pass_is_tried_again(code: ErrorCode) -> None:
    if code in DONE:
        expected = Verdict.DONE
    elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        expected = Verdict.FENCED
    else:
        expected = Verdict.AGAIN
    assert verdict_on(code) is expected


def test_pauses_grow_up_to_a_bound() -> None:
    marking = Marking(Markers("id", 1, 0, True, 2, [("b", 0), ("a", 1)]), 3)
    assert [marking.next_backoff_ms() for _ in range(8)] == [20, 40, 80, 160, 320, 640, 1000, 1000]
    assert [marking.next_backoff_ms() for _ in range(100)][-1] == 1000


def test_partitions_are_done_one_by_one() -> None:
    marking = Marking(Markers("id", 1, 0, True, 2, [("b", 0), ("a", 1), ("c", 0)]), 3)
    assert list(marking.untried) == [("a", 1), ("b", 0), ("c", 0)]
    marking.untried.clear()
    assert marking.on_code(("a", 1), ErrorCode.NONE) is Verdict.DONE
    assert marking.on_code(("b", 0), ErrorCode.NOT_ENOUGH_REPLICAS) is Verdict.AGAIN
    assert marking.on_code(("c", 0), ErrorCode.NOT_ENOUGH_REPLICAS) is Verdict.AGAIN
    assert marking.failed == {ErrorCode.NOT_ENOUGH_REPLICAS: ("c", 0)}
    assert marking.begin_again() == 20
    assert (list(marking.untried), marking.failed) == ([("b", 0), ("c", 0)], {})
    assert marking.on_code(("b", 0), ErrorCode.NONE) is Verdict.DONE
    assert list(marking.left) == [("c", 0)]
