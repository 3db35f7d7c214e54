"""Every state with every request: the errors are those that Apache Kafka 4.3 answers with."""

from __future__ import annotations

import pytest

from moldau.txn.transaction import EPOCH_MAX, Transaction, TransactionState
from moldau.wire.errors import ErrorCode as E
from tests.txn.txn_driver import ID, P0, P1, TxnDriver

S = TransactionState
PID, EPOCH = 7, 5
CURRENT, RETRY, OLD, FUTURE, OTHER = (PID, EPOCH), (PID, EPOCH - 1), (PID, 1), (PID, EPOCH + 1), (8, EPOCH)
OPEN = (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)


def driver_in(state: S, *, version: int = 2, epoch: int = EPOCH, **fields: object) -> TxnDriver:
    driver = TxnDriver(transaction_version=version)
    known = Transaction(
        PID,
        epoch,
        timeout_ms=60_000,
        updated_ms=driver.now_ms,
        state=state,
        partitions=frozenset([P0]) if state in OPEN else frozenset(),
        started_ms=-1 if state is S.EMPTY else driver.now_ms,
        previous_producer_id=PID,
        client_version=version,
    )
    driver.put(known._replace(**fields))  # type: ignore[arg-type]
    return driver


# ------------------------------------------------------------ EndTxn


BUMPED = (PID, EPOCH + 1)
SAME = (PID, EPOCH)
# By state: what a commit and an abort are answered with, for the current epoch and for the one before.
ENDS_V2 = {
    # state: (commit, abort) of the current epoch, (commit, abort) of the one before
    S.EMPTY: ((E.INVALID_TXN_STATE, BUMPED), (E.PRODUCER_FENCED, E.PRODUCER_FENCED)),
    S.ONGOING: ((BUMPED, BUMPED), (E.PRODUCER_FENCED, E.PRODUCER_FENCED)),
    S.PREPARE_COMMIT: (
        (E.PRODUCER_FENCED, E.PRODUCER_FENCED),
        (E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE),
    ),
    S.PREPARE_ABORT: (
        (E.PRODUCER_FENCED, E.PRODUCER_FENCED),
        (E.INVALID_TXN_STATE, E.CONCURRENT_TRANSACTIONS),
    ),
    S.COMPLETE_COMMIT: ((E.INVALID_TXN_STATE, BUMPED), (SAME, E.INVALID_TXN_STATE)),
    S.COMPLETE_ABORT: ((E.INVALID_TXN_STATE, BUMPED), (E.INVALID_TXN_STATE, SAME)),
}


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("is_retry", [False, True])
@pytest.mark.parametrize("state", ENDS_V2, ids=lambda state: state.name)
def test_the_end_of_a_transaction_with_an_epoch_of_its_own(state: S, is_retry: bool, commit: bool) -> None:
    expected = ENDS_V2[state][is_retry][not commit]
    driver = driver_in(state)
    assert driver.end(RETRY if is_retry else CURRENT, commit=commit) == expected
    if expected != BUMPED:
        assert driver.transaction.state is state
        return
    assert driver.transaction.state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    (markers,) = driver.complete()
    assert (markers.producer_id, markers.producer_epoch, markers.is_committed) == (*BUMPED, commit)
    assert driver.transaction.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert driver.end(CURRENT, commit=commit) == BUMPED  # it did not hear the answer


ENDS_V1 = {
    S.EMPTY: (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
    S.ONGOING: (SAME, SAME),
    S.PREPARE_COMMIT: (E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE),
    S.PREPARE_ABORT: (E.INVALID_TXN_STATE, E.CONCURRENT_TRANSACTIONS),
    S.COMPLETE_COMMIT: (SAME, E.INVALID_TXN_STATE),
    S.COMPLETE_ABORT: (E.INVALID_TXN_STATE, SAME),
}


@pytest.mark.parametrize("server_version", [0, 1, 2])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("state", ENDS_V1, ids=lambda state: state.name)
def test_the_end_of_a_transaction_with_a_lasting_epoch(state: S, commit: bool, server_version: int) -> None:
    driver = driver_in(state, version=server_version)
    expected = ENDS_V1[state][not commit]
    assert driver.end(RETRY, commit=commit, version=0) == E.PRODUCER_FENCED
    assert driver.end(CURRENT, commit=commit, version=0) == expected
    if state is S.ONGOING:
        (markers,) = driver.complete()
        assert (markers.producer_epoch, markers.transaction_version) == (EPOCH, 0)
        assert driver.end(CURRENT, commit=commit, version=0) == SAME


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("state", ENDS_V2, ids=lambda state: state.name)
def test_nobody_else_ends_a_transaction(state: S, version: int) -> None:
    driver = driver_in(state)
    for commit in (True, False):
        assert driver.end(OTHER, commit=commit, version=version) == E.INVALID_PRODUCER_ID_MAPPING
        assert driver.end(OLD, commit=commit, version=version) == E.PRODUCER_FENCED
        assert driver.end(FUTURE, commit=commit, version=version) == E.PRODUCER_FENCED
    assert driver.transaction.state is state
    assert TxnDriver().end(CURRENT, version=version) == E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("state", [S.ONGOING, S.EMPTY, S.COMPLETE_ABORT], ids=lambda state: state.name)
def test_the_last_epoch_leads_to_another_producer_id(state: S, commit: bool) -> None:
    if commit and state is not S.ONGOING:
        return
    driver = driver_in(state, epoch=EPOCH_MAX - 1)
    producer = PID, EPOCH_MAX - 1
    assert driver.end(producer, commit=commit) == (101, 0)
    assert (driver.transaction.producer_id, driver.transaction.producer_epoch) == (PID, EPOCH_MAX)
    assert driver.end(producer, commit=commit) == E.CONCURRENT_TRANSACTIONS
    (markers,) = driver.complete()
    assert (markers.producer_id, markers.producer_epoch) == (PID, EPOCH_MAX)
    assert driver.transaction.client == (101, 0)
    assert driver.transaction.previous_producer_id == PID
    assert driver.transaction.next_producer_id == -1
    assert driver.end(producer, commit=commit) == (101, 0)
    assert driver.end(producer, commit=not commit) == E.INVALID_TXN_STATE
    driver.reload()
    assert driver.end(producer, commit=commit) == (101, 0)
    assert driver.add((101, 0)) == E.NONE
    assert driver.end(producer, commit=commit) == E.INVALID_PRODUCER_ID_MAPPING


# ------------------------------------------------------------ AddPartitionsToTxn


ADDED = {
    S.EMPTY: E.NONE,
    S.ONGOING: E.NONE,
    S.PREPARE_COMMIT: E.CONCURRENT_TRANSACTIONS,
    S.PREPARE_ABORT: E.CONCURRENT_TRANSACTIONS,
    S.COMPLETE_COMMIT: E.NONE,
    S.COMPLETE_ABORT: E.NONE,
}


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("state", ADDED, ids=lambda state: state.name)
def test_partitions_are_added(state: S, version: int) -> None:
    driver = driver_in(state)
    driver.now_ms += 10
    started_ms = driver.transaction.started_ms
    assert driver.add(OTHER, P1, version=version) == E.INVALID_PRODUCER_ID_MAPPING
    for wrong in (RETRY, OLD, FUTURE):
        assert driver.add(wrong, P1, version=version) == E.PRODUCER_FENCED
    assert driver.add(CURRENT, P1, version=version) == ADDED[state]
    if ADDED[state] != E.NONE:
        assert driver.transaction.state is state
        return
    expected = {P0, P1} if state is S.ONGOING else {P1}
    assert (driver.transaction.state, driver.transaction.partitions) == (S.ONGOING, expected)
    assert driver.transaction.started_ms == (started_ms if state is S.ONGOING else driver.now_ms)
    assert driver.transaction.client_version == version
    written = len(driver.log)
    assert driver.add(CURRENT, P1, version=version) == E.NONE
    assert len(driver.log) == written


VERIFIED = {
    S.EMPTY: E.TRANSACTION_ABORTABLE,
    S.ONGOING: {P0: E.NONE, P1: E.TRANSACTION_ABORTABLE},
    S.PREPARE_COMMIT: E.CONCURRENT_TRANSACTIONS,
    S.PREPARE_ABORT: E.CONCURRENT_TRANSACTIONS,
    S.COMPLETE_COMMIT: E.TRANSACTION_ABORTABLE,
    S.COMPLETE_ABORT: E.TRANSACTION_ABORTABLE,
}


@pytest.mark.parametrize("state", VERIFIED, ids=lambda state: state.name)
def test_partitions_are_verified(state: S) -> None:
    driver = driver_in(state)
    assert driver.add(OTHER, verify=True) == E.INVALID_PRODUCER_ID_MAPPING
    assert driver.add(OLD, verify=True) == E.PRODUCER_FENCED
    assert driver.add(CURRENT, P0, P1, verify=True) == VERIFIED[state]
    assert len(driver.log) == 1


def test_a_transactional_id_nobody_has() -> None:
    assert TxnDriver().add(CURRENT) == E.INVALID_PRODUCER_ID_MAPPING
    assert TxnDriver().add(CURRENT, verify=True) == E.INVALID_PRODUCER_ID_MAPPING


# ------------------------------------------------------------ InitProducerId


INITIALIZED = {
    S.EMPTY: BUMPED,
    S.ONGOING: E.CONCURRENT_TRANSACTIONS,
    S.PREPARE_COMMIT: E.CONCURRENT_TRANSACTIONS,
    S.PREPARE_ABORT: E.CONCURRENT_TRANSACTIONS,
    S.COMPLETE_COMMIT: BUMPED,
    S.COMPLETE_ABORT: BUMPED,
}


@pytest.mark.parametrize("state", INITIALIZED, ids=lambda state: state.name)
def test_a_producer_begins(state: S) -> None:
    driver = driver_in(state)
    assert driver.init(timeout_ms=77) == INITIALIZED[state]
    if state in OPEN:
        assert driver.transaction.state is (S.PREPARE_ABORT if state is S.ONGOING else state)
        return
    known = driver.transaction
    assert (known.state, known.timeout_ms, known.started_ms) == (S.EMPTY, 77, -1)
    assert driver.init() == (PID, EPOCH + 2)


@pytest.mark.parametrize(
    "state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT], ids=lambda state: state.name
)
def test_a_producer_goes_on_after_an_error(state: S) -> None:
    driver = driver_in(state)
    assert driver.init(OTHER) == E.PRODUCER_FENCED
    assert driver.init(OLD) == E.PRODUCER_FENCED
    assert driver.init(FUTURE) == E.PRODUCER_FENCED
    assert driver.init(CURRENT) == BUMPED
    assert driver.init(CURRENT) == BUMPED  # it did not hear the answer
    assert driver.init(BUMPED) == (PID, EPOCH + 2)
    assert driver.init() == (PID, EPOCH + 3)
    assert driver.init((PID, EPOCH + 2)) == E.PRODUCER_FENCED  # another has begun


def test_asking_again_is_not_understood_by_another_coordinator() -> None:
    driver = driver_in(S.EMPTY)
    assert driver.init(CURRENT) == BUMPED
    driver.reload()
    assert driver.init(CURRENT) == E.PRODUCER_FENCED


def test_a_failed_write_changes_nothing() -> None:
    driver = driver_in(S.EMPTY)
    assert driver.init(CURRENT) == BUMPED
    driver.is_disk_full = True
    assert driver.init() == E.COORDINATOR_NOT_AVAILABLE
    driver.is_disk_full = False
    assert driver.init(CURRENT) == BUMPED


@pytest.mark.parametrize("expected", [None, (PID, EPOCH_MAX - 1)])
def test_a_producer_begins_with_another_id_when_epochs_are_used_up(expected: tuple[int, int] | None) -> None:
    driver = driver_in(S.COMPLETE_COMMIT, epoch=EPOCH_MAX - 1)
    assert driver.init(expected or (-1, -1)) == (101, 0)
    assert driver.transaction.previous_producer_id == PID
    if expected is None:
        assert driver.init((PID, EPOCH_MAX - 1)) == E.PRODUCER_FENCED
    else:
        assert driver.init(expected) == (101, 0)


def test_a_new_producer_may_have_had_an_id() -> None:
    """The transactional id has expired meanwhile (KIP-360)."""
    driver = TxnDriver()
    assert driver.init((55, 3)) == (101, 0)
    assert driver.init() == (101, 1)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_whoever_begins_aborts_what_is_open(version: int) -> None:
    driver = driver_in(S.ONGOING, version=version)
    assert driver.init() == E.CONCURRENT_TRANSACTIONS
    assert driver.init() == E.CONCURRENT_TRANSACTIONS
    (markers,) = driver.complete()
    assert (markers.producer_id, markers.producer_epoch, markers.is_committed) == (*BUMPED, False)
    assert markers.transaction_version == (2 if version == 2 else 0)
    assert driver.transaction.state is S.COMPLETE_ABORT
    assert driver.init() == (PID, EPOCH + 2)
    assert driver.add(CURRENT) == E.PRODUCER_FENCED


@pytest.mark.parametrize("version", [1, 2])
def test_the_last_epoch_fences_and_leads_to_another_producer_id(version: int) -> None:
    driver = driver_in(S.ONGOING, version=version, epoch=EPOCH_MAX - 1)
    assert driver.init() == E.CONCURRENT_TRANSACTIONS
    (markers,) = driver.complete()
    assert (markers.producer_id, markers.producer_epoch) == (PID, EPOCH_MAX)
    assert driver.init() == ((101, 1) if version == 2 else (101, 0))
    assert driver.end((PID, EPOCH_MAX), version=0) == E.INVALID_PRODUCER_ID_MAPPING


# ------------------------------------------------------------ two-phase commit


def test_a_prepared_transaction_is_taken_over() -> None:
    driver = TxnDriver()
    producer = driver.init(two_phase=True)
    assert driver.add(producer, P0, P1) == E.NONE
    assert driver.init(two_phase=True, keep=True) == (101, 1, 101, 0)
    assert driver.transaction.state is S.ONGOING
    for refused in (
        driver.add(producer),
        driver.add(producer, verify=True),
        driver.end(producer),
        driver.end(producer, commit=False),
        driver.end(producer, version=0),
    ):
        assert refused == E.PRODUCER_FENCED
    assert driver.add((101, 1)) == E.INVALID_TXN_STATE
    assert driver.init(two_phase=True, keep=True) == (101, 2, 101, 0)
    assert driver.end((101, 1)) == E.PRODUCER_FENCED
    driver.reload()
    assert driver.end((101, 2)) == (101, 3)
    assert driver.end((101, 2)) == E.CONCURRENT_TRANSACTIONS
    assert driver.end((101, 2), commit=False) == E.INVALID_TXN_STATE
    (markers,) = driver.complete()
    # The records of the transaction carry the first epoch; its markers the one after it.
    assert (markers.producer_id, markers.producer_epoch, markers.is_committed) == (101, 1, True)
    assert {*markers.partitions} == {P0, P1}
    assert driver.transaction.client == (101, 3)
    assert driver.end((101, 2)) == (101, 3)
    assert driver.add((101, 3)) == E.NONE
    assert driver.end((101, 2)) == E.PRODUCER_FENCED


def test_a_kept_transaction_is_ended_by_an_old_client() -> None:
    driver = TxnDriver()
    producer = driver.init(two_phase=True)
    driver.add(producer, version=0)
    assert driver.init(two_phase=True, keep=True) == (101, 1, 101, 0)
    assert driver.end((101, 1), commit=False, version=0) == (101, 1)
    (markers,) = driver.complete()
    assert (markers.producer_epoch, markers.is_committed) == (0, False)
    assert driver.end((101, 1), commit=False, version=0) == (101, 1)


@pytest.mark.parametrize("version", [1, 2])
def test_a_kept_transaction_is_aborted_by_who_does_not_keep_it(version: int) -> None:
    driver = TxnDriver(version)
    producer = driver.init(two_phase=True)
    driver.add(producer)
    assert driver.init(two_phase=True, keep=True) == (101, 1, 101, 0)
    assert driver.init(two_phase=True) == E.CONCURRENT_TRANSACTIONS
    assert driver.init(two_phase=True, keep=True) == E.CONCURRENT_TRANSACTIONS
    (markers,) = driver.complete()
    assert (markers.producer_epoch, markers.is_committed) == (1, False)
    assert driver.init(two_phase=True, keep=True) == (101, 3, -1, -1)


def test_taking_over_may_use_up_the_epochs() -> None:
    driver = driver_in(S.ONGOING, epoch=EPOCH_MAX - 2)
    assert driver.init(keep=True) == (PID, EPOCH_MAX - 1, PID, EPOCH_MAX - 2)
    assert driver.init(keep=True) == (101, 0, PID, EPOCH_MAX - 2)
    assert driver.end((PID, EPOCH_MAX - 1)) == E.PRODUCER_FENCED
    assert driver.end((101, 0)) == (101, 1)
    (markers,) = driver.complete()
    assert (markers.producer_id, markers.producer_epoch) == (PID, EPOCH_MAX - 1)
    assert driver.transaction.client == (101, 1)
    assert driver.end((101, 0)) == (101, 1)


def test_the_end_of_a_kept_transaction_may_use_up_the_epochs() -> None:
    driver = driver_in(S.ONGOING, epoch=EPOCH_MAX - 2)
    taken = driver.init(keep=True)[:2]
    assert driver.end(taken) == (101, 0)
    assert driver.end(taken) == E.CONCURRENT_TRANSACTIONS
    driver.complete()
    assert driver.transaction.client == (101, 0)
    assert driver.end(taken) == (101, 0)
    assert driver.end(taken, commit=False) == E.INVALID_TXN_STATE


def test_who_takes_over_may_say_who_it_was() -> None:
    driver = driver_in(S.ONGOING)
    assert driver.init(RETRY, keep=True) == E.PRODUCER_FENCED
    assert driver.init(OTHER, keep=True) == E.PRODUCER_FENCED
    assert driver.init(CURRENT, keep=True) == (PID, EPOCH + 1, PID, EPOCH)


def test_an_unknown_id_is_not_expected_anywhere() -> None:
    driver = TxnDriver()
    assert driver.init(keep=True, transactional_id=ID) == (101, 0, -1, -1)
