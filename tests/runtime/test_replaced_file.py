from __future__ import annotations

import errno
from threading import Event, Thread

import pytest

from moldau.runtime.files import RealFileSystem
from moldau.runtime.replaced_file import ReplacedFile
from moldau.sim.files import SimFileSystem


def test_what_was_asked_for_last_is_what_stays():
    files = SimFileSystem()
    file = ReplacedFile(files, "/f")
    first, second = file.replacement(b"first"), file.replacement(b"second")
    second.run()
    first.run()
    assert files.read_bytes("/f") == b"second"
    file.write(b"third")
    assert files.read_bytes("/f") == b"third"


def test_one_that_failed_may_be_tried_again():
    files = SimFileSystem()
    file = ReplacedFile(files, "/f")
    file.write(b"old")
    replacement = file.replacement(b"new")
    files.faults.fail_next(errno.ENOSPC, operation="write")
    with pytest.raises(OSError, match="No space"):
        replacement.run()
    assert files.read_bytes("/f") == b"old"
    replacement.run()
    assert files.read_bytes("/f") == b"new"


def test_two_threads_do_not_write_at_once(tmp_path):
    """They would share the temporary file, and one would rename it away from under the other."""
    is_writing, may_write = Event(), Event()

    class SlowFiles(RealFileSystem):
        def write_atomically(self, path, data):
            assert not is_writing.is_set()
            is_writing.set()
            may_write.wait(10)
            super().write_atomically(path, data)
            is_writing.clear()

    file = ReplacedFile(SlowFiles(), str(tmp_path / "f"))
    threads = [Thread(target=file.replacement(data).run) for data in (b"first", b"second")]
    threads[0].start()
    assert is_writing.wait(10)
    threads[1].start()
    may_write.set()
    for thread in threads:
        thread.join(10)
    assert (tmp_path / "f").read_bytes() == b"second"
