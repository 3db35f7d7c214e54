from __future__ import annotations

from moldau.controller.features import UPGRADE, decide_update_features
from moldau.metadata.image import ClusterImage
from moldau.wire.errors import ErrorCode
from moldau.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest


def test_a_feature_that_nobody_knows_is_refused_at_level_zero_too():
    for name in ("no.such.feature", "", "x" * 300):
        update = FeatureUpdateKey(feature=name, max_version_level=0, upgrade_type=UPGRADE)
        decision = decide_update_features(
            ClusterImage(), UpdateFeaturesRequest(feature_updates=[update]), version=2, node_id=1
        )
        assert decision.records == []
        assert decision.reply.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert name in decision.reply.error_message
