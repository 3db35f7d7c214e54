"""What a scraper does: HTTP over a stream, and a strict reading of the Prometheus text format."""

from __future__ import annotations

import asyncio
import re

from moldau.runtime.interfaces import Runtime, Stream
from moldau.server.metrics.catalog import FAMILIES

_SAMPLE = re.compile(r'([a-z_:][a-z0-9_:]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\})? (\S+)')
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\[\\"n])*)"')

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse(page: str) -> Samples:
    """The samples by name and labels. Asserts what the format asks for: every family announced once, its
    samples together and right after that, no sample twice, the labels that the catalog declares."""
    families = {family.name: family for family in FAMILIES}
    samples: Samples = {}
    announced: list[str] = []
    assert page.endswith("\n")
    lines = iter(page.removesuffix("\n").split("\n"))
    for line in lines:
        if line.startswith("#"):
            name = line.split(" ")[2]
            assert line.startswith(f"# HELP {name} ") and name not in announced
            assert next(lines) == f"# TYPE {name} {families[name].type}"
            announced.append(name)
            continue
        match = _SAMPLE.fullmatch(line)
        assert match, line
        name, label_text, value = match.groups()
        labels = frozenset(_LABEL.findall(label_text or ""))
        family = families[announced[-1]]
        suffixes = ("", "_sum", "_count") if family.type == "summary" else ("",)
        assert name in [family.name + suffix for suffix in suffixes], line
        assert {label for label, _ in labels} - {"quantile"} in (set(family.labels), set()), line
        assert (name, labels) not in samples, line
        samples[name, labels] = float(value)
    return samples


def sample(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


class HttpClient:
    """One connection; `get` may be called again while the other side keeps it."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._received = b""

    @classmethod
    async def connect(cls, runtime: Runtime, port: int) -> HttpClient:
        return cls(await runtime.network.connect("localhost", port))

    async def get(self, path: str, *, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        self.stream.send([f"{method} {path} HTTP/1.1\r\nHost: node\r\n\r\n".encode()])
        return await self.response(with_content=method != "HEAD")

    async def response(self, *, with_content: bool = True) -> tuple[int, dict[str, str], bytes]:
        while b"\r\n\r\n" not in self._received:
            self._received += await self._receive()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name: value for name, _, value in (line.partition(": ") for line in lines)}
        size = int(headers["Content-Length"]) if with_content else 0
        while len(self._received) < size:
            self._received += await self._receive()
        content, self._received = self._received[:size], self._received[size:]
        return int(first.split(" ")[1]), headers, content

    async def ended(self) -> bool:
        """Waits for more than there should be; whether the other side has closed instead."""
        try:
            await self._receive()
        except (EOFError, ConnectionError):
            return True
        return False

    async def _receive(self) -> bytes:
        buffer = bytearray(65536)
        while True:
            try:
                count = self.stream.recv_into(buffer)
            except BlockingIOError:
                await self._readable()
                continue
            if count == 0:
                raise EOFError("the other side has closed")
            return bytes(buffer[:count])

    async def _readable(self) -> None:
        event = asyncio.Event()
        self.stream.watch_readable(event.set)
        await event.wait()
        self.stream.watch_readable(None)
