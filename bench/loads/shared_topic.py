"""Loads that read: one filled topic a broker, written before the first run and deleted after the last."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bench import topics
from bench.loads import Sample, Subject


class SharedTopic(ABC):
    name: str
    needs_java = False
    on_stub = False
    record_bytes = 1000
    topic_bytes = 1_000_000_000

    def __init__(self) -> None:
        self._records: dict[str, int] = {}

    def run(self, subject: Subject, scale: float) -> Sample:
        bootstrap = subject.running.bootstrap
        if subject.name not in self._records:
            topics.create(bootstrap, self.name)
            total = int(self.topic_bytes * scale)
            self._records[subject.name] = topics.fill(bootstrap, self.name, total, self.record_bytes)
        return self.measure(subject, self.name, self._records[subject.name], scale)

    @abstractmethod
    def measure(self, subject: Subject, topic: str, records: int, scale: float) -> Sample: ...

    def finish(self, subject: Subject) -> None:
        if self._records.pop(subject.name, None) is not None:
            topics.delete(subject.running.bootstrap, self.name)
