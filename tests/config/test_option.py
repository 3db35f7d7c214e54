"""Options: texts to values and back, bounds, and the sections that hold values."""

# ruff: noqa: E501 (a case and its message stay on one line)

from __future__ import annotations

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.config.option import (
    CLUSTER_WIDE,
    FILLED,
    INT_MAX,
    LONG_MAX,
    REQUIRED,
    ConfigError,
    Option,
    Problem,
    Section,
    at_least,
    between,
    between_or,
    boolean,
    class_name,
    double,
    each_of,
    format_value,
    integer,
    long,
    one_of,
    one_of_any_case,
    password,
    short,
    string,
    strings,
)

BOOLEAN = boolean("b", False, doc="")
INT = integer("i", 1, doc="")
SHORT = short("s", 1, doc="")
LONG = long("l", 1, doc="")
DOUBLE = double("d", 1.0, doc="")
STRING = string("t", "", doc="")
LIST = strings("a", (), doc="")
CLASS = class_name("c", None, doc="")


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        (BOOLEAN, " TRUE ", True),
        (BOOLEAN, "false", False),
        (INT, " -7 ", -7),
        (INT, "+7", 7),
        (INT, "٣", 3),
        (INT, "0000000000000000000000000000000007", 7),
        (INT, str(INT_MAX), INT_MAX),
        (LONG, str(-(1 << 63)), -(1 << 63)),
        (SHORT, "32767", 32767),
        (DOUBLE, "1e3", 1000.0),
        (DOUBLE, ".5", 0.5),
        (DOUBLE, "5.f", 5.0),
        (DOUBLE, "-1e1D", -10.0),
        (DOUBLE, "-Infinity", float("-inf")),
        (STRING, "  a b ", "a b"),
        (LIST, " a , b,a,c ", ("a", "b", "c")),
        (LIST, "  ", ()),
        (CLASS, "org.example.Foo", "org.example.Foo"),
    ],
)
def test_texts_are_read_as_kafka_reads_them(option: Option[object], text: str, value: object) -> None:
    assert option.parse(text) == value


@pytest.mark.parametrize(
    ("option", "text", "reason"),
    [
        (BOOLEAN, "yes", "Expected value to be either true or false"),
        (INT, "", "Not a number of type INT"),
        (INT, "1_000", "Not a number of type INT"),
        (DOUBLE, "٣", "Not a number of type DOUBLE"),
        (INT, "2147483648", "Not a number of type INT"),
        (SHORT, "32768", "Not a number of type SHORT"),
        (LONG, "9" * 5000, "Not a number of type LONG"),
        (DOUBLE, "x", "Not a number of type DOUBLE"),
        (DOUBLE, "nan", "Not a number of type DOUBLE"),
        (DOUBLE, "1fd", "Not a number of type DOUBLE"),
        (DOUBLE, "NaNf", "Not a number of type DOUBLE"),
    ],
)
def test_a_text_of_another_type_is_refused_by_name(option: Option[object], text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        option.parse(text)
    message = f"Invalid value {text} for configuration {option.name}: {reason}"
    assert caught.value.problems == (Problem(option.name, message),)


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        (integer("x", 5, at_least(3), doc=""), "2", "Invalid value 2 for configuration x: Value must be at least 3"),
        (double("x", 0.0, between(0, 1), doc=""), "2", "Invalid value 2.0 for configuration x: Value must be no more than 1"),
        (double("x", 0.0, between(0, 1), doc=""), "-.5", "Invalid value -0.5 for configuration x: Value must be at least 0"),
        (integer("x", -1, between_or(1, 9, -1), doc=""), "0", "Invalid value 0 for configuration x: Value must be between 1 and 9 or equal to -1"),
        (string("x", "a", one_of("a", "b"), doc=""), "A", "Invalid value A for configuration x: String must be one of: a, b"),
        (string("x", "a", one_of_any_case("A"), doc=""), "b", "Invalid value b for configuration x: String must be one of (case insensitive): A"),
        (strings("x", (), each_of("a", "b", empty=True), doc=""), "a,c", "Invalid value c for configuration x: String must be one of: a, b"),
        (strings("x", ("a",), each_of("a"), doc=""), "", "Invalid value [] for configuration x: At least one value is needed, out of: a"),
        (strings("x", ("a",), FILLED, doc=""), "a,,b", "Invalid value [a, , b] for configuration x: Value must not be empty"),
        (string("x", None, FILLED, doc=""), " ", "Invalid value  for configuration x: Value must not be empty"),
        (password("x", None, FILLED, doc=""), "", "Invalid value [hidden] for configuration x: Value must not be empty"),
    ],
)  # fmt: skip
def test_a_value_out_of_bounds_says_what_is_allowed(option: Option[object], text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        option.parse(text)
    assert str(caught.value) == message


def test_nan_is_within_all_bounds_as_in_java() -> None:
    assert isnan(double("x", 0.0, between(0, 1), doc="").parse("NaN"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (2147483647.0, "2.147483647E9"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (-1e-10, "-1.0E-10"),
        (0.0, "0.0"),
        (0.5, "0.5"),
        (True, "true"),
        (("a", "b"), "a,b"),
        (None, None),
        (12, "12"),
    ],
)
def test_values_are_printed_as_java_prints_them(value: object, text: str | None) -> None:
    assert format_value(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_double_reads_back(value: float) -> None:
    text = format_value(value)
    assert text is not None
    assert DOUBLE.parse(text) == value


@given(st.integers(-(1 << 63), LONG_MAX))
def test_a_printed_long_reads_back(value: int) -> None:
    assert LONG.parse(str(value)) == value


@given(st.text())
def test_any_text_is_a_value_or_an_error(text: str) -> None:
    for option in (BOOLEAN, INT, SHORT, LONG, DOUBLE, LIST):
        try:
            option.parse(text)
        except ConfigError as error:
            assert error.problems[0].name == option.name


class Sample(Section):
    PREFIX = "sample."

    size = integer("sample.size", 3, at_least(1), mode=CLUSTER_WIDE, doc="Size.")
    name = string("name", None, doc="Name.")
    needed = integer("needed", REQUIRED, doc="Needed.")
    secret = password("secret", None, doc="Secret.")


def test_a_section_reads_its_options_by_name() -> None:
    problems: list[Problem] = []
    sample = Sample.parse({"sample.size": "4", "needed": "1", "other": "x"}, problems)
    assert problems == []
    assert (sample.size, sample.name, sample.needed) == (4, None, 1)
    assert Sample.size.name == "sample.size"
    assert [option.attribute for option in Sample.OPTIONS] == ["size", "name", "needed", "secret"]


def test_a_section_tells_all_that_is_wrong() -> None:
    problems: list[Problem] = []
    Sample.parse({"sample.size": "0"}, problems)
    assert [problem.name for problem in problems] == ["sample.size", "needed"]


def test_a_section_is_a_value() -> None:
    sample = Sample.parse({"needed": "1", "secret": "hush"}, [])
    other = sample.replace(size=5)
    assert (sample.size, other.size) == (3, 5)
    assert other.replace(size=3) == sample
    assert hash(other.replace(size=3)) == hash(sample)
    assert repr(other) == "Sample(size=5, needed=1, secret=[hidden])"
    with pytest.raises(AttributeError):
        sample.size = 9  # type: ignore[misc, assignment]
    with pytest.raises(AttributeError):
        del sample.size
    with pytest.raises(TypeError, match="no sise"):
        sample.replace(sise=1)
