"""Runs one node in this process until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from moldau.config.broker import BrokerConfig
from moldau.log.meta_properties import META_PROPERTIES
from moldau.log.names import parse_log_dir_name
from moldau.log.open_files import DEFAULT_SEGMENTS_MAX, OpenFiles
from moldau.net.connection import Handler
from moldau.raft.format import FormatError, format_directories
from moldau.runtime.interfaces import FileSystem, Runtime
from moldau.runtime.process import read_process_usage
from moldau.runtime.real import RealRuntime, run
from moldau.server.node import Node, StartError
from moldau.wire.ids import random_uuid, uuid_to_string

# Of the files a process may open, this share is for segments; the rest is for connections.
_SEGMENT_SHARE = 1 / 16


class Rig(Protocol):
    """What a test puts between a node and the world (`moldau.testing.control`). Without one, nothing is
    there."""

    def prepare(self, runtime: RealRuntime) -> None:
        """Before anything else happens."""
        ...

    def in_front_of(self, dispatch: Handler) -> Handler:
        """What the connections call instead of the dispatcher."""
        ...

    def attach(self, node: Node) -> None:
        """The node is ready."""
        ...


def run_up(properties: Mapping[str, str], rig: Rig | None = None) -> int:
    """A node whose data directory is made and formatted if it is new. The exit code; raises ConfigError."""
    return _run(BrokerConfig.parse(properties), format_new=True, rig=rig)


def run_broker(properties: Mapping[str, str]) -> int:
    """A node on directories that were formatted before, as with Kafka. The exit code; raises ConfigError."""
    return _run(BrokerConfig.parse(properties), format_new=False)


def _run(config: BrokerConfig, *, format_new: bool, rig: Rig | None = None) -> int:
    logging.basicConfig(
        level=logging.WARNING if format_new else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s (%(name)s)",
    )

    def ready(node: Node) -> None:
        if rig is not None:
            rig.attach(node)
        metrics = f" metrics=http://{node.metrics_address}/metrics" if node.metrics_address else ""
        print(f"ready bootstrap={node.bootstrap} data={','.join(config.log_dirs)}{metrics}", flush=True)

    try:
        return run_node(config, format_new=format_new, on_ready=ready, rig=rig)
    except StartError as error:
        print(f"moldau: {error}", file=sys.stderr)
        return 1


def run_node(
    config: BrokerConfig,
    *,
    format_new: bool = False,
    on_ready: Callable[[Node], None] | None = None,
    rig: Rig | None = None,
) -> int:
    """The exit code: 0 after a clean stop, 1 if the node could not go on. Raises StartError."""

    async def main(runtime: RealRuntime) -> int:
        stop = asyncio.Event()
        runtime.on_signal(stop.set)
        if rig is not None:
            rig.prepare(runtime)
        if format_new:
            format_new_directories(runtime, config)
        node = await Node.start(
            runtime,
            config,
            OpenFiles(_raise_file_limit()),
            read_process_usage,
            None if rig is None else rig.in_front_of,
        )
        try:
            _quiet_the_heap()
            if on_ready is not None:
                on_ready(node)
            waits: list[asyncio.Task[Any]] = [
                runtime.spawn(stop.wait(), "wait for a signal"),
                runtime.spawn(node.failed.wait(), "wait for a failure"),
            ]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        finally:
            is_clean = await node.stop()
        return 0 if is_clean else 1

    return run(main, io_threads=config.node.num_io_threads)


def format_new_directories(runtime: Runtime, config: BrokerConfig) -> None:
    """Makes the node the first of a new cluster, if none of its directories belongs to one. Raises
    StartError."""
    directories = list(config.log_dirs)
    try:
        if any(runtime.files.exists(f"{directory}/{META_PROPERTIES}") for directory in directories):
            return
        for directory in directories:
            _check_no_logs(runtime.files, directory)
        format_directories(
            runtime.files,
            directories,
            metadata_directory=config.metadata_log_dir,
            cluster_id=uuid_to_string(random_uuid(runtime.random)),
            node_id=config.node.node_id,
            random=runtime.random,
            now_ms=runtime.clock.now_ms(),
        )
    except FormatError as error:
        raise StartError(str(error)) from error
    except OSError as error:
        is_file = isinstance(error, FileExistsError | NotADirectoryError)
        reason = "it is not a directory" if is_file else error.strerror or error
        raise StartError(f"cannot use {', '.join(directories)}: {reason}") from error


def _check_no_logs(files: FileSystem, directory: str) -> None:
    """A new cluster would set all logs aside, whether they lost their meta.properties or only look like logs
    by their names. Raises StartError."""
    if not files.exists(directory):
        return
    for name in files.list_dir(directory):
        if parse_log_dir_name(name) is not None:
            raise StartError(
                f"{directory} is not empty: it has {name} and no {META_PROPERTIES}; restore that file, "
                "or give this node a directory of its own"
            )


def _raise_file_limit() -> int:
    """Raises the soft limit on open files to the hard one; how many segments may be open under it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass
    return max(DEFAULT_SEGMENTS_MAX, min(int(soft * _SEGMENT_SHARE), 10_000))


def _quiet_the_heap() -> None:
    """What lives from here on lives long: out of the collector's sight. What requests leave behind has no
    cycles, so the collector has little to find and may look seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
