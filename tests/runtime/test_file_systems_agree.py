"""The real and the simulated FileSystem give the same answers, errors included, to any sequence of calls."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from moldau.runtime.files import RealFileSystem
from moldau.runtime.interfaces import File, FileSystem, Mapping
from moldau.sim.files import SimFileSystem

NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join)
COUNTS = st.integers(0, 10_000)
POSITIONS = st.integers(-1, 10_000)
DATA = st.binary(max_size=300) | st.integers(0, 9000).map(lambda count: b"z" * count)


def answer_of(call: Callable[..., object], *args: object) -> object:
    try:
        return call(*args)
    except OSError as error:
        return type(error), error.errno


class FileSystemsAgree(RuleBasedStateMachine):
    open_files = Bundle("open_files")

    def __init__(self) -> None:
        super().__init__()
        self.roots = (tempfile.mkdtemp(), "/root")
        self.systems: tuple[FileSystem, FileSystem] = (RealFileSystem(), SimFileSystem())
        self.systems[1].make_dirs("/root")
        self.pairs: list[tuple[File, File]] = []

    def teardown(self) -> None:
        for pair in self.pairs:
            for each in pair:
                each.close()
        shutil.rmtree(self.roots[0])

    def same(self, call: Callable[[FileSystem, str], object]) -> object:
        answers = [answer_of(call, files, root) for files, root in zip(self.systems, self.roots, strict=True)]
        assert answers[0] == answers[1]
        return answers[0]

    def same_file(self, pair: tuple[File, File], call: Callable[[File], object]) -> None:
        assert answer_of(lambda: call(pair[0])) == answer_of(lambda: call(pair[1]))

    @rule(target=open_files, name=NAMES, create=st.booleans(), read_only=st.booleans())
    def open(self, name: str, create: bool, read_only: bool) -> tuple[File, File]:
        opened: list[File] = []

        def call(files: FileSystem, root: str) -> str:
            opened.append(files.open(f"{root}/{name}", create=create, read_only=read_only))
            return "opened"

        if self.same(call) != "opened":
            return self.open("fallback", True, False)
        pair = (opened[0], opened[1])
        self.pairs.append(pair)
        return pair

    @rule(pair=open_files, data=DATA, position=POSITIONS)
    def write(self, pair, data, position):
        self.same_file(pair, lambda file: file.write_at(data, position))

    @rule(pair=open_files, count=COUNTS, position=POSITIONS)
    def read(self, pair, count, position):
        self.same_file(pair, lambda file: file.read_at(count, position))

    @rule(pair=open_files, count=COUNTS, position=POSITIONS)
    def load(self, pair, count, position):
        self.same_file(pair, lambda file: file.load(count, position))

    @rule(pair=open_files, size=st.integers(-1, 12_000))
    def truncate(self, pair, size):
        self.same_file(pair, lambda file: file.truncate(size))

    @rule(pair=open_files)
    def sync(self, pair):
        self.same_file(pair, lambda file: file.sync())

    @rule(pair=open_files)
    def close(self, pair):
        self.same_file(pair, lambda file: file.close())

    @rule(pair=open_files, size=st.integers(-1, 12_000), position=st.integers(0, 11_999))
    def store_through_a_mapping(self, pair, size, position):
        sizes = [answer_of(file.size) for file in pair]
        assert sizes[0] == sizes[1]
        mapped: list[Mapping] = []

        def call(file: File) -> str:
            mapped.append(file.map(size))
            return "mapped"

        self.same_file(pair, call)
        if not mapped:
            return
        for mapping, file in zip(mapped, pair, strict=True):
            part = mapping.view[position:]
            if len(part):
                part[0] = 7
            mapping.flush()
            file.write_at(b"seen", size // 2)
        assert bytes(mapped[0].view) == bytes(mapped[1].view)
        assert pair[0].read_at(20_000, 0) == pair[1].read_at(20_000, 0)
        for mapping in mapped:
            mapping.close()
            mapping.close()

    @rule(name=NAMES)
    def make_dirs(self, name):
        self.same(lambda files, root: files.make_dirs(f"{root}/{name}"))

    @rule(old=NAMES, new=NAMES)
    def rename(self, old, new):
        self.same(lambda files, root: files.rename(f"{root}/{old}", f"{root}/{new}"))

    @rule(name=NAMES)
    def remove(self, name):
        self.same(lambda files, root: files.remove(f"{root}/{name}"))

    @rule(name=NAMES)
    def remove_tree(self, name):
        self.same(lambda files, root: files.remove_tree(f"{root}/{name}"))

    @rule(name=NAMES)
    def sync_dir(self, name):
        self.same(lambda files, root: files.sync_dir(f"{root}/{name}"))

    @rule(name=NAMES, data=DATA)
    def write_atomically(self, name, data):
        self.same(lambda files, root: files.write_atomically(f"{root}/{name}", data))

    @rule(name=NAMES)
    def read_bytes(self, name):
        self.same(lambda files, root: files.read_bytes(f"{root}/{name}"))

    @rule(name=NAMES, time_ms=st.integers(0, 2_000_000_000_000))
    def set_modified(self, name, time_ms):
        self.same(lambda files, root: files.set_modified_ms(f"{root}/{name}", time_ms))
        self.same(lambda files, root: files.modified_ms(f"{root}/{name}"))

    @invariant()
    def trees_are_equal(self):
        self.same(lambda files, root: tree(files, root))


def tree(files: FileSystem, path: str) -> dict[str, object]:
    answer: dict[str, object] = {}
    for name in files.list_dir(path):
        below = f"{path}/{name}"
        assert files.exists(below)
        answer[name] = tree(files, below) if files.is_dir(below) else (files.file_size(below))
    return answer


FileSystemsAgree.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestFileSystemsAgree = FileSystemsAgree.TestCase


def test_a_full_volume_takes_a_part_and_says_so():
    files = SimFileSystem()
    files.disk.capacity = 3 * 4096
    file = files.open("/f", create=True)
    file.write_at(b"a" * 4096, 0)
    assert answer_of(lambda: file.write_at(b"b" * 20_000, 4096)) == (OSError, errno.ENOSPC)
    assert file.size() == 3 * 4096
    assert files.disk_space("/") == (3 * 4096, 0)
    file.write_at(b"again", 10)  # pages it has are not asked for twice
    files.remove("/f")
    assert files.disk_space("/") == (3 * 4096, 3 * 4096)


def test_a_real_file_closes_with_its_last_reference(tmp_path):
    files = RealFileSystem()
    file = files.open(str(tmp_path / "f"), create=True)
    fd = file.fileno()
    del file
    assert answer_of(lambda: os.fstat(fd)) == (OSError, errno.EBADF)


def test_a_removed_file_stays_readable_while_it_is_open(tmp_path):
    for files, root in ((RealFileSystem(), str(tmp_path)), (SimFileSystem(), "")):
        file = files.open(f"{root}/f", create=True)
        file.write_at(b"still here", 0)
        files.remove(f"{root}/f")
        assert file.read_at(100, 0) == b"still here"
        file.close()


def test_a_mapping_closes_while_a_slice_is_in_use(tmp_path):
    for files, root in ((RealFileSystem(), str(tmp_path)), (SimFileSystem(), "")):
        file = files.open(f"{root}/f", create=True)
        mapping = file.map(100)
        part = mapping.view[10:20]
        mapping.close()
        assert bytes(part) == bytes(10)
        file.close()


def test_a_mapping_that_is_dropped_instead_of_closed_loses_nothing(tmp_path):
    for files, root in ((RealFileSystem(), str(tmp_path)), (SimFileSystem(), "")):
        file = files.open(f"{root}/f", create=True)
        small = file.map(10)
        large = file.map(1 << 20)
        large.view[5] = 1
        assert small.view[5] == 1
        del small, large
        assert file.read_at(10, 0) == b"\0\0\0\0\0\1\0\0\0\0"
        file.truncate(8)
        file.map(6 << 20).close()
        assert file.size() == 6 << 20
        file.close()


def test_a_lock_is_held_once_and_can_be_taken_again(tmp_path):
    for files, root in ((RealFileSystem(), str(tmp_path)), (SimFileSystem(), "")):
        lock = files.lock(f"{root}/.lock")
        assert answer_of(files.lock, f"{root}/.lock") == (BlockingIOError, errno.EWOULDBLOCK)
        lock.release()
        lock.release()
        files.lock(f"{root}/.lock").release()
        assert files.exists(f"{root}/.lock")


def test_another_process_respects_the_real_lock(tmp_path):
    path = str(tmp_path / ".lock")
    attempts = {
        "flock": "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "POSIX, as Java does": "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
    }
    lock = RealFileSystem().lock(path)
    for attempt in attempts.values():
        program = f"import fcntl; file = open({path!r}, 'r+'); {attempt}"
        held = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert "BlockingIOError" in held.stderr
    lock.release()
    for attempt in attempts.values():
        program = f"import fcntl; file = open({path!r}, 'r+'); {attempt}"
        subprocess.run([sys.executable, "-c", program], check=True)
