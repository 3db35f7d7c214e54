"""Directories say whose they are, and a node takes only its own."""

from __future__ import annotations

from random import Random

import pytest

from moldau.log.log_directories import LogDirectories
from moldau.log.meta_properties import MetaProperties, encode_meta_properties
from moldau.server.identity import Identity, IdentityError, read_identity
from moldau.sim.files import SimFileSystem


def directories(**properties: MetaProperties | None) -> LogDirectories:
    """Those at /<name>; None is one that was never formatted."""
    files = SimFileSystem()
    for name, written in properties.items():
        files.make_dirs(f"/{name}")
        if written is not None:
            files.write_atomically(f"/{name}/meta.properties", encode_meta_properties(written))
    return LogDirectories.open(files, [f"/{name}" for name in properties], Random(1))


def owned(number: int, **changes: object) -> MetaProperties:
    values = {"cluster_id": "c", "node_id": 1, "directory_id": bytes([number]) * 16}
    return MetaProperties(**{**values, **changes})  # type: ignore[arg-type]


def test_directories_of_one_node_are_that_node() -> None:
    ours = directories(a=owned(1), b=owned(2))
    assert read_identity(ours.online, 1, Random(0)) == Identity(cluster_id="c", node_id=1)


def test_a_new_directory_joins_and_an_old_one_gets_an_id() -> None:
    ours = directories(a=owned(1), new=None, old=owned(3, directory_id=None))
    read_identity(ours.online, 1, Random(0))
    told = [directory.properties for directory in ours.online]
    assert all(each is not None and (each.cluster_id, each.node_id) == ("c", 1) for each in told)
    assert len({directory.directory_id for directory in ours.online} - {None}) == 3


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({"a": None}, "not formatted"),
        ({"a": owned(1, node_id=2)}, "belongs to node 2"),
        ({"a": owned(1), "b": owned(2, cluster_id="other")}, "belongs to cluster other"),
        ({"a": owned(1), "b": owned(1)}, "copy of the other"),
    ],
)
def test_what_is_not_ours_is_refused(found: dict[str, MetaProperties | None], why: str) -> None:
    with pytest.raises(IdentityError, match=why):
        read_identity(directories(**found).online, 1, Random(0))
