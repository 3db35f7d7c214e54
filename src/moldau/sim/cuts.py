"""A scenario on one disk, with the power cut at each of its operations in turn.

every_power_cut(lambda files: append_and_flush(files), lambda files: assert_recovers(files))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from .faults import PowerCut
from .files import SimFileSystem


def every_power_cut(
    scenario: Callable[[SimFileSystem], object],
    check: Callable[[SimFileSystem], object],
    *,
    prepare: Callable[[SimFileSystem], object] = lambda files: None,
    seeds: Iterable[int] = range(3),
) -> int:
    """Run `scenario` after `prepare` on fresh disks, cut the power at each changing operation of it and
    once after its end, and call `check` on what each crash leaves, for each seed of the crash. An error
    of `check` gets a note that says which cut it was. Returns the number of operations."""
    operations = _count(prepare, scenario)
    for seed in seeds:
        for cut in range(1, operations + 2):
            files = SimFileSystem()
            prepare(files)
            files.faults.power_cut_at(files.faults.count + cut)
            try:
                scenario(files)
            except PowerCut:
                pass
            files.crash(Random(f"{seed}/{cut}"))
            try:
                check(files)
            except Exception as error:
                error.add_note(f"after a power cut at operation {cut} of {operations}, seed {seed}")
                raise
    return operations


def _count(prepare: Callable[[SimFileSystem], object], scenario: Callable[[SimFileSystem], object]) -> int:
    files = SimFileSystem()
    prepare(files)
    before = files.faults.count
    scenario(files)
    return files.faults.count - before
