"""Cleaning a log without a node: the helper's work and the swap, one after another."""

from __future__ import annotations

from dataclasses import replace

from log_samples import NOW_MS

from moldau.config.broker import BrokerConfig
from moldau.log.cleaner.cleaning import clean
from moldau.log.cleaner.messages import CleaningFailed, CleanLog, LogCleaned, SegmentCleaned, decode_answer
from moldau.log.cleaner.plan import Cleaning, measure_log
from moldau.log.log import Log
from moldau.runtime.interfaces import FileSystem

OPTIONS = BrokerConfig.parse(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
    }
).cleaner


def clean_log(
    files: FileSystem, log: Log, *, now_ms: int = NOW_MS, **changes: object
) -> LogCleaned | CleaningFailed | None:
    """Clean all of the log that may be cleaned, whatever its ratio. None if that is nothing."""
    dirt = measure_log(log, now_ms)
    if not dirt.dirty_bytes:
        return None
    log.flush(now_ms, dirt.end_offset)
    cleaning = Cleaning.of(log, dirt, OPTIONS, now_ms)
    request = CleanLog.decode(replace(cleaning.request, **changes).encode())
    for step in clean(files, request.encode()):
        if isinstance(step, float):
            continue
        answer = decode_answer(step)
        match answer:
            case SegmentCleaned():
                assert cleaning.is_current()
                cleaning.replace(answer.count, answer.size, now_ms)
            case LogCleaned():
                files.sync_dir(log.directory)
                log.cleaned_offset = answer.next_dirty_offset
                return answer
            case CleaningFailed():
                return answer
    raise AssertionError("no last answer")
