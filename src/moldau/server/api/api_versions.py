"""ApiVersions (key 18), versions 0-4: what we speak, v3 flexible, features and the client's software."""

from __future__ import annotations

import re

from moldau.config.broker import BrokerConfig
from moldau.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from moldau.server.api import apis
from moldau.server.context import RequestContext
from moldau.wire.api import ApiKey
from moldau.wire.errors import ErrorCode
from moldau.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


# A client that finds these asks for its subscription and tells its user; Kafka, too, leaves them out unless
# something takes what clients push.
_OF_TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)


def advertised(config: BrokerConfig, *, telemetry: bool) -> list[ApiVersion]:
    # librdkafka before 2.8 takes an answer without Produce v0 for one without Produce; Kafka 4 claims it too.
    return [
        ApiVersion(
            api_key=api.key,
            min_version=0 if api.key == ApiKey.PRODUCE else api.first,
            max_version=api.last,
        )
        for api in apis(config)
        if telemetry or api.key not in _OF_TELEMETRY
    ]


def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        context.connection.client_software = (name, version)
    image, kraft_version = context.services.image(), context.services.quorum.kraft_version
    # The quorum's own feature is in its log and not in the image; level 0 is as good as not there.
    finalized = {**image.features, KRAFT_VERSION: kraft_version} if kraft_version else image.features
    telemetry = context.services.telemetry
    telemetry.update(image.configs)
    return ApiVersionsResponse(
        api_keys=advertised(context.services.config, telemetry=telemetry.is_asked_for),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
            # Before version 4 a client could not read a feature whose range begins at 0 (KIP-1011).
            if low > 0 or context.version >= 4
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized.items()
        ],
    )
