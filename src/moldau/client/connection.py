"""One connection to one broker: requests go out as they come, responses are matched to them in order.

Answerable for framing, the ApiVersions negotiation, correlation ids, the bound on requests in flight and the
time a request may take. It knows nothing of clusters, leaders or retries.

Invariants: the broker answers a connection's requests in their order, so the oldest pending request owns the
next response. A connection that failed in any way (lost, timed out, broke the protocol) is closed and stays
closed, and every pending request gets that same error. All failures are `KafkaError`.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import NamedTuple, TypeVar

from moldau import __version__
from moldau.runtime.interfaces import Buffer, Network, Stream
from moldau.wire.api import ApiKey, camel_name, request_type
from moldau.wire.codec import ProtocolError, UnsupportedFieldError, decode, decode_whole, encode, read_uvarint
from moldau.wire.errors import ErrorCode, KafkaError
from moldau.wire.headers import response_is_flexible, write_request_header
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.schema import Message, Versions

R = TypeVar("R", bound=Message)

REQUEST_TIMEOUT_S = 30.0
IN_FLIGHT_MAX = 5
# A fetch may answer with more than it was asked for (one batch always fits), but never with this much.
RESPONSE_BYTES_MAX = 256 << 20
CLIENT_SOFTWARE = "moldau"

_READ_BYTES = 64 << 10
_READS_PER_WAKEUP = 16  # so that one fast broker leaves turns for the others
_SIZE = struct.Struct(">i")
_ERROR_CODE = struct.Struct(">h")


class _Pending(NamedTuple):
    correlation_id: int
    key: ApiKey
    version: int
    answer: asyncio.Future[tuple[Buffer, int]]  # the response, and where its body starts


class Connection:
    """Made by `connect`. Usable by many tasks at once."""

    def __init__(self, stream: Stream, *, client_id: str, request_timeout_s: float) -> None:
        self._stream = stream
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._pending: deque[_Pending] = deque()
        self._outgoing: deque[memoryview] = deque()
        self._drained: asyncio.Future[None] | None = None  # done when nothing is left to send
        self._correlation_id = 0
        self._failure: KafkaError | None = None
        self._frames = _FrameReader()
        self._versions: dict[int, Versions] = {}
        self.peer = host_and_port(stream.peer_host, stream.peer_port)
        stream.watch_readable(self._on_readable)

    @property
    def is_closed(self) -> bool:
        return self._failure is not None

    def supports(self, key: ApiKey) -> bool:
        """Whether there is a version of this API that both sides know."""
        common = self._common_versions(key)
        return common.first <= common.last

    def version_of(self, key: ApiKey, last: int | None = None) -> int:
        """The newest version both sides know, not above `last`. Raises UNSUPPORTED_VERSION."""
        common = self._common_versions(key)
        version = common.last if last is None else min(common.last, last)
        if version < common.first:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.peer} and this client have no version of {camel_name(key)} in common",
            )
        return version

    async def request(
        self,
        message: Message,
        response: type[R],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Send `message` and wait for its response; `timeout_s` includes the wait for a free slot."""
        key = ApiKey(message.API_KEY)
        version = self.version_of(key) if version is None else version
        timeout_s = self._request_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(timeout_s), self._slots:
                frame, position = await self._send(key, version, message)
        except TimeoutError:
            error = KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self.peer} did not answer {camel_name(key)} within {timeout_s:g} s",
            )
            # Whatever follows on this connection would wait behind the answer that does not come.
            self._fail(error)
            raise error from None
        return self._decode(response, version, frame, position)

    async def send_unanswered(self, message: Message, *, version: int | None = None) -> None:
        """Send a request that has no response (a produce with acks=0); returns when the kernel took it."""
        key = ApiKey(message.API_KEY)
        version = self.version_of(key) if version is None else version
        self._write(self._frame(key, version, message, self._next_correlation_id()))
        try:
            async with asyncio.timeout(self._request_timeout_s):
                while self._outgoing:
                    if self._drained is None:
                        self._drained = self._loop.create_future()
                    await asyncio.shield(self._drained)
        except TimeoutError:
            self._fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self.peer} does not read what it is sent"))
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        self._fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, f"the connection to {self.peer} was closed"))

    async def negotiate(self) -> None:
        """Learn what the broker speaks. A broker that does not know our version of the question says so in
        version 0, and lists there which versions it knows."""
        version = ApiVersionsRequest.VERSIONS.last
        message = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE, client_software_version=__version__
        )
        while True:
            frame, position = await self._ask_versions(version, message)
            unsupported = (
                len(frame) >= position + 2
                and _ERROR_CODE.unpack_from(frame, position)[0] == ErrorCode.UNSUPPORTED_VERSION
            )
            if not unsupported or version == 0:
                break
            version = self._older_version(frame, position, version)
        response = self._decode(ApiVersionsResponse, version, frame, position)
        if response.error_code:
            error = KafkaError(error_code(response.error_code), f"{self.peer} refused ApiVersions")
            self._fail(error)
            raise error
        self._versions = {
            api.api_key: Versions(api.min_version, api.max_version) for api in response.api_keys
        }

    async def _ask_versions(self, version: int, message: Message) -> tuple[Buffer, int]:
        try:
            async with asyncio.timeout(self._request_timeout_s):
                return await self._send(ApiKey.API_VERSIONS, version, message)
        except TimeoutError:
            error = KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self.peer} did not answer ApiVersions within {self._request_timeout_s:g} s",
            )
            self._fail(error)
            raise error from None

    def _older_version(self, frame: Buffer, position: int, version: int) -> int:
        """The next version to ask with; always below `version`, so that the question comes to an end."""
        response = self._decode(ApiVersionsResponse, 0, frame, position)
        for api in response.api_keys:
            if api.api_key == ApiKey.API_VERSIONS and 0 <= api.max_version < version:
                return api.max_version
        return 0

    def _common_versions(self, key: ApiKey) -> Versions:
        theirs = self._versions.get(key)
        ours = request_type(key).VERSIONS
        if theirs is None:
            return Versions(1, 0)
        return Versions(max(ours.first, theirs.first), min(ours.last, theirs.last))

    async def _send(self, key: ApiKey, version: int, message: Message) -> tuple[Buffer, int]:
        if self._failure is not None:
            raise self._failure
        correlation_id = self._next_correlation_id()
        frame = self._frame(key, version, message, correlation_id)
        pending = _Pending(correlation_id, key, version, self._loop.create_future())
        self._pending.append(pending)
        self._write(frame)
        return await pending.answer

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def _frame(self, key: ApiKey, version: int, message: Message, correlation_id: int) -> bytearray:
        frame = bytearray(4)
        frame += write_request_header(key, version, correlation_id, self._client_id)
        try:
            encode(message, version, frame)
        except UnsupportedFieldError as error:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"{self.peer} speaks {camel_name(key)} v{version}: {error}"
            ) from None
        _SIZE.pack_into(frame, 0, len(frame) - 4)
        return frame

    def _write(self, frame: bytearray) -> None:
        if self._failure is not None:
            raise self._failure
        self._outgoing.append(memoryview(frame))
        if len(self._outgoing) == 1:
            self._on_writable()

    def _on_writable(self) -> None:
        try:
            while self._outgoing:
                first = self._outgoing[0]
                sent = self._stream.send([first])
                if sent < len(first):
                    self._outgoing[0] = first[sent:]
                else:
                    self._outgoing.popleft()
            self._stream.watch_writable(None)
            self._wake_drained()
        except BlockingIOError:
            self._stream.watch_writable(self._on_writable)
        except OSError as error:
            self._lost(error)

    def _wake_drained(self) -> None:
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    def _on_readable(self) -> None:
        try:
            for _ in range(_READS_PER_WAKEUP):
                if not self._frames.read_from(self._stream):
                    self._lost(None)
                    return
                while (frame := self._frames.next_frame()) is not None:
                    self._on_response(frame)
                    if self._failure is not None:
                        return
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(error)
        except ProtocolError as error:
            self._breach(error)

    def _on_response(self, frame: memoryview) -> None:
        if len(frame) < 4:
            raise ProtocolError("a response is shorter than its header")
        (correlation_id,) = _SIZE.unpack_from(frame)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            raise ProtocolError(f"an answer to request {correlation_id}, which is not the oldest one")
        pending = self._pending.popleft()
        position = 4
        flexible = pending.version in request_type(pending.key).FLEXIBLE
        if response_is_flexible(pending.key, pending.version, flexible):
            position = _skip_header_tags(frame)
        if not pending.answer.done():  # the one who asked may have gone
            pending.answer.set_result((frame, position))

    def _decode(self, response: type[R], version: int, frame: Buffer, position: int) -> R:
        try:
            if response is ApiVersionsResponse:
                # Brokers newer than us may append to what they answer to an older question.
                return decode(response, version, frame, position)[0]
            return decode_whole(response, version, frame[position:])
        except ProtocolError as error:
            raise self._breach(error) from None

    def _breach(self, error: ProtocolError) -> KafkaError:
        failure = KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{self.peer} does not speak Kafka: {error}")
        self._fail(failure)
        return failure

    def _lost(self, error: OSError | None) -> None:
        reason = f"{self.peer} closed the connection"
        if error is not None:
            reason = f"lost the connection to {self.peer}: {error.strerror or error}"
        self._fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, reason))

    def _fail(self, error: KafkaError) -> None:
        if self._failure is not None:
            return
        self._failure = error
        self._stream.close()
        self._outgoing.clear()
        self._wake_drained()
        while self._pending:
            answer = self._pending.popleft().answer
            if not answer.done():
                answer.set_exception(error)


async def connect(
    network: Network,
    host: str,
    port: int,
    *,
    client_id: str = CLIENT_SOFTWARE,
    connect_timeout_s: float = 10.0,
    request_timeout_s: float = REQUEST_TIMEOUT_S,
) -> Connection:
    """Connect and negotiate versions. A host that cannot be reached is NETWORK_EXCEPTION."""
    try:
        async with asyncio.timeout(connect_timeout_s):
            stream = await network.connect(host, port)
    except TimeoutError:
        reason = f"no connection to {host_and_port(host, port)} within {connect_timeout_s:g} s"
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, reason) from None
    except OSError as error:
        # The loops have words of their own for this one.
        cause = "connection refused" if isinstance(error, ConnectionRefusedError) else error.strerror or error
        reason = f"cannot connect to {host_and_port(host, port)}: {cause}"
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, reason) from None
    connection = Connection(stream, client_id=client_id, request_timeout_s=request_timeout_s)
    try:
        await connection.negotiate()
    except KafkaError as error:
        connection.close()
        # What a listener for TLS, or another service, makes of our first request is no explanation.
        raise KafkaError(error.code, f"{error.message} (is it a plaintext listener of Kafka's?)") from None
    except BaseException:
        connection.close()
        raise
    return connection


def host_and_port(host: str, port: int) -> str:
    """As a bootstrap list has it: an IPv6 address goes in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def error_code(code: int) -> ErrorCode:
    """An error code of the wire; one that is newer than this client is an unknown error."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


class _FrameReader:
    """Cuts what was received into frames.

    Small frames are cut out of one staging buffer; the rest of a large one is received right where it stays,
    so that the records of a fetch are never moved again.
    """

    def __init__(self) -> None:
        self._staging = bytearray(_READ_BYTES)
        self._begin = 0
        self._end = 0
        self._frame: bytearray | None = None  # a frame that did not fit into what had been received
        self._filled = 0

    def read_from(self, stream: Stream) -> int:
        """Bytes received; 0 at the end of the stream."""
        if self._frame is not None:
            received = stream.recv_into(memoryview(self._frame)[self._filled :])
            self._filled += received
            return received
        if self._begin:
            rest = self._staging[self._begin : self._end]
            self._staging[: len(rest)] = rest
            self._begin, self._end = 0, len(rest)
        received = stream.recv_into(memoryview(self._staging)[self._end :])
        self._end += received
        return received

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, if it is there."""
        if self._frame is not None:
            if self._filled < len(self._frame):
                return None
            frame, self._frame = self._frame, None
            return memoryview(frame)
        available = self._end - self._begin
        if available < 4:
            return None
        (size,) = _SIZE.unpack_from(self._staging, self._begin)
        if not 0 <= size <= RESPONSE_BYTES_MAX:
            raise ProtocolError(f"a response of {size} bytes")
        start = self._begin + 4
        here = min(size, available - 4)
        frame = bytearray(size)
        frame[:here] = memoryview(self._staging)[start : start + here]
        self._begin = start + here
        if here < size:
            self._frame, self._filled = frame, here
            return None
        return memoryview(frame)


def _skip_header_tags(frame: memoryview) -> int:
    try:
        count, position = read_uvarint(frame, 4)
        for _ in range(count):
            _, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            position += size
    except IndexError:
        raise ProtocolError("a response is shorter than its header") from None
    return position
