"""The simulated world of `moldau.testing`, and a look at its disks: what the tests here stand on."""

from __future__ import annotations

import asyncio
from typing import Any

from moldau.client.admin import Admin, NewTopic
from moldau.client.cluster import TopicPartition
from moldau.records.batch import check_crc, iterate_headers
from moldau.records.record import Record, read_records
from moldau.sim.files import SimFileSystem
from moldau.testing.world import DATA, HOST, PORT, CrashedWhileStarting, Simulated

__all__ = ["DATA", "HOST", "PORT", "CrashedWhileStarting", "World", "until"]


class World(Simulated):
    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        async with self.cluster() as cluster:
            await Admin(cluster).create_topic(
                NewTopic(
                    name=name,
                    partitions=partitions,
                    replication_factor=1,
                    configs={key.replace("_", "."): value for key, value in configs.items()},
                )
            )

    # -- What is on the disk

    @property
    def files(self) -> SimFileSystem:
        """The files as an operator sees them, who is neither killed nor cut off."""
        return SimFileSystem(self.disk, self.runtime.clock.now_ms)

    def names(self, directory: str) -> list[str]:
        return self.files.list_dir(directory)

    def stored(
        self, place: TopicPartition, directory: str = DATA, *, may_be_torn: bool = False
    ) -> list[Record]:
        """The records of a partition as its segments hold them, every batch checked: whole, with a right
        checksum, and offsets that follow each other. Neither power nor faults can get in the way."""
        path = f"{directory}/{place}"
        records: list[Record] = []
        next_offset: int | None = None
        for name in sorted(self.disk.directory(path).entries):
            if not name.endswith(".log"):
                continue
            content = self.disk.file(f"{path}/{name}").content
            data = memoryview(content.read(0, content.size))
            end = 0
            for position, header in iterate_headers(data):
                end = position + header.size
                check_crc(data, header, position)
                assert next_offset in (None, header.base_offset), f"{path}: a hole before {header}"
                next_offset = header.next_offset
                records += read_records(data[position:end])
            assert end == len(data) or may_be_torn, (
                f"{path}/{name}: {len(data) - end} bytes after the last batch"
            )
        return records


async def until(condition: Any, *, within_s: float = 60, step_s: float = 0.05) -> None:
    """Return once `condition()` holds, in virtual time."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(step_s)
