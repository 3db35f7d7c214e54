from __future__ import annotations

import pytest

from moldau.txn.shard import TimedOut
from moldau.txn.transaction import (
    NO_TIMEOUT_MS,
    STATES_BY_NAME,
    Markers,
    Transaction,
    TransactionState,
    transaction_in,
)
from moldau.wire.errors import ErrorCode as E
from tests.txn.txn_driver import ID, P0, P1, TxnDriver

S = TransactionState


def test_states_have_kafkas_names() -> None:
    assert list(STATES_BY_NAME) == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


def test_what_is_decided_is_sent_and_after_a_restart_sent_again() -> None:
    driver = TxnDriver()
    producer = driver.init()
    driver.add(producer, P1, P0)
    driver.end(producer)
    markers = Markers(ID, 101, 1, True, 2, frozenset([P0, P1]))
    assert driver.sent == [markers]
    driver.reload()
    assert driver.sent == [markers]
    driver.complete()
    driver.reload()
    assert driver.sent == []
    assert driver.transaction.state is S.COMPLETE_COMMIT


def test_only_what_was_decided_is_completed() -> None:
    driver = TxnDriver()
    producer = driver.init()
    driver.add(producer)
    before = len(driver.log)
    for producer_id, epoch in ((101, 0), (101, 1), (7, 0)):
        assert driver.ask(lambda _, p=producer_id, e=epoch: driver.shard.complete(0, ID, p, e)) is False
    assert driver.ask(lambda _: driver.shard.complete(0, "unknown", 101, 0)) is False
    driver.end(producer)
    assert driver.ask(lambda _: driver.shard.complete(0, ID, 101, 0)) is False
    assert len(driver.log) == before + 1


# ------------------------------------------------------------ timeouts


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_transaction_that_takes_too_long_is_aborted(version: int) -> None:
    driver = TxnDriver(version)
    producer = driver.init(timeout_ms=15_000)
    driver.add(producer, version=version)
    driver.advance(10_000)
    driver.add(producer, P1, version=version)  # it is the begin that counts
    assert driver.sent == []
    driver.advance(10_000)
    assert driver.sent == [TimedOut(ID)]
    driver.sent.clear()
    assert driver.abort_timed_out() is True
    assert driver.abort_timed_out() is False
    (markers,) = driver.complete()
    assert (markers.producer_epoch, markers.is_committed) == (1, False)
    assert driver.end(producer, version=version) == (
        E.INVALID_TXN_STATE if version == 2 else E.PRODUCER_FENCED
    )
    assert driver.add(producer, version=version) == E.PRODUCER_FENCED
    assert driver.init(producer) == ((101, 1) if version == 2 else E.PRODUCER_FENCED)


def test_what_has_ended_meanwhile_is_not_aborted() -> None:
    driver = TxnDriver()
    producer = driver.init(timeout_ms=1)
    driver.add(producer)
    driver.advance(10_000)
    assert driver.sent == [TimedOut(ID)]
    driver.end(producer)
    assert driver.abort_timed_out() is False
    assert driver.abort_timed_out("unknown") is False


def test_an_aborted_transaction_may_need_another_producer_id() -> None:
    driver = TxnDriver()
    driver.put(Transaction(7, 32766, 1, driver.now_ms, S.ONGOING, frozenset([P0]), started_ms=driver.now_ms))
    driver.now_ms += 2
    assert driver.abort_timed_out() is True
    driver.complete()
    assert driver.transaction.client == (101, 0)


def test_a_two_phase_transaction_waits_for_its_decision() -> None:
    driver = TxnDriver()
    producer = driver.init(two_phase=True)
    driver.add(producer)
    assert driver.transaction.timeout_ms == NO_TIMEOUT_MS
    driver.advance(10 * 24 * 3_600_000)
    assert driver.sent == []
    driver.reload()
    driver.advance(NO_TIMEOUT_MS)
    assert driver.sent == []
    assert driver.init(keep=True) == (101, 1, 101, 0)
    driver.advance(60_001)
    assert driver.sent == []
    assert driver.end((101, 1)) == (101, 2)


# ------------------------------------------------------------ expiry


@pytest.mark.parametrize("state", list(S)[:6], ids=lambda state: state.name)
def test_what_nobody_uses_is_forgotten(state: S) -> None:
    driver = TxnDriver(transactional_id_expiration_ms=7_200_000)
    driver.put(
        Transaction(
            7,
            0,
            NO_TIMEOUT_MS,
            driver.now_ms,
            state,
            partitions=frozenset() if state is S.EMPTY else frozenset([P0]),
            started_ms=driver.now_ms,
        )
    )
    driver.advance(7_199_999)
    assert driver.shard.transaction(ID) is not None
    driver.advance(1)
    is_idle = state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
    assert (driver.shard.transaction(ID) is None) == is_idle
    assert (driver.log[-1][1] is None) == is_idle
    driver.reload()
    assert (driver.shard.transaction(ID) is None) == is_idle
    assert driver.add((7, 0), P0, verify=True) == (
        E.INVALID_PRODUCER_ID_MAPPING
        if is_idle
        else E.NONE
        if state is S.ONGOING
        else E.CONCURRENT_TRANSACTIONS
    )


def test_use_puts_expiry_off() -> None:
    driver = TxnDriver(transactional_id_expiration_ms=7_200_000)
    producer = driver.init()
    driver.advance(7_000_000)
    driver.add(producer)
    driver.end(producer)
    driver.complete()
    driver.advance(3_700_000)
    assert driver.transaction.state is S.COMPLETE_COMMIT


# ------------------------------------------------------------ records

# As Apache Kafka 4.3 writes them: version, producer id, epoch, timeout, status, partitions, times, tags.
EMPTY_V1 = (
    "0001 0000000000000065 0000 0000ea60 00 00 00000000000f4240 ffffffffffffffff 01 00 08 0000000000000065"
)
EMPTY_V0 = "0000 0000000000000065 0000 0000ea60 00 ffffffff 00000000000f4240 ffffffffffffffff"
ONGOING_V1 = (
    "0001 0000000000000065 0000 0000ea60 01 02 02 74 03 00000000 00000001 00 "
    "00000000000f4240 00000000000f4240 02 00 08 0000000000000065 02 02 0002"
)


def value_of(driver: TxnDriver) -> str:
    value = driver.log[-1][1]
    assert value is not None
    return bytes(value).hex()


@pytest.mark.parametrize(("version", "empty"), [(0, EMPTY_V0), (1, EMPTY_V1), (2, EMPTY_V1)])
def test_records_are_kafkas(version: int, empty: str) -> None:
    driver = TxnDriver(version)
    producer = driver.init()
    assert bytes(driver.log[-1][0]).hex() == "0000" + "0008" + ID.encode().hex()
    assert value_of(driver) == empty.replace(" ", "")
    driver.add(producer, P1, P0, version=0 if version == 0 else 2)
    if version == 2:
        assert value_of(driver) == ONGOING_V1.replace(" ", "")


def test_version_0_leaves_out_what_it_cannot_say() -> None:
    driver = TxnDriver(0)
    producer = driver.init(two_phase=True)
    assert driver.add(producer, version=2) == E.UNSUPPORTED_VERSION
    assert driver.end(producer, commit=False, version=2) == E.UNSUPPORTED_VERSION
    assert driver.add(producer, version=0) == E.NONE
    assert driver.init(keep=True, two_phase=True) == E.UNSUPPORTED_VERSION
    assert driver.transaction.previous_producer_id == 101
    *_, value = driver.values()
    again = transaction_in(value)
    assert again == driver.transaction._replace(client_version=0, previous_producer_id=-1)
