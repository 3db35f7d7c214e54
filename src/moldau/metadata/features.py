"""Features of a cluster: their levels, what each needs, and which record versions a metadata.version allows.

A feature's finalized level is part of the metadata; the levels this software supports are facts of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from moldau.metadata import records
from moldau.metadata.framing import MetadataRecord
from moldau.wire.schema import Message

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"

# Level, name, and whether it changed what records may say: then there is no going back below it.
_METADATA_VERSIONS = (
    (7, "3.3-IV3", True),
    (8, "3.4-IV0", True),
    (9, "3.5-IV0", False),
    (10, "3.5-IV1", False),
    (11, "3.5-IV2", True),
    (12, "3.6-IV0", False),
    (13, "3.6-IV1", True),
    (14, "3.6-IV2", True),
    (15, "3.7-IV0", True),
    (16, "3.7-IV1", False),
    (17, "3.7-IV2", True),
    (18, "3.7-IV3", False),
    (19, "3.7-IV4", False),
    (20, "3.8-IV0", False),
    (21, "3.9-IV0", False),
    (22, "4.0-IV0", False),
    (23, "4.0-IV1", True),
    (24, "4.0-IV2", False),
    (25, "4.0-IV3", False),
    (26, "4.1-IV0", False),
    (27, "4.1-IV1", False),
    (28, "4.2-IV0", False),
    (29, "4.2-IV1", False),
    (30, "4.3-IV0", True),
)
METADATA_VERSION_NAMES: Mapping[int, str] = {level: name for level, name, _ in _METADATA_VERSIONS}
METADATA_VERSION_LEVELS: Mapping[str, int] = {name: level for level, name, _ in _METADATA_VERSIONS}
METADATA_VERSION_MIN = _METADATA_VERSIONS[0][0]
METADATA_VERSION_LATEST = METADATA_VERSION_LEVELS["4.3-IV0"]

_DIRECTORY_ASSIGNMENT = METADATA_VERSION_LEVELS["3.7-IV2"]
_TRANSACTIONS = METADATA_VERSION_LEVELS["3.6-IV1"]
_ELR = METADATA_VERSION_LEVELS["4.0-IV1"]
_CORDONED_DIRECTORIES = METADATA_VERSION_LEVELS["4.3-IV0"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSpec:
    """A feature beside metadata.version: its highest level, and for levels above 0 the metadata.version from
    which a new cluster has it, and the levels of other features that it needs."""

    latest: int
    bootstrap: Mapping[int, int]
    needs: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    def default_level(self, metadata_version: int) -> int:
        return max((level for level, since in self.bootstrap.items() if metadata_version >= since), default=0)


_LEVELS = METADATA_VERSION_LEVELS
FEATURES: Mapping[str, FeatureSpec] = {
    ELIGIBLE_LEADER_REPLICAS_VERSION: FeatureSpec(
        latest=1, bootstrap={1: _LEVELS["4.1-IV0"]}, needs={1: {METADATA_VERSION: _ELR}}
    ),
    GROUP_VERSION: FeatureSpec(latest=1, bootstrap={1: _LEVELS["4.0-IV0"]}),
    KRAFT_VERSION: FeatureSpec(latest=1, bootstrap={1: _LEVELS["3.9-IV0"]}),
    SHARE_VERSION: FeatureSpec(latest=1, bootstrap={1: _LEVELS["4.2-IV0"]}),
    STREAMS_VERSION: FeatureSpec(latest=1, bootstrap={1: _LEVELS["4.2-IV1"]}),
    TRANSACTION_VERSION: FeatureSpec(latest=2, bootstrap={1: _LEVELS["4.0-IV2"], 2: _LEVELS["4.0-IV2"]}),
}

SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION: (METADATA_VERSION_MIN, METADATA_VERSION_LATEST),
    **{name: (0, spec.latest) for name, spec in FEATURES.items()},
}
"""What this software can run with: feature name to its lowest and highest level."""


def bootstrap_features(metadata_version: int = METADATA_VERSION_LATEST) -> dict[str, int]:
    """The levels a new cluster starts with. kraft.version is not among them: it lives in control records."""
    levels = {METADATA_VERSION: metadata_version}
    for name, spec in FEATURES.items():
        level = spec.default_level(metadata_version)
        if name != KRAFT_VERSION and level > 0:
            levels[name] = level
    return levels


def bootstrap_records(features: Mapping[str, int] | None = None) -> list[MetadataRecord]:
    """The records that a new metadata log starts with, in the order of `bootstrap.checkpoint`."""
    levels = bootstrap_features() if features is None else features
    names = sorted(levels, key=lambda name: (name != METADATA_VERSION, name))
    return [
        MetadataRecord(records.FeatureLevelRecord(name=name, feature_level=levels[name]), 0) for name in names
    ]


def metadata_changed(older: int, newer: int) -> bool:
    """Whether records written at `newer` may say what `older` does not understand."""
    return any(changed for level, _, changed in _METADATA_VERSIONS if older < level <= newer)


def supports_transactions(metadata_version: int) -> bool:
    return metadata_version >= _TRANSACTIONS


def supports_directory_assignment(metadata_version: int) -> bool:
    return metadata_version >= _DIRECTORY_ASSIGNMENT


def supports_elr(metadata_version: int) -> bool:
    return metadata_version >= _ELR


def record_version(record_type: type[Message], metadata_version: int) -> int:
    """The version that records of a type are written with."""
    if record_type is records.RegisterBrokerRecord:
        if metadata_version >= _CORDONED_DIRECTORIES:
            return 4
        if metadata_version >= _DIRECTORY_ASSIGNMENT:
            return 3
        return 2 if metadata_version >= _LEVELS["3.4-IV0"] else 1
    if record_type in (records.PartitionRecord, records.PartitionChangeRecord):
        if metadata_version >= _ELR:
            return 2
        return 1 if metadata_version >= _DIRECTORY_ASSIGNMENT else 0
    return 0


def registration_change_version(change: records.BrokerRegistrationChangeRecord) -> int:
    """The lowest version that carries what the change says, as Kafka picks it."""
    if change.cordoned_log_dirs is not None:
        return 3
    if change.log_dirs:
        return 2
    return 1 if change.in_controlled_shutdown else 0
