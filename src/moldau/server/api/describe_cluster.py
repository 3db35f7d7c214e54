"""DescribeCluster (key 60), versions 0-2: v1 which kind of endpoint (KIP-919), v2 fenced brokers."""

from __future__ import annotations

from moldau.server.cluster_view import CLUSTER_OPERATIONS, NO_BROKER, ClusterView
from moldau.server.context import RequestContext
from moldau.wire.errors import ErrorCode
from moldau.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS, _CONTROLLERS = 1, 2


def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint "
            "of type CONTROLLER",
        )
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    view = ClusterView.of(context)
    brokers = [
        DescribeClusterBroker(
            broker_id=broker.id,
            host=endpoint.host,
            port=endpoint.port,
            rack=broker.rack,
            is_fenced=broker.fenced,
        )
        for broker, endpoint in view.brokers(include_fenced=request.include_fenced_brokers)
    ]
    response = DescribeClusterResponse(
        cluster_id=context.services.cluster_id,
        # A controller that is not in the list would only confuse the client.
        controller_id=view.controller_id if view.can_reach(view.controller_id) else NO_BROKER,
        brokers=brokers,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
