"""What a controller appends when it takes over: the bootstrap records of a new cluster, or the end of a
transaction that its predecessor left open."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.controller.configs import elr_configs
from moldau.controller.decision import Decision
from moldau.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_MIN,
    supports_transactions,
)
from moldau.metadata.framing import MetadataRecord
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)


def decide_activation(
    image: ClusterImage,
    *,
    in_transaction: bool,
    bootstrap: Sequence[MetadataRecord],
    min_insync_replicas: int = 1,
) -> Decision[None]:
    """`in_transaction`: the log ends inside one. A cluster without any feature level is a new one."""
    records: list[MetadataRecord] = []
    if in_transaction:
        records.append(MetadataRecord(AbortTransactionRecord(reason="Controller failover"), 0))
    if image.features:
        return Decision(records=records, reply=None)
    levels = {
        record.message.name: record.message.feature_level
        for record in bootstrap
        if isinstance(record.message, FeatureLevelRecord)
    }
    start = list(bootstrap)
    if levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0:
        # With ELR the value has to be the same for everyone, so it is taken from the log and not from each
        # node's properties (KIP-966).
        start += [MetadataRecord(change, 0) for change in elr_configs(image, str(min_insync_replicas))]
    if supports_transactions(levels.get(METADATA_VERSION, METADATA_VERSION_MIN)):
        start.insert(0, MetadataRecord(BeginTransactionRecord(name="Bootstrap records"), 0))
        start.append(MetadataRecord(EndTransactionRecord(), 0))
    return Decision(records=[*records, *start], reply=None)
