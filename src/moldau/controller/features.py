"""Moving the finalized level of features up or down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from moldau.controller.configs import elr_configs
from moldau.controller.decision import Decision, versioned
from moldau.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_NAMES,
    SUPPORTED_FEATURES,
    metadata_changed,
)
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import FeatureLevelRecord
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from moldau.wire.schema import Message

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def decide_update_features(
    image: ClusterImage,
    request: UpdateFeaturesRequest,
    *,
    version: int,
    node_id: int,
    kraft_version: int = 0,
    min_insync_replicas: str = "1",
) -> Decision[UpdateFeaturesResponse]:
    """All of the updates or none. `version` is the request's, `node_id` this controller's, `kraft_version`
    what the quorum runs with: no record of the cluster's metadata says it. `min_insync_replicas` is what this
    node was started with."""
    proposed = {**image.features, METADATA_VERSION: image.metadata_version, KRAFT_VERSION: kraft_version}
    present = dict(proposed)
    proposed.update({update.feature: update.max_version_level for update in request.feature_updates})
    records: list[Message] = []
    # Of a feature that is named several times, the last word counts.
    for update in {update.feature: update for update in request.feature_updates}.values():
        try:
            _check_update(image, update, present, proposed, node_id)
        except KafkaError as error:
            return Decision(
                records=[],
                reply=UpdateFeaturesResponse(
                    error_code=error.code,
                    error_message="The update failed for all features since the following feature had an "
                    f"error: {error.message}",
                ),
            )
        if update.feature == ELIGIBLE_LEADER_REPLICAS_VERSION and update.max_version_level > 0:
            records += elr_configs(image, min_insync_replicas)
        if update.feature != KRAFT_VERSION:
            records.append(FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level))
    reply = UpdateFeaturesResponse(error_message=None)
    if version <= 1:
        reply.results = [
            # Where others have no message, Kafka has the name of the code here.
            UpdatableFeatureResult(feature=update.feature, error_message=ErrorCode.NONE.name)
            for update in request.feature_updates
        ]
    return Decision(records=[] if request.validate_only else versioned(image, records), reply=reply)


def _check_update(
    image: ClusterImage,
    update: FeatureUpdateKey,
    present: Mapping[str, int],
    proposed: Mapping[str, int],
    node_id: int,
) -> None:
    # Version 0 says allow_downgrade instead, which Kafka does not look at: an upgrade is all it can ask for.
    name, level, upgrade_type = update.feature, update.max_version_level, update.upgrade_type

    def refused(reason: str) -> KafkaError:
        return KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {reason}"
        )

    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise refused("The controller does not support the given upgrade type.")
    if level < 0:
        raise refused("A feature version cannot be less than 0.")
    for who, supported in _everyone(image, node_id):
        low, high = supported.get(name, (0, 0))
        if not low <= level <= high:
            if high == 0:
                raise refused(f"{who} does not support this feature.")
            raise refused(f"{who} only supports versions {low}-{high}")
    current = present.get(name, 0)
    if level < current and upgrade_type == UPGRADE:
        raise refused(
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if level > current and upgrade_type != UPGRADE:
        raise refused("Can't downgrade to a newer version.")
    if name == METADATA_VERSION:
        _check_metadata_version(image, level, upgrade_type)
    elif name == KRAFT_VERSION:
        if level < current:
            raise refused("Can't downgrade the version of this feature.")
        if level > current:
            raise refused("The voters of this quorum stay where they are kept.")
    elif name not in FEATURES:
        raise refused(f"Feature {name} not found.")  # level 0 of it is no range's business
    else:
        for needed, needed_level in FEATURES[name].needs.get(level, {}).items():
            if proposed.get(needed, 0) < needed_level:
                raise refused(
                    f"{name} could not be set to {level} because it depends on {needed} level {needed_level}"
                )


def _check_metadata_version(image: ClusterImage, level: int, upgrade_type: int) -> None:
    current = image.metadata_version
    if level not in METADATA_VERSION_NAMES:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION, f"Invalid metadata.version {level}. Unknown metadata.version."
        )
    if level < current and metadata_changed(level, current):
        reason = "Refusing to perform the requested downgrade because it might delete metadata information."
        if upgrade_type == UNSAFE_DOWNGRADE:
            reason = "Unsafe metadata downgrade is not supported in this version."
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {level}. {reason}",
        )


def _everyone(image: ClusterImage, node_id: int) -> Iterator[tuple[str, Mapping[str, tuple[int, int]]]]:
    yield f"Local controller {node_id}", SUPPORTED_FEATURES
    for broker in image.brokers.values():
        yield f"Broker {broker.id}", broker.features
    for controller in image.controllers.values():
        if controller.id != node_id:
            yield f"Controller {controller.id}", controller.features
