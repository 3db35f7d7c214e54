"""Ratios are taken round by round, and held against the targets."""

import io

import pytest
from rich.console import Console

from bench.catalog import LOADS, ROWS, Row, Target
from bench.report import Spread, lines, show

FASTER = Row(load="work", metric="mb_per_s", title="some work", targets=(Target(at_least=1.2),))
LEANER = Row(load="work", metric="loaded_mib", title="some memory", targets=(Target(at_most=1 / 8),))


def samples(moldau: list[float], kafka: list[float], metric: str = "mb_per_s"):
    return {"work": {"moldau": [{metric: v} for v in moldau], "kafka": [{metric: v} for v in kafka]}}


def test_a_ratio_compares_neighbours_in_time():
    # The machine became half as fast after the first round; the ratios do not see it.
    (line,) = lines(samples(moldau=[130, 65, 60], kafka=[100, 50, 50]), [FASTER])
    assert line.ratio == Spread(median=1.3, low=1.2, high=1.3)
    assert line.verdict == "pass"


@pytest.mark.parametrize(
    ("row", "ours", "verdict"), [(FASTER, 119, "miss"), (LEANER, 12, "pass"), (LEANER, 13, "miss")]
)
def test_a_target_is_a_bound_on_the_median(row: Row, ours: float, verdict: str):
    (line,) = lines(samples([ours], [100], row.metric), [row])
    assert line.verdict == verdict


def test_the_stub_is_shown_beside_kafka_where_it_ran():
    measured = samples([100], [50])
    measured["work"]["stub"] = [{"mb_per_s": 200}]
    against_kafka, against_stub = lines(measured, [FASTER])
    assert (against_kafka.target.versus, against_stub.target.versus) == ("kafka", "stub")
    assert (against_stub.ratio.median, against_stub.verdict) == (0.5, "")


def test_what_did_not_run_has_no_verdict():
    (line,) = lines({"work": {"kafka": [{"mb_per_s": 1.0}]}}, [FASTER])
    assert (line.ratio, line.verdict) == (None, "")
    assert lines({}, [FASTER]) == []


def test_the_table_says_it_all():
    console = Console(record=True, width=150, file=io.StringIO())
    show(samples(moldau=[1300], kafka=[1000]), [FASTER], console)
    text = console.export_text()
    for words in ("some work", "MB/s", "1,300", "1,000", "1.30 to 1.30", "≥ 1.20", "pass"):
        assert words in text


def test_every_row_reads_a_load_that_exists():
    names = [load.name for load in LOADS]
    assert len(set(names)) == len(names)
    assert {row.load for row in ROWS} == set(names)
