import gzip
import random
import struct
import tracemalloc
import zlib

import aiokafka.codec
import cramjam
import kafka.codec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.records.compression import DEFAULT_LEVELS, LEVELS, Codec, compress, decompress, is_valid_level
from moldau.wire.errors import ErrorCode, KafkaError

COMPRESSORS = [codec for codec in Codec if codec is not Codec.NONE]
NOISE = random.Random(3).randbytes(200_000)
SAMPLES = [b"", b"x", b"ab" * 40_000, NOISE, NOISE[:65536], NOISE[:32768] + bytes(500_000)]


def refused(codec: int, data: bytes, max_bytes: int = 1 << 20) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        decompress(codec, data, max_bytes)
    return caught.value.code


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("plain", SAMPLES, ids=len)
@pytest.mark.parametrize("buffer_type", [bytes, bytearray, memoryview])
def test_round_trip(codec: Codec, plain: bytes, buffer_type: type):
    packed = compress(codec, buffer_type(plain))
    assert decompress(codec, buffer_type(packed)) == plain


@pytest.mark.parametrize("codec", list(Codec))
@given(plain=st.binary(max_size=3000))
def test_any_bytes_round_trip_within_exactly_their_size(codec: Codec, plain: bytes):
    assert decompress(codec, compress(codec, plain), len(plain)) == plain


@pytest.mark.parametrize("codec", list(Codec))
def test_one_byte_over_the_limit_is_too_large(codec: Codec):
    plain = bytes(70_000)
    assert refused(codec, compress(codec, plain), len(plain) - 1) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", list(LEVELS))
def test_every_edge_level_is_honoured_or_refused(codec: Codec):
    levels = LEVELS[codec]
    for level in (levels.start, levels.stop - 1, DEFAULT_LEVELS[codec]):
        assert is_valid_level(codec, level)
        assert decompress(codec, compress(codec, SAMPLES[-1], level)) == SAMPLES[-1]
    for level in (levels.start - 3, levels.stop):
        assert not is_valid_level(codec, level)
        with pytest.raises(ValueError):
            compress(codec, b"x", level)


@pytest.mark.parametrize("codec", list(LEVELS))
def test_a_higher_level_compresses_more(codec: Codec):
    words = [b"segment", b"epoch", b"leader", b"offset", b"batch", b"image"]
    text = b" ".join(random.Random(5).choices(words, k=20_000))
    low, high = LEVELS[codec].start, LEVELS[codec].stop - 1
    assert len(compress(codec, text, high)) < len(compress(codec, text, low))


def test_lz4_is_framed_as_java_frames_it():
    """Independent blocks of 64 KB, no checksums, no content size; what does not shrink is stored."""
    packed = compress(Codec.LZ4, bytes(65_536) + NOISE[:65_536] + b"end")
    assert packed[:7].hex() == "04224d18604082"
    blocks, position = [], 7
    while word := struct.unpack_from("<I", packed, position)[0]:
        blocks.append((word >> 31, word & 0x7FFFFFFF))
        position += 4 + (word & 0x7FFFFFFF)
    assert position + 4 == len(packed)
    assert [stored for stored, _ in blocks] == [0, 1, 1]
    assert blocks[1:] == [(1, 65_536), (1, 3)]


def test_snappy_is_framed_as_java_frames_it():
    packed = compress(Codec.SNAPPY, NOISE[:40_000])
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    sizes, position = [], 16
    while position < len(packed):
        (size,) = struct.unpack_from(">i", packed, position)
        sizes.append(cramjam.snappy.decompress_raw_len(packed[position + 4 : position + 4 + size]))
        position += 4 + size
    assert sizes == [32 * 1024, 40_000 - 32 * 1024]


@pytest.mark.parametrize("plain", SAMPLES, ids=len)
def test_raw_snappy_is_read(plain: bytes):
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(plain))) == plain


@pytest.mark.parametrize("library", [kafka.codec, aiokafka.codec])
@pytest.mark.parametrize("codec", COMPRESSORS)
@pytest.mark.parametrize("plain", SAMPLES[1:], ids=len)
def test_other_clients_read_ours_and_we_theirs(library: object, codec: Codec, plain: bytes):
    name = codec.name.lower()
    encode, decode = getattr(library, f"{name}_encode"), getattr(library, f"{name}_decode")
    assert decompress(codec, bytes(encode(plain))) == plain
    assert bytes(decode(compress(codec, plain))) == plain


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
def test_lz4_frames_of_other_writers_are_read(linked: bool, checksum: bool):
    plain = SAMPLES[-1]
    writer = cramjam.lz4.Compressor(level=1, content_checksum=checksum, block_linked=linked)
    writer.compress(plain)
    assert decompress(Codec.LZ4, bytes(writer.finish())) == plain


def test_zstd_frames_may_follow_each_other_and_be_skippable():
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"extra"
    packed = compress(Codec.ZSTD, b"one ") + skippable + compress(Codec.ZSTD, b"two")
    assert decompress(Codec.ZSTD, packed) == b"one two"


@pytest.mark.parametrize("codec", COMPRESSORS)
def test_what_is_cut_short_is_corrupt(codec: Codec):
    packed = compress(codec, NOISE[:3000] + bytes(3000))
    for cut in (1, 5, 9, len(packed) // 2, len(packed) - 1):
        assert refused(codec, packed[:cut]) is ErrorCode.CORRUPT_MESSAGE


XERIAL = bytes.fromhex("82534e41505059000000000100000001")


@pytest.mark.parametrize(
    ("codec", "tail", "more"),
    [
        (Codec.GZIP, b"b", b""),
        (Codec.GZIP, b"b" * 40, b""),
        (Codec.GZIP, gzip.compress(b"more", mtime=0), b"more"),
        (Codec.GZIP, gzip.compress(b"more", mtime=0) + b"\x1f\x8b", b"more"),
        (Codec.GZIP, b"\x1f\x8b\x08" + bytes(15), b""),
        (Codec.LZ4, b"b", b""),
        (Codec.LZ4, compress(Codec.LZ4, b"more"), b""),
        (Codec.SNAPPY, b"bbb", b""),
        (Codec.SNAPPY, compress(Codec.SNAPPY, b"more"), b"more"),
        (Codec.SNAPPY, XERIAL, b""),
        (Codec.ZSTD, compress(Codec.ZSTD, b"more"), b"more"),
    ],
)
def test_what_follows_is_taken_as_java_takes_it(codec: Codec, tail: bytes, more: bytes):
    plain = b"some bytes" * 10
    assert decompress(codec, compress(codec, plain) + tail) == plain + more


@pytest.mark.parametrize(
    ("codec", "tail"),
    [
        (Codec.GZIP, gzip.compress(b"more", mtime=0)[:-1]),
        (Codec.GZIP, b"\x1f\x8b\x08" + bytes(10) + b"\xff" * 10),
        (Codec.SNAPPY, b"b" * 40),
        (Codec.ZSTD, b"b"),
    ],
)
def test_what_follows_and_is_broken_is_corrupt(codec: Codec, tail: bytes):
    assert refused(codec, compress(codec, b"some bytes" * 10) + tail) is ErrorCode.CORRUPT_MESSAGE


def test_the_limit_is_for_all_members_together():
    packed = gzip.compress(bytes(60)) * 3
    assert len(decompress(Codec.GZIP, packed, 180)) == 180
    assert refused(Codec.GZIP, packed, 179) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_unsupported(codec: int):
    assert refused(codec, b"data") is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def snappy_claiming(size: int) -> bytes:
    claim = bytearray()
    while size > 0x7F:
        claim.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(claim) + bytes([size]) + b"\0a"


def zstd_runs(count: int) -> bytes:
    """A frame of `count` runs of 128 KB, each of which takes four bytes."""
    run = struct.pack("<I", (128 << 10) << 3 | 1 << 1)[:3] + b"z"
    last = struct.pack("<I", 1 << 3 | 1 << 1 | 1)[:3] + b"z"
    return bytes.fromhex("28b52ffd0058") + run * count + last


BOMBS = {
    "gzip": (Codec.GZIP, gzip.compress(bytes(64 << 20))),
    "zstd": (Codec.ZSTD, zstd_runs(1000)),
    "lz4": (Codec.LZ4, compress(Codec.LZ4, bytes(64 << 20))),
    "snappy": (Codec.SNAPPY, compress(Codec.SNAPPY, bytes(64 << 20))),
    "raw snappy": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(64 << 20)))),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_defused_within_the_limit(name: str):
    codec, packed = BOMBS[name]
    limit = 1 << 20
    tracemalloc.start()
    try:
        assert refused(codec, packed, limit) is ErrorCode.MESSAGE_TOO_LARGE
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * limit


def test_the_zstd_bomb_is_real():
    assert decompress(Codec.ZSTD, zstd_runs(100)) == b"z" * (100 * (128 << 10) + 1)


def test_snappy_that_claims_more_than_it_can_hold_allocates_nothing():
    assert refused(Codec.SNAPPY, snappy_claiming(100 << 20), 1 << 30) is ErrorCode.CORRUPT_MESSAGE
    assert refused(Codec.SNAPPY, snappy_claiming((1 << 32) - 1), 1 << 30) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", COMPRESSORS)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_bounded_output_or_a_kafka_error(codec: Codec, data: bytes):
    starts = {Codec.LZ4: "04224d18604082", Codec.ZSTD: "28b52ffd", Codec.SNAPPY: "", Codec.GZIP: "1f8b08"}
    for packed in (data, bytes.fromhex(starts[codec]) + data):
        try:
            assert len(decompress(codec, packed, 1 << 16)) <= 1 << 16
        except KafkaError as error:
            assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


@pytest.mark.parametrize("codec", COMPRESSORS)
@given(data=st.data())
def test_any_damage_is_bounded_output_or_a_kafka_error(codec: Codec, data: st.DataObject):
    packed = bytearray(compress(codec, b"offset leader epoch " * 20 + NOISE[:100]))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(decompress(codec, packed, 1 << 16)) <= 1 << 16
    except KafkaError as error:
        assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


def test_gzip_is_what_zlib_reads():
    assert zlib.decompress(compress(Codec.GZIP, NOISE, 1), 31) == NOISE
