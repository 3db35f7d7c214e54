"""`python -m bench`: run the loads on both brokers and the stub, interleaved, and print the ratios."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from bench import brokers, report
from bench.catalog import LOADS, ROWS
from bench.kafka import LIBS, REPOSITORY, VERSION, JavaMissing, java_missing, kafka_classpath
from bench.loads import Load, Sample, Subject

_QUICK_SCALE = 0.1
_FREE_BYTES_NEEDED = 8_000_000_000


def main() -> int:
    arguments = _arguments()
    if arguments.list:
        for load in LOADS:
            print(load.name)
        return 0
    console = Console(soft_wrap=False, width=None if sys.stdout.isatty() else 150)
    names, loads = _what_can_run(arguments.subjects, _chosen(arguments.only), console)
    if not loads:
        console.print("nothing to run")
        return 1
    arguments.dir.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(arguments.dir).free < _FREE_BYTES_NEEDED:
        console.print(f"less than {_FREE_BYTES_NEEDED // 10**9} GB free in {arguments.dir}")
        return 1
    directory = Path(tempfile.mkdtemp(prefix="run-", dir=arguments.dir))
    subjects = [Subject(name, directory) for name in names]
    samples: dict[str, dict[str, list[Sample]]] = {}
    scale = _QUICK_SCALE if arguments.quick else 1.0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # no broker may outlive the run
    try:
        for load in loads:
            samples[load.name] = run(load, subjects, arguments.repeat, scale, console)
    except KeyboardInterrupt:
        console.print("interrupted: the table shows what was finished")
    finally:
        for subject in subjects:
            subject.stop()
        shutil.rmtree(directory, ignore_errors=True)
    report.show(samples, ROWS, console)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(_document(samples, arguments), indent=1))
    return 0


def run(
    load: Load, subjects: Sequence[Subject], repeat: int, scale: float, console: Console
) -> dict[str, list[Sample]]:
    """One untimed round, then `repeat` rounds; every second one goes through the subjects backwards.

    A subject that fails is reported, and left out of the rest of this load.
    """
    taking_part = [subject for subject in subjects if load.on_stub or subject.name != "stub"]
    samples: dict[str, list[Sample]] = {subject.name: [] for subject in taking_part}
    for number in range(repeat + 1):
        for subject in list(taking_part if number % 2 else reversed(taking_part)):
            os.sync()  # what earlier runs left to write back is not this one's burden
            try:
                sample = load.run(subject, scale)
            except Exception as error:  # a broker may fail in any way; what the others do must not be lost
                what = escape(f"{load.name} {subject.name}: {type(error).__name__}: {error}")
                console.print(f"[red]{what}[/]", highlight=False)
                taking_part.remove(subject)
                continue
            shown = "  ".join(f"{name}={value:,.4g}" for name, value in sample.items())
            when = "warm-up" if number == 0 else f"round {number}"
            console.print(f"{load.name:24} {subject.name:7} {when:8} {shown}", highlight=False)
            if number:
                samples[subject.name].append(sample)
    for subject in taking_part:
        load.finish(subject)
    return {name: taken for name, taken in samples.items() if taken}


def _what_can_run(
    names: Sequence[str], loads: Sequence[Load], console: Console
) -> tuple[list[str], list[Load]]:
    """Leave out, with a word why, the subjects and the loads that this machine has no means for."""
    missing_java = java_missing()
    if not missing_java:
        try:
            if not LIBS.is_dir():
                console.print(f"fetching Apache Kafka {VERSION} through Maven, once")
            kafka_classpath()
        except JavaMissing as error:
            missing_java = str(error)
    runnable = []
    for name in names:
        missing = missing_java if name == "kafka" else brokers.missing(name)
        if missing:
            console.print(f"[yellow]without {name}[/]: {missing}", highlight=False)
        else:
            runnable.append(name)
    kept = [load for load in loads if not (load.needs_java and missing_java)]
    if left_out := [load.name for load in loads if load not in kept]:
        console.print(f"[yellow]left out[/] {', '.join(left_out)}: {missing_java}", highlight=False)
    return runnable, kept


def _chosen(patterns: Sequence[str]) -> list[Load]:
    for pattern in patterns:
        if not any(fnmatch(load.name, pattern) for load in LOADS):
            sys.exit(f"no load is called {pattern}; there are: {', '.join(load.name for load in LOADS)}")
    return [load for load in LOADS if not patterns or any(fnmatch(load.name, each) for each in patterns)]


def _document(samples: report.Samples, arguments: argparse.Namespace) -> dict[str, object]:
    results = [
        {
            "work": line.row.title,
            "load": line.row.load,
            "metric": line.row.metric,
            "versus": line.target.versus,
            "ratio": line.ratio
            and {"median": line.ratio.median, "min": line.ratio.low, "max": line.ratio.high},
            "target": str(line.target) if line.asked else None,
            "verdict": line.verdict,
        }
        for line in report.lines(samples, ROWS)
    ]
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "kafka": VERSION,
        "python": platform.python_version(),
        "machine": platform.platform(),
        "cpus": os.cpu_count(),
        "quick": arguments.quick,
        "results": results,
        "samples": samples,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], metavar="LOAD", help="a load, or a pattern; repeatable"
    )
    parser.add_argument("--list", action="store_true", help="name the loads and stop")
    parser.add_argument(
        "--repeat", type=int, default=5, metavar="N", help="rounds after the warm-up (default 5)"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: to try, not to quote")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample and ratio there")
    parser.add_argument(
        "--subjects",
        nargs="+",
        default=list(brokers.SUBJECTS),
        choices=list(brokers.SUBJECTS),
        help="default: all three",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=REPOSITORY / "bench" / "results",
        help="where data directories go (default %(default)s)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
