"""What all tests share: hypothesis profiles, and which marked tests can run on this machine.

A test marked `java` is skipped, with the reason, where Java or Maven is missing. Where both are on the PATH
of a build server (CI=true) nothing is skipped: failing to get Kafka's jars is then a failure of the build.
Ports are never handed out here: a test binds port 0 and asks what it got.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# On a busy machine every deadline is a false alarm; with the same inputs on each build, red means "broken".
settings.register_profile("dev", deadline=None)
settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    java_items = [item for item in items if item.get_closest_marker("java")]
    if not java_items:
        return
    from bench.kafka import java_missing

    if missing := java_missing():
        for item in java_items:
            item.add_marker(pytest.mark.skip(reason=f"Kafka's own tools cannot run: {missing}"))


@pytest.fixture(scope="session")
def kafka_classpath() -> str:
    """The class path of Kafka's server and tools, for `java -cp`; fetches the jars when first used."""
    from bench import kafka

    try:
        return kafka.kafka_classpath()
    except kafka.JavaMissing as problem:
        if os.environ.get("CI") and kafka.java_missing() is None:
            pytest.fail(str(problem))
        pytest.skip(str(problem))
