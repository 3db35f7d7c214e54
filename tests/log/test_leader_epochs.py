from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from moldau.log.leader_epochs import LeaderEpochs
from moldau.sim.files import SimFileSystem

ASSIGNMENTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 100)), max_size=12)


def epochs(*entries):
    return LeaderEpochs(SimFileSystem(), "/leader-epoch-checkpoint", list(entries))


@given(ASSIGNMENTS)
def test_epochs_and_offsets_always_grow(assignments):
    cache = epochs()
    for epoch, offset in assignments:
        cache.assign(epoch, offset)
        entries = cache.entries()
        assert cache.latest == entries[-1][0] == epoch
        assert entries[-1][1] <= offset
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(entries))


def test_the_same_epoch_again_changes_nothing():
    cache = epochs((1, 0))
    cache.assign(1, 50)
    assert cache.entries() == [(1, 0)]


def test_end_offsets_answer_as_kafkas_do():
    cache = epochs((2, 10), (4, 20), (7, 30))
    assert cache.end_offset_for(-1, 99) == (-1, -1)
    assert cache.end_offset_for(7, 99) == (7, 99)
    assert cache.end_offset_for(8, 99) == (-1, -1)
    assert cache.end_offset_for(4, 99) == (4, 30)
    assert cache.end_offset_for(5, 99) == (4, 30)
    assert cache.end_offset_for(1, 99) == (1, 10)
    assert epochs().end_offset_for(0, 99) == (-1, -1)


@given(st.integers(0, 40))
def test_truncation_from_either_end(offset):
    entries = [(2, 10), (4, 20), (7, 30)]
    cache = epochs(*entries)
    cache.truncate_from_end(offset)
    assert cache.entries() == [entry for entry in entries if entry[1] < offset]
    cache = epochs(*entries)
    cache.truncate_from_start(offset)
    assert [cache.epoch_for_offset(at) for at in range(max(offset, 10), 40)] == [
        epochs(*entries).epoch_for_offset(at) for at in range(max(offset, 10), 40)
    ]
    assert all(start >= offset for _, start in cache.entries())


def test_an_epoch_is_missed_on_disk_once_it_has_a_batch():
    cache = epochs()
    cache.assign(3, 100)
    assert cache.unwritten(log_end_offset=100) is None
    unwritten = cache.unwritten(log_end_offset=101)
    assert unwritten is not None
    assert unwritten.data == b"0\n1\n3 100\n"
    unwritten.run()
    cache.written(unwritten)
    assert cache.unwritten(log_end_offset=101) is None


def test_an_epoch_that_came_while_others_were_written_is_still_missed():
    cache = epochs()
    cache.assign(3, 100)
    unwritten = cache.unwritten(log_end_offset=101)
    assert unwritten is not None
    cache.assign(4, 101)
    unwritten.run()
    cache.written(unwritten)
    assert cache.unwritten(log_end_offset=102) is not None


def test_epochs_are_read_back():
    files = SimFileSystem()
    assert LeaderEpochs.load(files, "/c").entries() == []
    LeaderEpochs(files, "/c", [(0, 0), (5, 9)]).write()
    assert LeaderEpochs.load(files, "/c").entries() == [(0, 0), (5, 9)]
