"""UnregisterBroker (key 64), version 0: forget a broker that is gone for good."""

from __future__ import annotations

from moldau.controller.brokers import decide_unregister_broker
from moldau.server.context import RequestContext
from moldau.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    return await context.services.controller.submit(lambda image: decide_unregister_broker(image, request))
