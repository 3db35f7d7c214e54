"""Records and golden segments that the tests of this room share."""

from pathlib import Path

from hypothesis import strategies as st

from moldau.records.batch import iterate_headers
from moldau.records.record import Record

GOLDEN = Path(__file__).parents[1] / "data" / "golden"

optional_bytes = st.none() | st.binary(max_size=200)
header_names = st.text(max_size=20)
headers = st.lists(st.tuples(header_names, optional_bytes), max_size=4).map(tuple)
record_fields = st.tuples(st.integers(-1, 1 << 45), optional_bytes, optional_bytes, headers)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """One to twenty records at consecutive offsets from any base."""
    base = draw(st.integers(0, 1 << 40))
    fields = draw(st.lists(record_fields, min_size=1, max_size=20))
    return [Record(base + delta, *rest) for delta, rest in enumerate(fields)]


def golden_batches(name: str) -> list[memoryview]:
    data = memoryview((GOLDEN / name).read_bytes())
    return [data[position : position + header.size] for position, header in iterate_headers(data)]
