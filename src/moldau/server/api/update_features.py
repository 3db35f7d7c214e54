"""UpdateFeatures (key 57), versions 0-2: v1 upgrade types and validation only, v2 one code for all."""

from __future__ import annotations

from moldau.controller.features import decide_update_features
from moldau.server.context import RequestContext
from moldau.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


async def handle(context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    services = context.services
    return await services.controller.submit(
        lambda image: decide_update_features(
            image,
            request,
            version=context.version,
            node_id=services.node_id,
            kraft_version=services.quorum.kraft_version,
            min_insync_replicas=services.config.static.get("min.insync.replicas", "1"),
        )
    )
