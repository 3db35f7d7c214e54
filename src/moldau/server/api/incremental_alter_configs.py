"""IncrementalAlterConfigs (key 44), versions 0-1: overrides set, deleted, appended to and subtracted from,
one by one; v1 flexible.

The controller decides on what is kept. The levels of this broker's loggers are not kept: they are set here
and last as long as the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from moldau.config.alter import Operation
from moldau.config.option import parse_int
from moldau.controller.configs import decide_incremental_alter_configs
from moldau.metadata.image import ResourceType
from moldau.server.context import RequestContext
from moldau.server.loggers import ROOT, SETTABLE_LEVELS, Loggers
from moldau.server.services import Services
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    services = context.services
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    to_decide: list[AlterConfigsResource] = []
    done: dict[int, AlterConfigsResourceResponse] = {}
    for number, resource in enumerate(request.resources):
        answer = AlterConfigsResourceResponse(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            if resource.resource_type == ResourceType.BROKER_LOGGER:
                done[number] = answer
                if counts[resource.resource_type, resource.resource_name] > 1:
                    raise _invalid("Each resource must appear at most once.")
                _alter_loggers(services, resource, request.validate_only)
                continue
            if resource.resource_type == ResourceType.BROKER and resource.resource_name:
                check_node_id(resource.resource_name, services.node_id)
            to_decide.append(resource)
        except KafkaError as failure:
            answer.error_code, answer.error_message = failure.code, failure.message
            done[number] = answer
    decided = await _decide(services, to_decide, request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[done.get(number) or next(decided) for number in range(len(request.resources))]
    )


async def _decide(
    services: Services, resources: list[AlterConfigsResource], validate_only: bool
) -> Iterator[AlterConfigsResourceResponse]:
    if not resources:
        return iter(())
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    reply = await services.controller.submit(
        lambda image: decide_incremental_alter_configs(image, request, config=services.config)
    )
    return iter(reply.responses)


def check_node_id(name: str, node_id: int) -> None:
    """A broker's own options are checked against what it runs with, so only the broker itself takes them."""
    try:
        named = parse_int(name)
    except ValueError:
        raise _invalid(f"Node id must be an integer, but it is: {name}") from None
    if named != node_id:
        raise _invalid(f"Unexpected broker id, expected {node_id}, but received {name}")


def _alter_loggers(services: Services, resource: AlterConfigsResource, validate_only: bool) -> None:
    """All of the resource's changes or, if one of them is wrong, none."""
    loggers = services.loggers
    changes = resource.configs
    if len({change.name for change in changes}) != len(changes):
        raise _invalid("Error due to duplicate config keys")
    unset = [
        change.name
        for change in changes
        if change.value is None and change.config_operation != Operation.DELETE
    ]
    if unset:
        raise _invalid(f"Null value not supported for : {', '.join(unset)}")
    check_node_id(resource.resource_name, services.node_id)
    _check_logger_changes(loggers, changes)
    if validate_only:
        return
    for change in changes:
        if change.config_operation == Operation.DELETE:
            loggers.unset_level(change.name)
        else:
            loggers.set_level(change.name, change.value or "")


def _check_logger_changes(loggers: Loggers, changes: Sequence[AlterableConfig]) -> None:
    for change in changes:
        name, operation = change.name, change.config_operation
        if operation not in (Operation.SET, Operation.DELETE):
            known = operation in (Operation.APPEND, Operation.SUBTRACT)
            what = Operation(operation).name if known else str(operation)
            raise _invalid(f"{what} operation is not allowed for the BROKER_LOGGER resource")
        if not loggers.exists(name):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if operation == Operation.DELETE:
            if name == ROOT:
                raise _invalid(f"Removing the log level of the {ROOT} logger is not allowed")
        elif change.value not in SETTABLE_LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {change.value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(SETTABLE_LEVELS)}",
            )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
