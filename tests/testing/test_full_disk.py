from __future__ import annotations

import errno
from pathlib import Path

import pytest

from moldau.runtime.files import RealFileSystem
from moldau.testing.faults import FaultRules
from moldau.testing.full_disk import FillableFileSystem


@pytest.fixture
def rules() -> FaultRules:
    return FaultRules()


@pytest.fixture
def files(rules: FaultRules) -> FillableFileSystem:
    return FillableFileSystem(RealFileSystem(), rules)


def test_a_full_disk_takes_nothing_new_and_gives_what_it_has(
    files: FillableFileSystem, rules: FaultRules, tmp_path: Path
) -> None:
    path = str(tmp_path / "log")
    file = files.open(path, create=True)
    file.write_at(b"0123456789", 0)
    rules.disk_is_full = True
    growing = [
        lambda: file.write_at(b"x", 10),
        lambda: file.write_at(b"xx", 9),
        lambda: file.truncate(11),
        lambda: file.map(4096),
        lambda: files.open(str(tmp_path / "new"), create=True),
        lambda: files.make_dirs(str(tmp_path / "topic-0")),
        lambda: files.write_atomically(str(tmp_path / "checkpoint"), b"x"),
    ]
    for grow in growing:
        with pytest.raises(OSError) as failure:
            grow()
        assert failure.value.errno == errno.ENOSPC
    file.write_at(b"ab", 0)
    file.sync()
    assert file.read_at(20, 0) == b"ab23456789" == files.read_bytes(path)
    assert files.disk_space(path)[1] == 0
    file.truncate(5)
    files.rename(path, path + ".old")
    files.remove(path + ".old")
    rules.disk_is_full = False
    file.write_at(b"x", 5)
    assert file.size() == 6 and files.disk_space(str(tmp_path))[1] > 0
    file.close()
