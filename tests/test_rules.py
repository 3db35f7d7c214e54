"""Rule rooms take time and chance as arguments: the part of it that import contracts cannot see.

Some modules hold values as well as clocks or chance, so here it is the names that count.

`from random import Random` names a type that a caller seeds; `random.choice` is chance out of nowhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "moldau"
RULE_ROOMS = (
    "config",
    "wire",
    "records",
    "metadata",
    "controller",
    "groups",
    "share",
    "txn",
    "client/producing",
    "perf/measure",
)
VALUES = {
    "random": {"Random"},
    "uuid": {"UUID", "NAMESPACE_DNS", "uuid3", "uuid5"},
    "datetime": {"UTC", "date", "datetime", "time", "timedelta", "timezone"},
}
CLOCKS = {"now", "today", "utcnow"}


def broken_rules(source: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(source)
    # A seeded Random may well be called `random`: only what was imported is the module.
    modules = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name in VALUES
    }
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module in VALUES:
                for alias in names:
                    if alias.name not in VALUES[module]:
                        yield node.lineno, f"{module}.{alias.name}"
            case ast.Attribute(value=ast.Name(id=str(name)), attr=attr) if name in modules:
                if attr not in VALUES[modules[name]]:
                    yield node.lineno, f"{modules[name]}.{attr}"
            case ast.Attribute(value=ast.Attribute(attr=cls) | ast.Name(id=cls), attr=attr):
                if cls in {"date", "datetime"} and attr in CLOCKS:
                    yield node.lineno, f"{cls}.{attr}"


@pytest.mark.parametrize("room", RULE_ROOMS)
def test_rule_rooms_take_time_and_chance_as_arguments(room: str) -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path in sorted((SOURCE / room).rglob("*.py"))
        for line, name in broken_rules(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "from random import choice",
        "import random\nrandom.random()",
        "import uuid as ids\nids.uuid4()",
        "from uuid import uuid4",
        "from datetime import datetime\ndatetime.now()",
        "import datetime\ndatetime.datetime.utcnow()",
        "from datetime import date\ndate.today()",
    ],
)
def test_chance_and_clocks_are_seen(source: str) -> None:
    assert list(broken_rules(source)) != []


@pytest.mark.parametrize(
    "source",
    [
        "from random import Random\ndef pick(random: Random) -> int:\n    return random.randrange(3)",
        "from uuid import UUID\nZERO = UUID(int=0)",
        "import datetime\ndatetime.datetime.fromtimestamp(0, datetime.UTC)",
    ],
)
def test_values_are_allowed(source: str) -> None:
    assert list(broken_rules(source)) == []
