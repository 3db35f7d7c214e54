from __future__ import annotations

import pytest
from log_samples import LOG_DIR

from moldau.sim.files import SimFileSystem


@pytest.fixture
def files() -> SimFileSystem:
    files = SimFileSystem()
    files.make_dirs(LOG_DIR)
    return files
