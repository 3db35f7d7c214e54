"""What a process and its descendants have used, read from Linux's /proc."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of the tree, children that ended and were waited for included."""
    ticks = 0
    for member in tree(pid):
        if fields := _stat(member):
            ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / _TICKS_PER_SECOND


def resident_bytes(pid: int) -> int:
    total = 0
    for member in tree(pid):
        try:
            status = Path(f"/proc/{member}/status").read_text()
        except OSError:
            continue  # ended since the tree was read
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) * 1024
    return total


def tree(pid: int) -> list[int]:
    """The process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    members = [pid]
    for member in members:
        members += children.get(member, [])
    return members


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command's name, which may itself hold spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
