"""A node to call, for tests that do not start one themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.sim_node import SimNode


@pytest.fixture
def node() -> Iterator[SimNode]:
    with SimNode() as node:
        yield node
