"""The pytest plugin: the fixtures `moldau` and `moldau_node`, and the ini option `moldau_options`.

The only module that knows pytest; it is imported at the start of every run, and imports nothing else then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from moldau.testing.nodes import Node


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "moldau_options",
        "Properties of the node behind the fixture `moldau`, a line each: name=value",
        type="linelist",
        default=[],
    )


@pytest.fixture(scope="session")
def moldau_node(pytestconfig: pytest.Config) -> Iterator[Node]:
    """A Kafka node for the whole run, on a free port, started when first asked for."""
    from moldau.testing.nodes import node

    with node(options=_options(pytestconfig.getini("moldau_options"))) as running:
        yield running


@pytest.fixture
def moldau(moldau_node: Node) -> Iterator[Node]:
    """The same node for one test: afterwards it runs without faults, and topics that came up are deleted."""
    with moldau_node.isolated() as mine:
        yield mine


def _options(lines: Iterable[str]) -> dict[str, str]:
    options = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"moldau_options: {line!r} is not name=value")
        options[name.strip()] = value.strip()
    return options
