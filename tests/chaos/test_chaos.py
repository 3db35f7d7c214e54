"""A short run of the chaos; `python -m tests.chaos` makes long ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.checker import check, summary
from tests.chaos.run import Run


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_transactions_hold_while_clients_and_broker_are_killed(tmp_path: Path):
    seed = int(os.environ.get("MOLDAU_SEED") or 7)
    events = Run(seed, tmp_path / "run").run(seconds=12)
    anomalies = check(events)
    history = tmp_path / "run" / "history.jsonl"
    assert not anomalies, "\n".join(
        [f"seed {seed}, history in {history}, {summary(events)}", *map(str, anomalies[:30])]
    )
