"""The indexes against a linear scan of the same entries."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.log.errors import CorruptFileError
from moldau.log.offset_index import OffsetIndex
from moldau.log.time_index import TimeIndex, read_last_entry
from moldau.log.transaction_index import AbortedTransaction, TransactionIndex
from moldau.sim.files import SimFileSystem

BASE = 1000
GAPS = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=40)


def entries_of(gaps, second_start):
    """Pairs that grow strictly in both places."""
    entries, first, second = [], BASE - 1, second_start
    for first_gap, second_gap in gaps:
        first += first_gap
        second += second_gap
        entries.append((first, second))
    return entries


def offset_index(files=None, bytes_max=8 * 50):
    return OffsetIndex(files or SimFileSystem(), "/i", BASE, bytes_max, 0)


def time_index(files=None, bytes_max=12 * 50):
    return TimeIndex(files or SimFileSystem(), "/t", BASE, bytes_max, 0)


@given(GAPS, st.integers(0, 3000))
def test_offset_lookup_is_a_linear_scan(gaps, target):
    index, entries = offset_index(), entries_of(gaps, 0)
    for entry in entries:
        index.append(*entry)
    below = [entry for entry in entries if entry[0] <= target]
    assert index.lookup(target) == (below[-1] if below else (BASE, 0))
    beyond = [entry for entry in entries if entry[1] >= target]
    assert index.first_at_or_after(target) == (beyond[0] if beyond else None)


@given(GAPS, st.integers(0, 3000))
def test_offset_index_is_cut_at_an_offset(gaps, offset):
    index, entries = offset_index(), entries_of(gaps, 0)
    for entry in entries:
        index.append(*entry)
    index.truncate_to(offset)
    assert [index.entry(number) for number in range(index.entries)] == [e for e in entries if e[0] < offset]


@given(GAPS, st.integers(0, 3000))
def test_time_lookup_is_a_linear_scan(gaps, target):
    index, entries = time_index(), [(second, first) for first, second in entries_of(gaps, 0)]
    for entry in entries:
        index.append(*entry)
    below = [entry for entry in entries if entry[0] <= target]
    assert index.lookup(target) == (below[-1] if below else (-1, BASE))
    index.truncate_to(target)
    assert [index.entry(number) for number in range(index.entries)] == [e for e in entries if e[1] < target]


@given(GAPS)
def test_an_index_is_the_same_after_trim_and_reopening(gaps):
    files = SimFileSystem()
    index, times, entries = offset_index(files), time_index(files), entries_of(gaps, 0)
    for first, second in entries:
        index.append(first, second)
        times.append(second, first)
        index.release()
    index.trim()
    times.trim()
    assert files.file_size("/i") == 8 * len(entries)
    again = OffsetIndex(files, "/i", BASE, 400, files.file_size("/i"))
    assert [again.entry(number) for number in range(again.entries)] == entries
    last = (entries[-1][1], entries[-1][0]) if entries else (-1, BASE)
    assert read_last_entry(files, "/t", BASE, files.file_size("/t")) == last


def test_a_time_that_is_not_larger_is_no_news():
    index = time_index()
    index.append(-1, BASE)
    assert index.entries == 0
    index.append(5, BASE + 1)
    index.append(5, BASE + 2)
    index.append(4, BASE + 3)
    assert (index.entries, index.last_entry()) == (1, (5, BASE + 1))


def test_offsets_must_grow():
    index = offset_index()
    index.append(BASE + 5, 0)
    with pytest.raises(CorruptFileError):
        index.append(BASE + 5, 10)


def test_the_time_index_keeps_a_slot_for_the_end():
    index = time_index(bytes_max=12 * 3 + 5)
    for number in range(2):
        assert not index.is_full
        index.append(number, BASE + number)
    assert index.is_full
    index.append(9, BASE + 9)
    assert index.entries == 3


def test_a_full_disk_is_an_error_and_not_a_crash():
    """The file is sparse: only a write that can fail makes room for a store through the mapping."""
    files = SimFileSystem()
    index = offset_index(files)
    files.faults.fail_next(errno.ENOSPC, operation="write")
    with pytest.raises(OSError, match="space"):
        index.append(BASE, 0)
    assert index.entries == 0
    index.append(BASE, 0)
    assert index.lookup(BASE) == (BASE, 0)


def transaction(number):
    return AbortedTransaction(7, BASE + number * 10, BASE + number * 10 + 5, BASE + number * 10 + 6)


def test_aborted_transactions_are_found_by_range():
    index = TransactionIndex(SimFileSystem(), "/x", BASE)
    for number in range(4):
        index.append(transaction(number))
    found: list[AbortedTransaction] = []
    assert index.collect(BASE + 12, BASE + 25, found)
    assert found == [transaction(1), transaction(2)]
    found.clear()
    assert not index.collect(BASE + 36, BASE + 100, found)
    assert found == []


def test_the_transaction_index_survives_reopening_and_truncation():
    files = SimFileSystem()
    index = TransactionIndex(files, "/x", BASE)
    for number in range(4):
        index.append(transaction(number))
    index.truncate_to(BASE + 25)
    assert files.file_size("/x") == 2 * 34
    again = TransactionIndex(files, "/x", BASE)
    assert again.entries() == [transaction(0), transaction(1)]
    with pytest.raises(CorruptFileError):
        again.append(transaction(1))


def test_an_index_without_aborts_has_no_file():
    files = SimFileSystem()
    index = TransactionIndex(files, "/x", BASE)
    index.truncate_to(BASE)
    index.reset()
    index.flush()
    assert index.entries() == []
    assert not files.exists("/x")


def test_an_impossible_transaction_is_corruption():
    files = SimFileSystem()
    TransactionIndex(files, "/x", 0).append(transaction(-50))
    with pytest.raises(CorruptFileError):
        TransactionIndex(files, "/x", BASE).entries()


@pytest.mark.parametrize("aborted", [(0, 0, 0, 0), (7, BASE + 12, BASE + 5, BASE), (7, BASE + 8, 0, 0)])
def test_transactions_out_of_order_are_corruption(aborted):
    """As a power cut leaves what was not synced."""
    files = SimFileSystem()
    TransactionIndex(files, "/x", 0).append(transaction(0))
    file = files.open("/x")
    file.write_at(struct.pack(">hqqqq", 0, *aborted), 34)
    for base_offset in (0, BASE):
        with pytest.raises(CorruptFileError):
            TransactionIndex(files, "/x", base_offset).entries()
