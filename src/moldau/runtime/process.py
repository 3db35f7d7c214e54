"""What the operating system and the interpreter say about this process."""

from __future__ import annotations

import gc
import os
import resource
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUsage:
    """None is what this system does not tell."""

    cpu_s: float
    thread_cpu_s: float
    """Of the thread that asked: the event loop's."""
    start_time_s: float | None
    resident_bytes: int | None
    virtual_bytes: int | None
    open_fds: int | None
    max_fds: int
    collections: tuple[int, ...]
    """Runs of the garbage collector, by generation."""
    collected_objects: tuple[int, ...]


def read_process_usage() -> ProcessUsage:
    """Reads some files of /proc, where there is one: does not block."""
    generations = gc.get_stats()
    virtual_bytes, resident_bytes = _memory()
    return ProcessUsage(
        cpu_s=time.process_time(),
        thread_cpu_s=time.thread_time(),
        start_time_s=_start_time_s(),
        resident_bytes=resident_bytes,
        virtual_bytes=virtual_bytes,
        open_fds=_open_fds(),
        max_fds=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        collections=tuple(generation["collections"] for generation in generations),
        collected_objects=tuple(generation["collected"] for generation in generations),
    )


def _memory() -> tuple[int | None, int | None]:
    try:
        with open("/proc/self/statm", "rb") as file:
            virtual_pages, resident_pages = file.read().split()[:2]
    except OSError:
        return None, None
    page_bytes = resource.getpagesize()
    return int(virtual_pages) * page_bytes, int(resident_pages) * page_bytes


def _open_fds() -> int | None:
    try:
        # Linux tells the number as the directory's size since 6.2; before that it is zero.
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")) - 1
    except OSError:
        return None


def _start_time_s() -> float | None:
    try:
        with open("/proc/self/stat", "rb") as file:
            # The name of the program, in parentheses, may have spaces in it.
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/stat", "rb") as file:
            boot_line = next(line for line in file if line.startswith(b"btime "))
    except (OSError, StopIteration):
        return None
    return int(boot_line.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
