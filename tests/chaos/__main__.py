"""`python -m tests.chaos --seed N --seconds S [--kafka]`: a run against a broker of its own, and its verdict.

`--history FILE` judges a history that was kept.
"""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.checker import check, summary
from tests.chaos.history import Event, Troubled, read_lines
from tests.chaos.run import Run, Stuck

SHOWN_MAX = 30


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--seconds", type=float, default=20, help="how long clients are disturbed")
    parser.add_argument("--kafka", action="store_true", help="against Apache Kafka")
    parser.add_argument("--runs", type=int, default=1, help="one after another, with the seeds that follow")
    parser.add_argument("--directory", type=Path, help="where to keep everything")
    parser.add_argument("--history", type=Path, help="judge this history, and run nothing")
    options = parser.parse_args(arguments)
    # Whoever stops it does not want its processes to stay.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if options.history is not None:
        return judge(list(read_lines(options.history.read_bytes())))
    root = options.directory or Path(tempfile.mkdtemp(prefix="moldau-chaos-"))
    failures = 0
    for seed in range(options.seed, options.seed + options.runs):
        directory = root / f"seed-{seed}"
        print(f"seed {seed}, history in {directory / 'history.jsonl'}", flush=True)
        try:
            failures += judge(Run(seed, directory, is_kafka=options.kafka).run(options.seconds))
        except Stuck as failure:
            print(f"STUCK: {failure}", flush=True)
            failures += 1
    return min(failures, 1)


def judge(history: Sequence[Event]) -> int:
    anomalies = check(history)
    print(", ".join(f"{name}: {count}" for name, count in summary(history).items()))
    troubles = Counter(
        event.text.partition("KafkaError{")[2] for event in history if isinstance(event, Troubled)
    )
    for text, count in troubles.most_common(SHOWN_MAX):
        print(f"  {count:4d} {text[:150]}")
    for anomaly in anomalies[:SHOWN_MAX]:
        print(anomaly)
    print(f"{len(anomalies)} anomalies", flush=True)
    return min(len(anomalies), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
