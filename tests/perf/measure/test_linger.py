from __future__ import annotations

from moldau.perf.measure.linger import CLASSIC, HEADER, METRICS, MORE, Outcome, Step, explain, row


def outcome(
    step: Step, batch: float, largest: float, queue_ms: float, requests: int, wait: float = 0
) -> Outcome:
    metrics = dict.fromkeys((*METRICS, *MORE), 0.0) | {
        "batch-size-avg": batch,
        "batch-size-max": largest,
        "record-queue-time-avg": queue_ms,
        "request-total": float(requests),
        "record-send-total": 3000.0,
        "outgoing-byte-total": 3_300_000.0,
        "bufferpool-wait-ratio": wait,
    }
    return Outcome(step=step, metrics=metrics, response_p50_ms=queue_ms / 2 + 1, response_p99_ms=queue_ms + 2)


RUN = [
    outcome(CLASSIC[0], 1080, 16_000, 0, 3000),
    outcome(CLASSIC[1], 16_160, 16_200, 75, 188),
    outcome(CLASSIC[2], 21_000, 22_000, 100, 143),
    outcome(CLASSIC[3], 273_000, 299_900, 1360, 11),
]


def test_it_is_said_what_ended_the_batches() -> None:
    nothing, size, time, size_again = explain(RUN)
    assert "Nothing is waited for" in nothing and "1100 bytes on the wire" in nothing
    assert "Size ends the batches: they are full after 75 ms" in size
    assert "Time ends the batches: they are 7% full after 100 ms" in time
    assert "Size ends the batches" in size_again  # but for the last one


def test_a_step_is_told_beside_the_one_before() -> None:
    told = explain(RUN)
    assert "16.0 times fewer requests, and the median record takes 38 ms longer" in told[1]
    assert "Beside" not in told[0]
    assert "no difference to speak of" in explain([RUN[1], RUN[1]])[1]
    assert "about as many requests, and the median record takes 38 ms shorter" in explain([RUN[1], RUN[0]])[1]


def test_waiting_for_memory_is_named() -> None:
    assert "buffer.memory" not in " ".join(explain(RUN))
    assert "12.0% of the time" in explain([outcome(CLASSIC[0], 1080, 1080, 0, 3000, wait=0.12)])[0]


def test_the_table_has_a_cell_for_each_heading() -> None:
    cells = row(RUN[1])
    assert len(cells) == len(HEADER)
    assert cells[:3] == ["100", "16384", "16160.0"]
    assert cells[HEADER.index("BUFFERPOOL-WAIT-RATIO")] == "0.000"
