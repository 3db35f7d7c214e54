"""The loads: what is done to every subject, and what is measured while it is done.

A load gives one sample, a few named numbers, each time it is run on a subject. Most run on the subject's
one long-lived broker (`subject.running`), the others start their own (`subject.fresh`). A load leaves
nothing behind: topics are deleted, child processes have ended.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

from bench import topics
from bench.brokers import SUBJECTS, Broker
from bench.kafka import REPOSITORY

Sample = dict[str, float]

_topic_numbers = count(1)


class Subject:
    """One broker of the comparison: the instance all loads share, started when first asked for, or fresh."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self._directory = directory
        self._running: Broker | None = None

    @property
    def running(self) -> Broker:
        if self._running is None:
            self._running = self.fresh().__enter__()
        return self._running

    def fresh(self) -> Broker:
        """A broker not yet started, on a directory of its own."""
        parent = tempfile.mkdtemp(prefix=f"{self.name}-", dir=self._directory)
        return SUBJECTS[self.name](Path(parent) / "broker")

    def stop(self) -> None:
        broker, self._running = self._running, None
        if broker is not None:
            broker.__exit__(None, None, None)


class Load(Protocol):
    """`scale` is 1.0 for a full run; a quick one does a fraction of the work."""

    @property
    def name(self) -> str: ...

    @property
    def needs_java(self) -> bool: ...

    @property
    def on_stub(self) -> bool: ...

    def run(self, subject: Subject, scale: float) -> Sample: ...

    def finish(self, subject: Subject) -> None:
        """Remove what runs of this load share (a filled topic)."""


class Unshared:
    """Of loads whose runs share nothing."""

    def finish(self, subject: Subject) -> None:
        pass


@contextmanager
def topic_of(broker: Broker, name: str, partitions: int = 1) -> Iterator[str]:
    """A topic for one run."""
    topic = f"{name}-{next(_topic_numbers)}"
    if partitions == 1:
        topics.create(broker.bootstrap, topic)
    else:
        topics.create_wide(broker.bootstrap, topic, partitions)
    yield topic
    if broker.stores:
        topics.delete(broker.bootstrap, topic)


def child(module: str, **arguments: object) -> Sample:
    """Run a load generator in a process of its own, which shares nothing with earlier runs."""
    command = [sys.executable, "-m", f"bench.loads.{module}", json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=REPOSITORY, check=False)
    if done.returncode:
        raise RuntimeError(f"{module} failed: {done.stderr[-2000:]}")
    sample: Sample = json.loads(done.stdout.splitlines()[-1])
    return sample


def child_arguments() -> dict[str, object]:
    """The other end of `child`: what a load generator's process was asked to do."""
    arguments: dict[str, object] = json.loads(sys.argv[1])
    return arguments
