"""The limit: a server that reads requests and acknowledges them without storing anything.

It has the sockets a Python broker would have (non-blocking, `recv_into` one buffer a connection, all
answers of one read sent together) and parses a Produce request no further than to see which partitions to
acknowledge. It answers what a producer needs: ApiVersions, Metadata (any topic exists, with one
partition, here), InitProducerId, Produce. Nothing can be consumed from it. Bad input closes the
connection: it serves benchmarks only.

Run as `python -m bench.stub --port PORT`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import signal
import socket
import struct
import uuid

import uvloop

from bench.frames import compact, uvarint

_PRODUCE, _METADATA, _API_VERSIONS, _INIT_PRODUCER_ID = 0, 3, 18, 22
# Low minimums although only the flexible versions are implemented: librdkafka deduces features from old
# versions being there (KIP-896 keeps Produce 0 advertised for it) and then uses the newest.
_ADVERTISED = {
    _PRODUCE: (0, 13),
    1: (0, 16),
    _METADATA: (0, 12),
    _API_VERSIONS: (0, 4),
    _INIT_PRODUCER_ID: (0, 5),
}
_TOPIC_IDS_FROM = 13

_HEADER = struct.Struct(">ihhih")  # frame size, api key, version, correlation id, length of the client id
_BUFFER_BYTES = 1 << 20
_ACK_TAIL = (
    struct.pack(">hqqq", 0, 0, -1, 0) + b"\1\0\0"
)  # no error, base offset 0, no record errors, no message


class Connection:
    """One socket and the bytes read from it that are not yet answered."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, address: tuple[str, int]
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._address = address
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._needed = 0

    def on_readable(self) -> None:
        try:
            got = self._sock.recv_into(self._view[self._filled :])
        except BlockingIOError:
            return
        except OSError:
            got = 0
        if got == 0:
            self._close()
            return
        self._filled += got
        if self._filled < self._needed:
            return
        try:
            answers = self._answer_whole_frames()
        except (ValueError, IndexError, struct.error):
            self._close()
            return
        if answers:
            # Acknowledgements are small and awaited: a full send buffer is a broken client.
            try:
                self._sock.sendall(b"".join(answers))
            except OSError:
                self._close()

    def _answer_whole_frames(self) -> list[bytes]:
        answers = []
        start, filled, view = 0, self._filled, self._view
        self._needed = 0
        while filled - start >= 4:
            end = start + 4 + int.from_bytes(view[start : start + 4], "big")
            if end > filled:
                self._needed = end - start
                break
            answer = self._answer(start, end)
            if answer is not None:
                answers.append(answer)
            start = end
        rest = filled - start
        if self._needed > len(self._buffer):
            larger = bytearray(self._needed)
            larger[:rest] = view[start:filled]
            self._buffer, self._view = larger, memoryview(larger)
        elif start and rest:
            self._view[:rest] = bytes(view[start:filled])
        self._filled = rest
        return answers

    def _answer(self, start: int, end: int) -> bytes | None:
        _, key, version, correlation_id, client_id_length = _HEADER.unpack_from(self._buffer, start)
        at = start + _HEADER.size + max(0, client_id_length) + 1
        if key == _PRODUCE:
            body = self._produce(at, version)
        elif key == _METADATA:
            body = self._metadata(at)
        elif key == _INIT_PRODUCER_ID:
            body = struct.pack(">ihqhb", 0, 0, 1000, 0, 0)
        elif key == _API_VERSIONS:
            # Its answer alone has the old header, for clients that do not know the version yet.
            return _framed(correlation_id, _api_versions(version))
        else:
            raise ValueError(f"api key {key}")
        if body is None:
            return None
        return _framed(correlation_id, b"\0" + body)

    def _produce(self, at: int, version: int) -> bytes | None:
        buffer = self._buffer
        size, at = _uvarint(buffer, at)
        at += max(0, size - 1)
        acks = int.from_bytes(buffer[at : at + 2], "big", signed=True)
        topics, at = _uvarint(buffer, at + 6)
        parts: list[bytes | bytearray] = [uvarint(topics)]
        for _ in range(topics - 1):
            name_at = at
            if version >= _TOPIC_IDS_FROM:
                at += 16
            else:
                size, at = _uvarint(buffer, at)
                at += size - 1
            parts.append(buffer[name_at:at])
            partitions, at = _uvarint(buffer, at)
            parts.append(uvarint(partitions))
            for _ in range(partitions - 1):
                parts.append(buffer[at : at + 4])
                parts.append(_ACK_TAIL)
                size, at = _uvarint(buffer, at + 4)
                at += size  # the records and the partition's (no) tags
            parts.append(b"\0")
            at += 1
        parts.append(b"\0\0\0\0\0")
        return b"".join(parts) if acks else None

    def _metadata(self, at: int) -> bytes:
        host, port = self._address
        body = struct.pack(">i", 0) + b"\2" + struct.pack(">i", 1) + compact(host.encode())
        body += struct.pack(">i", port) + b"\0\0" + compact(b"stub") + struct.pack(">i", 1)
        count, at = _uvarint(self._buffer, at)
        body += uvarint(max(1, count))
        for _ in range(count - 1):
            topic_id = bytes(self._buffer[at : at + 16])
            size, at = _uvarint(self._buffer, at + 16)
            name = bytes(self._buffer[at : at + max(0, size - 1)])
            at += len(name) + 1
            topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, name.decode()).bytes if name else topic_id
            body += struct.pack(">h", 0) + (compact(name) if name else b"\0") + topic_id + b"\0"
            body += b"\2" + struct.pack(">hiii", 0, 0, 1, 0) + (b"\2" + struct.pack(">i", 1)) * 2 + b"\1\0"
            body += struct.pack(">i", -(1 << 31)) + b"\0"
        return body + b"\0"

    def _close(self) -> None:
        self._loop.remove_reader(self._sock)
        self._sock.close()


def _framed(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def _api_versions(version: int) -> bytes:
    flexible = version >= 3
    ranges = [struct.pack(">hhh", key, *_ADVERTISED[key]) + b"\0" * flexible for key in _ADVERTISED]
    count = uvarint(len(ranges) + 1) if flexible else struct.pack(">i", len(ranges))
    return b"\0\0" + count + b"".join(ranges) + b"\0\0\0\0" * (version >= 1) + b"\0" * flexible


def _uvarint(buffer: bytearray, at: int) -> tuple[int, int]:
    byte = buffer[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = buffer[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    listener.setblocking(False)
    address = listener.getsockname()

    def on_acceptable() -> None:
        with contextlib.suppress(BlockingIOError):
            sock, _ = listener.accept()
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            loop.add_reader(sock, Connection(loop, sock, address).on_readable)

    loop.add_reader(listener, on_acceptable)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    gc.freeze()
    await stop.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(serve(parser.parse_args().port))
