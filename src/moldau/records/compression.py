"""The five codecs of a record batch, as Kafka's Java client frames them.

Output of `decompress` is bounded: before anything is allocated the frame's own block structure gives an upper
bound of what it can hold, and what is allocated is the smaller of that and the caller's limit.

What follows the compressed data is taken as Java's readers take it: gzip goes on with the next member and
snappy with the next stream, gzip and lz4 ignore anything else, and zstd refuses what is no frame.

- gzip: from the standard library (bounded output, levels as Kafka's).
- snappy: written in the framing of Java's SnappyOutputStream; read in that framing or raw, since librdkafka
  sends raw blocks.
- lz4: the LZ4 frame format with independent blocks of 64 KB (Java reads no others) and no checksums.
  cramjam's frame writer adds those of the blocks, which few readers have met: they are cut out here. Its
  block compressor would not add them, but it ignores the level.
- zstd: streaming frames, which need not state their content size.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum

import cramjam

from moldau.records.batch import Buffer
from moldau.wire.errors import ErrorCode, KafkaError

DECOMPRESSED_BYTES_MAX = 128 << 20
"""What one batch may hold when nobody asked for another limit."""


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


LEVELS: dict[Codec, range] = {
    Codec.GZIP: range(1, 10),
    Codec.LZ4: range(1, 18),
    Codec.ZSTD: range(-131072, 23),
}
"""The levels Kafka accepts for each codec that has levels; gzip also takes -1, its default."""

DEFAULT_LEVELS: dict[Codec, int] = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}

_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_MEMBER_MIN = 18  # a header and a trailer: Java looks for a member in no fewer bytes

# magic, then the version that wrote it and the oldest version that can read it
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10
_SNAPPY_RATIO_MAX = 32  # a copy of 64 bytes takes at least 2 bytes; a length beyond that is a lie

_LZ4_MAGIC = 0x184D2204
# magic; flags: version 1, independent blocks; block size 4 (64 KB); header checksum
_LZ4_HEADER = bytes.fromhex("04224d18604082")
# the same with a checksum after each block, as cramjam's writer has it
_LZ4_WRITER_HEADER = bytes.fromhex("04224d187040ad")
_LZ4_BLOCK_BYTES = 64 << 10
_LZ4_STORED = 0x80000000
_LZ4_HIGH_COMPRESSION_MIN = 3

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50
_ZSTD_BLOCK_BYTES_MAX = 128 << 10

_INT32 = struct.Struct(">i")
_UINT32_LE = struct.Struct("<I")


def is_valid_level(codec: Codec, level: int) -> bool:
    levels = LEVELS.get(codec)
    return levels is not None and (level in levels or level == DEFAULT_LEVELS[codec])


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`level` None is the codec's default; none and snappy have no levels and ignore it."""
    if level is None:
        level = DEFAULT_LEVELS.get(codec, 0)
    elif codec in LEVELS and not is_valid_level(codec, level):
        raise ValueError(f"{codec.name.lower()} has no compression level {level}")
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            deflater = zlib.compressobj(level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
            return deflater.compress(data) + deflater.flush()
        case Codec.SNAPPY:
            return _compress_snappy(memoryview(data))
        case Codec.LZ4:
            return _compress_lz4(data, level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=level))


def decompress(codec: int, data: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Raises MESSAGE_TOO_LARGE beyond `max_bytes`, CORRUPT_MESSAGE for what is not the codec's format."""
    try:
        match codec:
            case Codec.NONE:
                if len(data) > max_bytes:
                    raise _too_large(max_bytes)
                return bytes(data)
            case Codec.GZIP:
                return _decompress_gzip(data, max_bytes)
            case Codec.SNAPPY:
                return _decompress_snappy(memoryview(data), max_bytes)
            case Codec.LZ4:
                bound, end = _measure_lz4(data)
                return _decompress_into(cramjam.lz4, memoryview(data)[:end], bound, max_bytes)
            case Codec.ZSTD:
                bound = _zstd_bytes_bound(data)
                return _decompress_into(cramjam.zstd, data, bound, max_bytes)
            case _:
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression type {codec}")
    except (cramjam.DecompressionError, zlib.error, struct.error, IndexError) as error:
        name = Codec(codec).name.lower()
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"records are not valid {name} data: {error}") from None


def _compress_snappy(view: memoryview) -> bytes:
    parts: list[Buffer] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(data: Buffer, level: int) -> bytes:
    # As in Kafka, the default level is LZ4's fast mode, every other a level of its high compression mode.
    frame_level = 0 if level == DEFAULT_LEVELS[Codec.LZ4] else max(level, _LZ4_HIGH_COMPRESSION_MIN)
    writer = cramjam.lz4.Compressor(level=frame_level, content_checksum=False, block_linked=False)
    # The writer keeps the interpreter lock while it works, so it is given a block at a time.
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        writer.compress(bytes(data[start : start + _LZ4_BLOCK_BYTES]))
    frame = memoryview(writer.finish())
    assert frame[: len(_LZ4_WRITER_HEADER)] == _LZ4_WRITER_HEADER
    parts: list[Buffer] = [_LZ4_HEADER]
    position = len(_LZ4_WRITER_HEADER)
    while True:
        (word,) = _UINT32_LE.unpack_from(frame, position)
        end = position + 4 + (word & ~_LZ4_STORED)
        parts.append(frame[position:end])
        if word == 0:
            return b"".join(parts)
        position = end + 4


def _decompress_gzip(data: Buffer, max_bytes: int) -> bytes:
    members: list[bytes] = []
    while True:
        inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)
        # One byte over the limit tells too much from just enough.
        member = inflater.decompress(data, max_bytes + 1)
        members.append(member)
        max_bytes -= len(member)
        if max_bytes < 0:
            raise _too_large(sum(map(len, members)) + max_bytes)
        if not inflater.eof:
            raise zlib.error("the stream is cut short")
        data = inflater.unused_data
        if len(data) <= _GZIP_MEMBER_MIN or not data.startswith(_GZIP_MAGIC):
            return b"".join(members) if len(members) > 1 else member


def _decompress_snappy(view: memoryview, max_bytes: int) -> bytes:
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_bytes)
    position, end = len(_XERIAL_HEADER), len(view)
    if end < position:
        raise IndexError("the header is cut short")
    plain = bytearray()
    while end - position >= _INT32.size:
        if view[position : position + _INT32.size] == _XERIAL_MAGIC[: _INT32.size]:
            position += len(_XERIAL_HEADER)
            continue
        (size,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 < size <= end - position:
            raise IndexError(f"a block of {size} bytes, {end - position} are left")
        plain += _decompress_snappy_block(view[position : position + size], max_bytes - len(plain))
        position += size
    return bytes(plain)


def _decompress_snappy_block(block: memoryview, max_bytes: int) -> bytes:
    plain_bytes = cramjam.snappy.decompress_raw_len(block)
    if plain_bytes > max_bytes:
        raise _too_large(max_bytes)
    if plain_bytes > len(block) * _SNAPPY_RATIO_MAX:
        raise IndexError(f"{len(block)} bytes cannot hold {plain_bytes}")
    return bytes(cramjam.snappy.decompress_raw(block))


def _measure_lz4(data: Buffer) -> tuple[int, int]:
    """The most that an LZ4 frame can hold, which is the sum of what its blocks can, and where it ends."""
    if _UINT32_LE.unpack_from(data)[0] != _LZ4_MAGIC:
        raise IndexError("no LZ4 frame")
    flags, block_descriptor = data[4], data[5]
    block_bytes_max = 1 << (8 + 2 * (block_descriptor >> 4 & 7))
    position = 4 + 2 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0) + 1
    checksum_bytes = 4 if flags & 0x10 else 0
    bound = 0
    while True:
        (word,) = _UINT32_LE.unpack_from(data, position)
        if word == 0:
            return bound, position + 4 + (4 if flags & 0x04 else 0)
        size = word & ~_LZ4_STORED
        # A byte of an LZ4 sequence stands for at most 255 of output.
        bound += size if word & _LZ4_STORED else min(block_bytes_max, 255 * size)
        position += 4 + size + checksum_bytes


def _zstd_bytes_bound(data: Buffer) -> int:
    """The most that a run of zstd frames can hold. A stated content size would be a claim, blocks are not."""
    position, end, bound = 0, len(data), 0
    while position < end:
        (magic,) = _UINT32_LE.unpack_from(data, position)
        if magic & ~0xF == _ZSTD_SKIPPABLE_MAGIC:
            position += 8 + _UINT32_LE.unpack_from(data, position + 4)[0]
            continue
        if magic != _ZSTD_MAGIC:
            raise IndexError("no zstd frame")
        descriptor = data[position + 4]
        single_segment = descriptor >> 5 & 1
        content_size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
        dictionary_id_bytes = (0, 1, 2, 4)[descriptor & 3]
        position += 5 + (1 - single_segment) + dictionary_id_bytes + content_size_bytes
        last = 0
        while not last:
            word = data[position] | data[position + 1] << 8 | data[position + 2] << 16
            last, kind, size = word & 1, word >> 1 & 3, word >> 3
            # kinds: raw, run of one byte, compressed
            bound += size if kind < 2 else _ZSTD_BLOCK_BYTES_MAX
            position += 3 + (1 if kind == 1 else size)
        position += 4 if descriptor & 0x04 else 0
    return bound


def _decompress_into(library: object, data: Buffer, bound: int, max_bytes: int) -> bytes:
    plain = bytearray(min(bound, max_bytes))
    try:
        written: int = library.decompress_into(data, plain)  # type: ignore[attr-defined]
    except cramjam.DecompressionError:
        if bound > max_bytes:
            # It did not fit, or it is corrupt as well: the limit is the verdict that holds either way.
            raise _too_large(max_bytes) from None
        raise
    return bytes(memoryview(plain)[:written])


def _too_large(max_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"the records take more than {max_bytes} bytes decompressed"
    )
