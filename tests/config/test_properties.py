"""Java's properties files, read and written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.config.properties import PropertiesError, format_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a\t=\fb", {"a": "b"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("a==b", {"a": "=b"}),
        ("a\\=b=c\\:d", {"a=b": "c:d"}),
        ("a\\ b=c", {"a b": "c"}),
        ("# no\n ! no\n\n  a=b\n", {"a": "b"}),
        ("a=b#c", {"a": "b#c"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b,\\\n   c", {"a": "b,c"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\r\n  #c\r\nd=e", {"a": "b#c", "d": "e"}),
        ("a=b\\", {"a": "b"}),
        ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        ("a=\\u00e9\\uD83D\\uDE00", {"a": "é😀"}),
        ("a=x\x85y", {"a": "x\x85y"}),
        ("", {}),
    ],
)
def test_a_file_reads_as_java_reads_it(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


def test_bytes_are_latin_1() -> None:
    assert parse_properties(b"name=caf\xe9") == {"name": "café"}


@pytest.mark.parametrize("escape", ["\\u12", "\\u12g4", "\\u +12"])
def test_a_malformed_escape_is_told_with_its_line(escape: str) -> None:
    with pytest.raises(PropertiesError, match="line 2"):
        parse_properties(f"a=b\nc={escape}")


def test_written_files_are_ascii_and_escaped() -> None:
    text = format_properties({"a b": " c d", "é": "=😀\n"}, comments=["made by hand"])
    assert text == "#made by hand\na\\ b=\\ c d\n\\u00E9=\\=\\uD83D\\uDE00\\n\n"


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_what_is_written_reads_back(properties: dict[str, str]) -> None:
    text = format_properties(properties, comments=["one"])
    assert parse_properties(text) == properties
    assert parse_properties(text.encode("ascii")) == properties


@given(st.text())
def test_any_text_is_properties_or_an_error(text: str) -> None:
    try:
        parse_properties(text)
    except PropertiesError as error:
        assert "line" in str(error)
