"""Names that only the cluster knows, for whoever presses Tab: topics and groups.

A cluster that does not answer within a second has no names, and nothing is said about it: the line that is
being typed is no place for errors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import click

from moldau.client.cluster import Cluster

PATIENCE_S = 1.0
Ask = Callable[[Cluster], Awaitable[Iterable[str]]]


def topics(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    async def ask(cluster: Cluster) -> Iterable[str]:
        from moldau.client.admin import Admin

        view = await Admin(cluster).describe_topics()
        return (name for name, topic in view.topics.items() if not topic.is_internal)

    return _beginning(context, ask, incomplete)


def groups(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    async def ask(cluster: Cluster) -> Iterable[str]:
        from moldau.client.group_admin import GroupAdmin

        return (group.group_id for group in await GroupAdmin(cluster).list_groups())

    return _beginning(context, ask, incomplete)


def _beginning(context: click.Context, ask: Ask, incomplete: str) -> list[str]:
    addresses = context.params.get("bootstrap")
    if not addresses:
        return []
    import asyncio
    import logging

    from moldau.runtime.real import RealRuntime, run

    logging.disable()

    async def main(runtime: RealRuntime) -> list[str]:
        cluster = Cluster(runtime, addresses, request_timeout_s=PATIENCE_S, retry_timeout_s=PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S), cluster:
            return sorted(await ask(cluster))

    try:
        names = run(main)
    except Exception:
        return []
    finally:
        logging.disable(logging.NOTSET)
    return [name for name in names if name.startswith(incomplete)]
