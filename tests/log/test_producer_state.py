"""Idempotence and transactions of one partition, against Kafka's rules and an obvious model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.log.errors import CorruptFileError
from moldau.log.producer_snapshot import decode_snapshot, encode_snapshot
from moldau.log.producer_state import (
    ONGOING,
    BatchMetadata,
    CompletedTransaction,
    ProducerState,
    Verification,
)
from moldau.wire.errors import ErrorCode, KafkaError

PID = 9
LAST = 2**31 - 1


def write(state, sequence, count=1, *, epoch=0, offset=None, transactional=False, pid=PID):
    """What a leader does: check, then append. The batch repeated, if it is."""
    offset = state.end_offset if offset is None else offset
    last = (sequence + count - 1) & LAST
    repeated = state.check(pid, epoch, sequence, last, transactional, offset)
    if repeated is None:
        state.append(pid, epoch, last, offset, offset + count - 1, 1000 + offset, transactional)
        state.end_offset = offset + count
    return repeated


def end(state, *, epoch=0, coordinator_epoch=0, aborted=False, pid=PID, version=0):
    state.check_marker(pid, epoch, coordinator_epoch, version, state.end_offset)
    completed = state.append_marker(pid, epoch, coordinator_epoch, state.end_offset, 1000, aborted)
    if completed is not None:
        state.complete(completed)
    state.end_offset += 1
    return completed


def refused(code, call, *args, **options):
    with pytest.raises(KafkaError) as caught:
        call(*args, **options)
    assert caught.value.code is code


def test_sequences_follow_one_another():
    state = ProducerState("t-0")
    write(state, 0, 3)
    write(state, 3, 2)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, write, state, 6)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, write, state, 4)
    assert state.end_offset == 5


def test_the_last_five_batches_are_recognised():
    state = ProducerState("t-0")
    for sequence in range(7):
        write(state, sequence)
    for sequence in range(2, 7):
        assert write(state, sequence) == BatchMetadata(sequence, sequence, 0, 1000 + sequence)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, write, state, 1)


def test_sequences_wrap():
    state = ProducerState("t-0")
    write(state, LAST - 1, 2)
    write(state, 0, 1)
    repeated = write(state, LAST - 1, 2)
    assert repeated is not None
    assert (repeated.first_sequence, repeated.first_offset) == (LAST - 1, 0)


def test_a_batch_across_the_wrap():
    state = ProducerState("t-0")
    write(state, LAST, 3)
    assert write(state, LAST, 3) is not None
    write(state, 2)


def test_an_unknown_producer_begins_anywhere():
    write(ProducerState("t-0"), 77)


def test_a_new_epoch_begins_with_zero():
    state = ProducerState("t-0")
    write(state, 0, 5)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, write, state, 5, epoch=1)
    write(state, 0, epoch=1)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, write, state, 5, epoch=0)


def test_a_transaction_holds_back_the_last_stable_offset_until_its_marker_is_replicated():
    state = ProducerState("t-0")
    write(state, 0, 2)
    write(state, 2, transactional=True)
    assert state.first_unstable_offset == 2
    refused(ErrorCode.INVALID_TXN_STATE, write, state, 3, transactional=False)
    assert end(state) == CompletedTransaction(PID, 2, 3, False)
    assert state.first_unstable_offset == 2
    state.on_high_watermark(3)
    assert state.first_unstable_offset == 2
    state.on_high_watermark(4)
    assert state.first_unstable_offset is None
    assert not state.has_transactions


def test_the_index_entry_of_an_abort_knows_other_open_transactions():
    state = ProducerState("t-0")
    write(state, 0, transactional=True, pid=1)
    write(state, 0, transactional=True, pid=2)
    completed = state.append_marker(1, 0, 0, 2, 0, True)
    assert completed is not None
    assert state.last_stable_offset_after(completed) == 1
    state.complete(completed)
    completed = state.append_marker(2, 0, 0, 3, 0, True)
    assert completed is not None
    assert state.last_stable_offset_after(completed) == 4


def test_a_marker_without_data_ends_nothing():
    assert end(ProducerState("t-0")) is None


def test_old_coordinators_and_producers_are_fenced():
    state = ProducerState("t-0")
    write(state, 0, transactional=True, epoch=4)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, end, state, epoch=3)
    end(state, epoch=4, coordinator_epoch=6)
    refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED, end, state, epoch=4, coordinator_epoch=5)


def test_a_marker_of_a_new_epoch_starts_sequences_anew():
    state = ProducerState("t-0")
    write(state, 0, 3, transactional=True)
    end(state, epoch=1)
    write(state, 0, epoch=1, transactional=True)


def test_a_marker_of_version_2_has_the_epoch_above_that_of_its_transaction():
    state = ProducerState("t-0")
    write(state, 0, transactional=True, epoch=4)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, end, state, epoch=3, version=2)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, end, state, epoch=4, version=2)
    assert end(state, epoch=5, version=2) is not None
    assert end(state, epoch=5, version=2) is None, "sent again, it ends nothing"
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, end, state, epoch=4, version=2)
    write(state, 0, transactional=True, epoch=5)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, end, state, epoch=5, version=2)
    assert end(state, epoch=5, version=1) is not None


def test_coordinators_batches_have_no_sequence():
    state = ProducerState("t-0")
    write(state, 0, transactional=True, epoch=2)
    state.check_coordinator_batch(PID, 2, True, 1, None)
    refused(ErrorCode.INVALID_TXN_STATE, state.check_coordinator_batch, PID, 2, False, 1, None)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, state.check_coordinator_batch, PID, 1, True, 1, None)


def begin(state, sequence, *, epoch=0, bumps=False):
    return state.begin_verification(PID, epoch, sequence, 1000, supports_epoch_bump=bumps)


def write_verified(state, sequence, verification, *, epoch=0, transactional=True):
    offset = state.end_offset
    repeated = state.check_with_verification(
        PID, epoch, sequence, sequence, transactional, offset, verification
    )
    if repeated is None:
        state.append(PID, epoch, sequence, offset, offset, 1000, transactional)
        state.end_offset += 1
    return repeated


def test_a_transaction_opens_with_a_verification_and_goes_on_without():
    state = ProducerState("t-0")
    refused(ErrorCode.INVALID_TXN_STATE, write_verified, state, 0, ONGOING)
    refused(ErrorCode.INVALID_TXN_STATE, write_verified, state, 0, Verification(0, 0))
    verification = begin(state, 0)
    assert begin(state, 0) is verification, "one question for all who wait"
    write_verified(state, 0, verification)
    assert state.is_in_transaction(PID, 0) and not state.is_in_transaction(PID, 1)
    assert begin(state, 1) is None
    write_verified(state, 1, ONGOING)
    end(state)
    refused(ErrorCode.INVALID_TXN_STATE, write_verified, state, 2, verification)
    assert write_verified(state, 1, ONGOING) is not None, "it is there already"


def test_a_marker_makes_a_verification_void():
    state = ProducerState("t-0")
    late = begin(state, 0)
    end(state)
    refused(ErrorCode.INVALID_TXN_STATE, write_verified, state, 0, late)
    other = begin(state, 0)
    refused(ErrorCode.INVALID_TXN_STATE, write_verified, state, 0, late)
    write_verified(state, 0, other)


def test_an_epoch_that_is_over_is_not_asked_about():
    state = ProducerState("t-0")
    write(state, 0, transactional=True, epoch=3)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, begin, state, 0, epoch=2)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, write_verified, state, 0, ONGOING, epoch=2)
    newer = begin(state, 0, epoch=4)
    assert newer is not None
    refused(ErrorCode.INVALID_TXN_STATE, write_verified, state, 0, ONGOING, epoch=4)
    write_verified(state, 0, newer, epoch=4)
    assert state.verifications == {}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=8))
def test_the_lowest_sequence_of_the_newest_epoch_comes_first(waiting):
    state = ProducerState("t-0")
    for epoch, sequence in waiting:
        verification = begin(state, sequence, epoch=epoch)
    newest = max(epoch for epoch, _ in waiting)
    # Those of an epoch that is not the newest when they come do not count; nor does what came before one.
    lowest = min(sequence for epoch, sequence in waiting if epoch == newest)
    assert (verification.epoch, verification.lowest_sequence) == (newest, lowest)
    refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, write_verified, state, lowest + 1, verification, epoch=newest
    )
    write_verified(state, lowest, verification, epoch=newest)


def test_a_transaction_of_version_2_begins_with_0_unless_the_producer_is_known():
    state = ProducerState("t-0")
    new = begin(state, 5, bumps=True)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, write_verified, state, 5, new)
    write(state, 0, 5)
    write_verified(state, 5, new)


def test_what_is_trusted_has_no_order():
    state = ProducerState("t-0")
    begin(state, 1)
    write_verified(state, 7, state.trust(PID, 0, 1000))


def test_coordinators_need_a_verification_too():
    state = ProducerState("t-0")
    refused(ErrorCode.INVALID_TXN_STATE, state.check_coordinator_batch, PID, 0, True, 0, None)
    state.check_coordinator_batch(PID, 0, True, 0, begin(state, -1))
    state.check_coordinator_batch(PID, 0, False, 0, None)


def test_silent_producers_expire_unless_a_transaction_is_open():
    state = ProducerState("t-0")
    write(state, 0, pid=1)
    write(state, 0, pid=2, transactional=True)
    assert state.expire(now_ms=1000 + 50, expiration_ms=51) == 0
    assert state.expire(now_ms=10_000, expiration_ms=50) == 1
    assert list(state.producers) == [2]
    assert state.oldest_transaction_timestamp() == 1001


STEPS = st.lists(
    st.tuples(st.sampled_from(["data", "txn", "commit", "abort"]), st.integers(1, 3), st.integers(1, 4)),
    max_size=30,
)


@given(STEPS)
def test_a_snapshot_and_the_rest_of_the_log_are_the_log(steps):
    """Replaying from a snapshot taken anywhere leads to the state of the whole log, but for older batches."""
    state = ProducerState("t-0")
    sequences = dict.fromkeys(range(1, 4), 0)
    copies = [ProducerState("t-0")]

    def replay(apply):
        for replica in [state, *copies]:
            completed = apply(replica)
            if completed is not None:
                replica.complete(completed)

    for kind, pid, count in steps:
        offset = state.end_offset
        if kind in ("data", "txn"):
            last = sequences[pid] + count - 1
            is_open = state.producers.get(pid) is not None and state.producers[pid].txn_first_offset >= 0
            assert state.check(pid, 0, sequences[pid], last, kind == "txn" or is_open, offset) is None
            replay(
                lambda s, o=offset, p=pid, e=last, c=count, t=kind == "txn": s.append(
                    p, 0, e, o, o + c - 1, o, t
                )
            )
            sequences[pid] += count
        else:
            count = 1
            replay(lambda s, o=offset, p=pid, a=kind == "abort": s.append_marker(p, 0, 0, o, o, a))
        for replica in [state, *copies]:
            replica.end_offset = offset + count
        restored = ProducerState("t-0")
        restored.load(decode_snapshot(bytes(encode_snapshot(state.producers)), "s"), state.end_offset)
        restored.on_high_watermark(state.end_offset)
        copies.append(restored)
        state.on_high_watermark(state.end_offset)
    for copy in copies:
        copy.on_high_watermark(state.end_offset)
        assert encode_snapshot(copy.producers) == encode_snapshot(state.producers) or set(
            copy.producers
        ) == set(state.producers)
        assert copy.first_unstable_offset == state.first_unstable_offset
        for pid, entry in state.producers.items():
            assert copy.producers[pid].next_sequence == entry.next_sequence


def test_a_snapshot_is_kafkas_byte_for_byte():
    data = bytes.fromhex(
        "0001acb622690000000100000000000000010000"
        "0000003b0000000000000045000000090000"
        "01a1f02767960000"
        "0000ffffffffffffffff"
    )
    producers = decode_snapshot(data, "golden")
    assert list(producers) == [1]
    assert producers[1].batches[-1] == BatchMetadata(59, 69, 9, producers[1].last_timestamp)
    assert encode_snapshot(producers) == data


@given(st.binary(max_size=80))
def test_any_bytes_are_a_snapshot_or_corrupt(data):
    with pytest.raises(CorruptFileError):
        decode_snapshot(data, "file")


@given(st.data())
def test_a_flipped_bit_is_noticed(data):
    state = ProducerState("t-0")
    write(state, 0, 3)
    write(state, 0, pid=2, transactional=True)
    snapshot = encode_snapshot(state.producers)
    bit = data.draw(st.integers(0, len(snapshot) * 8 - 1))
    snapshot[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptFileError):
        decode_snapshot(bytes(snapshot), "file")
