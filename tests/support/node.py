"""A Moldau node as a process of its own, for this project's tests: that of `moldau.testing`, started by hand.

A node whose faults matter comes from `moldau.testing.node()`; here are those that are started on a directory
of one's own, with arguments of one's own, or ended in ways of one's own.
"""

from __future__ import annotations

import sys
from pathlib import Path

from moldau.testing.nodes import unique_name
from moldau.testing.process import NodeProcess as MoldauNode

__all__ = ["COMMAND", "KEEP", "MoldauNode", "unique_name"]

# The command as it is installed beside the interpreter that runs the tests.
COMMAND = Path(sys.executable).with_name("moldau")

# For records of years ago, which retention would take away while a test runs.
KEEP = {"log.retention.ms": "-1"}
