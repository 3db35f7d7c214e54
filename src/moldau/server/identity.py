"""Who this node is, according to the meta.properties in its log directories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from moldau.log.directory import LogDirectory
from moldau.log.meta_properties import MetaProperties
from moldau.wire.ids import random_uuid


class IdentityError(Exception):
    """The directories do not belong to this node, or not to one node. The message says which, and what to
    do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    cluster_id: str
    node_id: int


def read_identity(directories: Sequence[LogDirectory], node_id: int, random: Random) -> Identity:
    """Raises IdentityError for directories that were never formatted, or for another node or cluster."""
    cluster_id: str | None = None
    ids: dict[bytes, str] = {}
    unformatted = []
    for directory in directories:
        properties = directory.properties
        if properties is None:
            unformatted.append(directory)
            continue
        if properties.node_id != node_id:
            raise IdentityError(
                f"{directory.path} belongs to node {properties.node_id}, and node.id is {node_id}: "
                "correct node.id, or give this node a directory of its own"
            )
        if cluster_id is not None and properties.cluster_id != cluster_id:
            raise IdentityError(
                f"{directory.path} belongs to cluster {properties.cluster_id}, "
                f"another directory of this node to {cluster_id}"
            )
        cluster_id = properties.cluster_id
        if properties.directory_id is None:  # as older releases of Kafka left it
            properties = replace(properties, directory_id=random_uuid(random))
            directory.write_properties(properties)
        assert properties.directory_id is not None
        if properties.directory_id in ids:
            raise IdentityError(
                f"{directory.path} and {ids[properties.directory_id]} have the same directory.id: "
                "one is a copy of the other, and only one of them can be used"
            )
        ids[properties.directory_id] = directory.path
    if cluster_id is None:
        paths = ", ".join(directory.path for directory in unformatted)
        raise IdentityError(f"{paths} is not formatted: run `moldau format` first")
    for directory in unformatted:
        # A directory that was added, or replaced by an empty one: it joins the node.
        directory.write_properties(
            MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=random_uuid(random))
        )
    return Identity(cluster_id=cluster_id, node_id=node_id)
