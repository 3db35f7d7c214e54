"""From samples to the table: ratios within each round, median and spread, target met or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.catalog import Row, Target
from bench.loads import Sample

# load -> subject -> one sample a round; round i of one subject ran next to round i of the others
Samples = Mapping[str, Mapping[str, Sequence[Sample]]]

_UNITS = {
    "records_per_s": "records/s",
    "requests_per_s": "requests/s",
    "commits_per_s": "commits/s",
    "transactions_per_s": "transactions/s",
    "mb_per_s": "MB/s",
    "p50_ms": "ms",
    "p99_ms": "ms",
    "p50_times": "times",
    "p99_times": "times",
    "seconds": "s",
    "beyond_s": "s",
    "loading_s": "s",
    "idle_mib": "MiB",
    "loaded_mib": "MiB",
    "cpu_s_per_gb": "CPU s",
    "cpu_s_per_100k": "CPU s",
    "cpu_s_per_1k": "CPU s",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread | None:
    return Spread(median=median(values), low=min(values), high=max(values)) if values else None


def values(samples: Samples, row: Row, subject: str) -> list[float]:
    return [sample[row.metric] for sample in samples.get(row.load, {}).get(subject, [])]


def ratios(samples: Samples, row: Row, subject: str, versus: str) -> list[float]:
    """Round by round, since neighbours in time share what else the machine is doing."""
    pairs = zip(values(samples, row, subject), values(samples, row, versus), strict=False)
    return [ours / theirs for ours, theirs in pairs if theirs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row's comparison with one other subject."""

    row: Row
    target: Target
    asked: bool  # whether the target is one to reach, or the comparison is for information
    ratio: Spread | None

    @property
    def verdict(self) -> str:
        if self.ratio is None or not self.asked:
            return ""
        return "pass" if self.target.met(self.ratio.median) else "miss"


def lines(samples: Samples, rows: Sequence[Row]) -> list[Line]:
    """Of the rows whose load was run. The stub, where it ran, is always there as the limit."""
    found = []
    for row in rows:
        measured = samples.get(row.load, {})
        if not measured:
            continue
        targets = {target.versus: target for target in row.targets}
        for versus in ("kafka", "stub"):
            if versus in targets or versus in measured:
                comparison = ratios(samples, row, "moldau", versus)
                found.append(
                    Line(
                        row=row,
                        target=targets.get(versus, Target(versus=versus)),
                        asked=versus in targets,
                        ratio=spread(comparison),
                    )
                )
    return found


def show(samples: Samples, rows: Sequence[Row], console: Console) -> None:
    table = Table(
        title="Moldau / other, median of the rounds' ratios (lowest to highest)", title_justify="left"
    )
    for heading in ("work", "unit"):
        table.add_column(heading)
    for heading in ("Moldau", "other", "", "ratio", "spread", "target", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in lines(samples, rows):
        row, versus = line.row, line.target.versus
        ratio, between = "", ""
        if line.ratio is not None:
            ratio = f"{line.ratio.median:.2f}"
            between = f"{line.ratio.low:.2f} to {line.ratio.high:.2f}"
        verdict = {"pass": "[green]pass[/]", "miss": "[red]miss[/]"}.get(line.verdict, "")
        table.add_row(
            row.title,
            _UNITS.get(row.metric, row.metric),
            _number(spread(values(samples, row, "moldau"))),
            _number(spread(values(samples, row, versus))),
            versus,
            ratio,
            between,
            str(line.target) if line.asked else "",
            verdict,
        )
    console.print(table)


def _number(found: Spread | None) -> str:
    if found is None:
        return "-"
    if found.median >= 1000:
        return f"{found.median:,.0f}"
    return f"{found.median:.3g}"
