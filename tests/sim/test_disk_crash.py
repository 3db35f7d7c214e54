"""What a simulated disk may and may not forget."""

import errno
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.sim.cuts import every_power_cut
from moldau.sim.faults import PowerCut
from moldau.sim.files import SimFileSystem

SEEDS = range(200)


def crashed_contents(prepare, read=lambda files: files.read_bytes("/f")) -> set[object]:
    """What can be read after a crash, over many seeds."""
    outcomes = set()
    for seed in SEEDS:
        files = SimFileSystem()
        prepare(files)
        files.crash(Random(seed))
        outcomes.add(read(files))
    return outcomes


def durable_file(files: SimFileSystem, data: bytes = b""):
    file = files.open("/f", create=True)
    file.write_at(data, 0)
    file.sync()
    files.sync_dir("/")
    return file


def test_synced_bytes_survive_and_unsynced_ones_are_kept_lost_or_torn():
    def prepare(files: SimFileSystem) -> None:
        durable_file(files, b"synced").write_at(b"12", 6)

    assert crashed_contents(prepare) == {b"synced", b"synced1", b"synced12"}


def test_writes_are_lost_independently_and_leave_holes():
    def prepare(files: SimFileSystem) -> None:
        file = durable_file(files)
        file.write_at(b"a", 0)
        file.write_at(b"b", 1)

    assert crashed_contents(prepare) == {b"", b"a", b"\0b", b"ab"}


def test_the_pages_of_one_write_are_lost_independently():
    def prepare(files: SimFileSystem) -> None:
        durable_file(files).write_at(b"x" * 8192, 0)

    assert bytes(4096) + b"x" * 4096 in crashed_contents(prepare)


def test_a_truncation_is_lost_or_kept():
    def prepare(files: SimFileSystem) -> None:
        durable_file(files, b"123456").truncate(2)

    assert crashed_contents(prepare) == {b"123456", b"12"}


def test_the_name_of_a_new_file_needs_the_sync_of_its_directory():
    def prepare(files: SimFileSystem) -> None:
        file = files.open("/f", create=True)
        file.write_at(b"data", 0)
        file.sync()

    outcomes = crashed_contents(prepare, lambda files: tuple(files.list_dir("/")))
    assert outcomes == {(), ("f",)}


def test_an_atomic_write_is_old_or_new_at_every_power_cut():
    old, new = b"old" * 2000, b"new" * 2000
    seen = []
    operations = every_power_cut(
        lambda files: files.write_atomically("/f", new),
        lambda files: seen.append(files.read_bytes("/f")),
        prepare=lambda files: files.write_atomically("/f", old),
        seeds=range(20),
    )
    assert operations == 6
    assert len(seen) == 20 * 7
    assert set(seen) == {old, new}
    assert seen[operations :: operations + 1] == [new] * 20  # once it has returned, it is durable


def test_a_failed_check_says_at_which_cut():
    def check(files: SimFileSystem) -> None:
        assert files.exists("/a"), "the file is gone"

    def scenario(files: SimFileSystem) -> None:
        files.remove("/a")
        files.sync_dir("/")

    with pytest.raises(AssertionError) as caught:
        every_power_cut(scenario, check, prepare=lambda files: files.write_atomically("/a", b""))
    assert "of 2, seed 0" in caught.value.__notes__[0]


def test_the_nth_operation_fails_when_asked_to():
    files = SimFileSystem()
    files.faults.fail_at(3, errno.EDQUOT)
    file = files.open("/f", create=True)
    file.write_at(b"1", 0)
    with pytest.raises(OSError) as caught:
        file.write_at(b"2", 1)
    assert caught.value.errno == errno.EDQUOT
    file.write_at(b"2", 1)
    assert file.read_at(10, 0) == b"12"


def test_a_rename_between_directories_is_never_half_done():
    def prepare(files: SimFileSystem) -> None:
        files.make_dirs("/a")
        files.make_dirs("/b")
        files.sync_dir("/")
        files.open("/a/f", create=True)
        files.sync_dir("/a")
        files.rename("/a/f", "/b/f")

    outcomes = crashed_contents(
        prepare, lambda files: (tuple(files.list_dir("/a")), tuple(files.list_dir("/b")))
    )
    assert outcomes == {(("f",), ()), ((), ("f",))}


def test_a_sync_of_a_directory_brings_what_it_rests_on():
    files = SimFileSystem()
    files.make_dirs("/a")
    files.make_dirs("/b")
    files.sync_dir("/")
    files.open("/a/f", create=True)
    files.rename("/a/f", "/b/f")
    files.sync_dir("/b")
    files.crash(Random(1))
    assert (files.list_dir("/a"), files.list_dir("/b")) == ([], ["f"])


def test_a_removal_is_forgotten_unless_the_directory_is_synced():
    def prepare(files: SimFileSystem) -> None:
        durable_file(files, b"x")
        files.remove("/f")

    assert crashed_contents(prepare, lambda files: files.exists("/f")) == {True, False}


def test_stores_through_a_mapping_are_lost_unless_flushed():
    def prepare(files: SimFileSystem) -> None:
        mapping = durable_file(files).map(8192)
        mapping.view[0] = 1
        mapping.flush()
        mapping.view[5000] = 2

    def prepare_and_hold(files: SimFileSystem) -> None:
        mapping = durable_file(files).map(8192)
        mapping.view[0] = 1
        mapping.flush()
        mapping.view[5000] = 2
        held.append(mapping)

    held: list[object] = []
    outcomes = crashed_contents(prepare)
    assert outcomes == crashed_contents(prepare_and_hold)
    assert {len(each) for each in outcomes} == {8192}
    assert {(each[0], each[5000]) for each in outcomes} == {(1, 0), (1, 2)}


def test_a_failed_sync_leaves_bytes_that_no_later_sync_saves():
    files = SimFileSystem()
    file = durable_file(files, b"safe")
    file.write_at(b"lost", 4)
    files.faults.fail_next(errno.EIO, operation="sync", path="*/f")
    with pytest.raises(OSError):
        file.sync()
    file.sync()
    assert file.read_at(10, 0) == b"safelost"
    files.crash(Random(1))
    assert files.read_bytes("/f") == b"safe"


def test_failures_match_by_operation_and_path_for_so_many_times():
    files = SimFileSystem()
    first, second = files.open("/a.log", create=True), files.open("/b.log", create=True)
    files.faults.fail_next(errno.ENOSPC, operation="write", path="/a*", times=2)
    second.write_at(b"x", 0)
    for _ in range(2):
        with pytest.raises(OSError) as caught:
            first.write_at(b"x", 0)
        assert caught.value.errno == errno.ENOSPC
    first.write_at(b"x", 0)
    assert first.size() == 1


def test_after_the_power_cut_nothing_works_until_the_crash_and_old_files_never_do():
    files = SimFileSystem()
    file = durable_file(files)
    files.faults.power_cut_at(files.faults.count + 2)
    file.write_at(b"1", 0)
    with pytest.raises(PowerCut):
        file.write_at(b"2", 1)
    with pytest.raises(PowerCut):
        file.write_at(b"3", 2)
    with pytest.raises(PowerCut):
        files.list_dir("/")
    files.crash(Random(3))
    assert files.read_bytes("/f") in (b"", b"1", b"\0" + b"2", b"12")
    with pytest.raises(PowerCut):
        file.read_at(1, 0)


@given(
    writes=st.lists(st.tuples(st.integers(3000, 5000), st.binary(min_size=1, max_size=1500)), max_size=6),
    synced=st.integers(0, 6),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_each_byte_after_a_crash_was_there_at_or_after_the_last_sync(writes, synced, seed):
    files = SimFileSystem()
    file = durable_file(files)
    possible: list[set[int]] = [{0} for _ in range(7_000)]
    for number, (position, data) in enumerate(writes):
        file.write_at(data, position)
        for offset, byte in enumerate(data, position):
            possible[offset].add(byte)
        if number + 1 == synced:
            file.sync()
            possible = [{byte} for byte in file.read_at(7_000, 0).ljust(7_000, b"\0")]
    size_before, whole = file.size(), file.read_at(7_000, 0)
    files.crash(Random(seed))
    after = files.read_bytes("/f")
    assert len(after) <= size_before
    assert all(byte in possible[offset] for offset, byte in enumerate(after))
    if synced == len(writes):
        assert after == whole


def test_the_trace_names_every_operation_in_order():
    files = SimFileSystem()
    trace = files.faults.record()
    files.write_atomically("/f", b"abc")
    assert [(each.name, each.path) for each in trace] == [
        ("create", "/f.tmp"),
        ("truncate", "/f.tmp"),
        ("write", "/f.tmp"),
        ("sync", "/f.tmp"),
        ("rename", "/f.tmp"),
        ("sync_dir", "/"),
    ]
