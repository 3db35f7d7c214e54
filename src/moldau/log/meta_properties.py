"""`meta.properties`: whose log directory this is. Version 1 is KRaft's; version 0 was ZooKeeper's, and only
read."""

from __future__ import annotations

from dataclasses import dataclass, field

from moldau.log.errors import CorruptFileError
from moldau.log.partition_metadata import decode_uuid, encode_uuid

META_PROPERTIES = "meta.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: bytes | None = None
    version: int = 1
    other: dict[str, str] = field(default_factory=dict)
    """Properties we do not know: they stay as they are."""


def encode_meta_properties(properties: MetaProperties) -> bytes:
    lines = ["#"]
    if properties.node_id is not None:
        lines.append(f"node.id={properties.node_id}")
    if properties.directory_id is not None:
        lines.append(f"directory.id={encode_uuid(properties.directory_id)}")
    lines.append(f"version={properties.version}")
    if properties.cluster_id is not None:
        lines.append(f"cluster.id={properties.cluster_id}")
    lines += [f"{name}={value}" for name, value in properties.other.items()]
    return ("\n".join(lines) + "\n").encode()


def decode_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Raises CorruptFileError with the property at fault."""
    values: dict[str, str] = {}
    for line in data.decode(errors="replace").splitlines():
        text = line.strip()
        if text and text[0] not in "#!":
            name, separator, value = text.partition("=")
            if not separator:
                raise CorruptFileError(f"{path}: not a property: {text[:80]!r}")
            values[name.strip()] = value.strip()
    name = "version"
    try:
        version = int(values.pop(name, "0"))
        if version not in (0, 1):
            raise ValueError("unknown version")
        name = "broker.id" if version == 0 else "node.id"
        node_id = int(values.pop(name)) if name in values else None
        name = "directory.id"
        directory_id = decode_uuid(values.pop(name)) if name in values else None
    except ValueError as error:
        raise CorruptFileError(f"{path}: {name}: {error}") from None
    cluster_id = values.pop("cluster.id", None)
    if version == 1 and (cluster_id is None or node_id is None):
        missing = "cluster.id" if cluster_id is None else "node.id"
        raise CorruptFileError(f"{path}: {missing} is missing")
    return MetaProperties(
        cluster_id=cluster_id, node_id=node_id, directory_id=directory_id, version=version, other=values
    )
