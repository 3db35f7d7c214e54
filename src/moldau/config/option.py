"""What an option is: its name, type, default, bounds, and what it is for, declared once.

An option is declared as an attribute of a `Section`, and everything else (parsing, defaults, bounds,
DescribeConfigs, the command's listing, the page in docs/) is derived from that one line:

    class LogSection(Section):
        segment_bytes = integer("log.segment.bytes", 1 << 30, at_least(1 << 20), mode=CLUSTER_WIDE, doc="...")

Read on the class, the attribute is the `Option`; read on an instance, it is the value, typed. `Option` is a
non-data descriptor and the values live in the instance's dict, so reading a value costs what reading any
attribute costs, and no class body has to be compiled for it (importing hundreds of options stays a matter of
milliseconds, which dataclasses would not allow).

Knows nothing of where texts come from, nor of relations between options: those are checked by whoever owns
the whole (`broker`, `topic`). Types and texts follow Kafka's ConfigDef, because DescribeConfigs shows them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, IntEnum
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar, overload

T = TypeVar("T")

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
DOUBLE_MAX: Final = 1.7976931348623157e308
"""The largest values of Java's types, which as defaults mean: no limit."""


class Type(IntEnum):
    """ConfigDef's types, with the codes that DescribeConfigs uses for them."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Mode(Enum):
    """Whether a running broker takes a new value, and for which scope."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


READ_ONLY: Final = Mode.READ_ONLY
PER_BROKER: Final = Mode.PER_BROKER
CLUSTER_WIDE: Final = Mode.CLUSTER_WIDE


class Required:
    """Stands where a default would: the option has to be given."""


REQUIRED: Final = Required()


class Problem(NamedTuple):
    """One thing that is wrong with a set of properties: the option at fault, and why, as a sentence."""

    name: str
    message: str


class ConfigError(Exception):
    """Properties that cannot be used. All that is wrong with them, not only the first thing."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = problems

    @classmethod
    def of(cls, name: str, message: str) -> Self:
        return cls((Problem(name, message),))


class InvalidValue(ValueError):
    """A value outside its option's type or bounds; `shown` is the part at fault when it is not the whole."""

    def __init__(self, reason: str, shown: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.shown = shown


class Bound(NamedTuple):
    """What a parsed value has to satisfy: `check` raises InvalidValue, `text` tells people."""

    text: str
    check: Callable[[Any], None]


def at_least(low: float) -> Bound:
    def check(value: float) -> None:
        if value < low:  # which Java does not find of NaN either
            raise InvalidValue(f"Value must be at least {low}")

    return Bound(f"≥ {low}", check)


def between(low: float, high: float) -> Bound:
    def check(value: float) -> None:
        if value < low:
            raise InvalidValue(f"Value must be at least {low}")
        if value > high:
            raise InvalidValue(f"Value must be no more than {high}")

    return Bound(f"{low} to {high}", check)


def between_or(low: int, high: int, other: int) -> Bound:
    def check(value: int) -> None:
        if not low <= value <= high and value != other:
            raise InvalidValue(f"Value must be between {low} and {high} or equal to {other}")

    return Bound(f"{low} to {high}, or {other}", check)


def one_of(*names: str) -> Bound:
    def check(value: str) -> None:
        if value not in names:
            raise InvalidValue("String must be one of: " + ", ".join(names))

    return Bound("one of " + ", ".join(names), check)


def one_of_any_case(*names: str) -> Bound:
    def check(value: str) -> None:
        if value.upper() not in names:
            raise InvalidValue("String must be one of (case insensitive): " + ", ".join(names))

    return Bound("one of " + ", ".join(names) + " in any case", check)


def each_of(*names: str, empty: bool = False) -> Bound:
    def check(values: tuple[str, ...]) -> None:
        if not values and not empty:
            raise InvalidValue("At least one value is needed, out of: " + ", ".join(names))
        for value in values:
            if value not in names:
                raise InvalidValue("String must be one of: " + ", ".join(names), value)

    return Bound("any of " + ", ".join(names), check)


def _check_filled(value: str | tuple[str, ...]) -> None:
    if not value or (isinstance(value, tuple) and "" in value):
        raise InvalidValue("Value must not be empty")


FILLED: Final = Bound("not empty", _check_filled)
"""A string or a list that has to say something."""


def _check_parts_filled(values: tuple[str, ...]) -> None:
    if "" in values:
        raise InvalidValue("Values must not be empty")


PARTS_FILLED: Final = Bound("nothing empty in it", _check_parts_filled)
"""A list that may be empty, of names that may not."""


class Option(Generic[T]):
    """One option: see the head of this module. Nothing changes it after its declaration."""

    __slots__ = (
        "attribute",
        "bound",
        "default",
        "doc",
        "effect",
        "importance",
        "internal",
        "mode",
        "name",
        "synonyms",
        "type",
    )

    def __init__(
        self,
        name: str,
        type: Type,
        default: T | Required | None,
        bound: Bound | None,
        mode: Mode,
        importance: str,
        internal: bool,
        effect: bool,
        synonyms: tuple[tuple[str, int], ...],
        doc: str,
    ) -> None:
        self.name = name
        self.attribute = ""
        self.type = type
        self.default = default
        self.bound = bound
        self.mode = mode
        self.importance = importance
        self.internal = internal
        self.effect = effect
        self.synonyms = synonyms
        self.doc = doc

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute

    @overload
    def __get__(self, instance: None, owner: type) -> "Option[T]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> "Option[T] | T":
        if instance is None:
            return self
        raise AttributeError(f"{self.name} has no value here")

    def __repr__(self) -> str:
        return f"<option {self.name}>"

    @property
    def sensitive(self) -> bool:
        """Whether its value must never be shown."""
        return self.type is Type.PASSWORD

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def default_text(self) -> str | None:
        """The default as Kafka would print it; None where there is none."""
        return None if isinstance(self.default, Required) else format_value(self.default)

    def parse(self, text: str) -> T:
        """The value that `text` stands for. Raises ConfigError naming this option."""
        try:
            value = _PARSERS[self.type](text.strip())
        except InvalidValue as error:
            raise self._invalid(text, error) from None
        if self.bound is not None:
            try:
                self.bound.check(value)
            except InvalidValue as error:
                raise self._invalid(_show(value), error) from None
        return value  # type: ignore[no-any-return]

    def _invalid(self, text: str, error: InvalidValue) -> ConfigError:
        shown = "[hidden]" if self.sensitive else error.shown if error.shown is not None else text
        return ConfigError.of(
            self.name, f"Invalid value {shown} for configuration {self.name}: {error.reason}"
        )


class _Declare(Generic[T]):
    """Declares options of one type. A None default makes the value's type `T | None`."""

    __slots__ = ("_type",)

    def __init__(self, type: Type) -> None:
        self._type = type

    @overload
    def __call__(
        self,
        name: str,
        default: T | Required,
        bound: Bound | None = None,
        *,
        doc: str,
        mode: Mode = READ_ONLY,
        importance: str = "medium",
        internal: bool = False,
        effect: bool = True,
        synonyms: tuple[tuple[str, int], ...] = (),
    ) -> Option[T]: ...
    @overload
    def __call__(
        self,
        name: str,
        default: None,
        bound: Bound | None = None,
        *,
        doc: str,
        mode: Mode = READ_ONLY,
        importance: str = "medium",
        internal: bool = False,
        effect: bool = True,
        synonyms: tuple[tuple[str, int], ...] = (),
    ) -> Option[T | None]: ...
    def __call__(
        self,
        name: str,
        default: T | Required | None,
        bound: Bound | None = None,
        *,
        doc: str,
        mode: Mode = READ_ONLY,
        importance: str = "medium",
        internal: bool = False,
        effect: bool = True,
        synonyms: tuple[tuple[str, int], ...] = (),
    ) -> Option[T] | Option[T | None]:
        return Option[Any](
            name, self._type, default, bound, mode, importance, internal, effect, synonyms, doc
        )


boolean: Final = _Declare[bool](Type.BOOLEAN)
string: Final = _Declare[str](Type.STRING)
integer: Final = _Declare[int](Type.INT)
short: Final = _Declare[int](Type.SHORT)
long: Final = _Declare[int](Type.LONG)
double: Final = _Declare[float](Type.DOUBLE)
strings: Final = _Declare[tuple[str, ...]](Type.LIST)
class_name: Final = _Declare[str](Type.CLASS)
password: Final = _Declare[str](Type.PASSWORD)


class Frozen:
    """Whose attributes are set once, through its dict, while it is made."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")


class Section(Frozen):
    """Values of the options declared on a subclass: frozen, compared and shown by value.

    An attribute is its option's name with `_` for `.`, without PREFIX where the name begins with it.
    """

    TITLE = ""
    PREFIX = ""
    OPTIONS: tuple[Option[Any], ...] = ()

    def __init_subclass__(cls) -> None:
        cls.OPTIONS = tuple(value for value in vars(cls).values() if isinstance(value, Option))

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Takes a value for each attribute. Use `parse` for texts and `replace` for variations."""
        self.__dict__.update(values)

    @classmethod
    def parse(cls, texts: Mapping[str, str], problems: list[Problem]) -> Self:
        """The section that `texts` (by option name) describe; what is wrong is added to `problems`.

        An option without a usable value takes its default, or stays unset if it has none, so that the other
        checks can still be made: whoever passes `problems` refuses the result when there are any.
        """
        values: dict[str, Any] = {}
        for option in cls.OPTIONS:
            text = texts.get(option.name)
            if text is not None:
                try:
                    values[option.attribute] = option.parse(text)
                    continue
                except ConfigError as error:
                    problems.extend(error.problems)
            if option.default is not REQUIRED:
                values[option.attribute] = option.default
            elif text is None:
                message = f'Missing required configuration "{option.name}" which has no default value.'
                problems.append(Problem(option.name, message))
        return cls(values)

    def replace(self, **changes: Any) -> Self:
        """A copy with other values for some attributes; bounds are not checked."""
        unknown = changes.keys() - self.__dict__.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        return type(self)({**self.__dict__, **changes})

    def items(self) -> Iterator[tuple[Option[Any], Any]]:
        for option in self.OPTIONS:
            yield option, self.__dict__[option.attribute]

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{option.attribute}={'[hidden]' if option.sensitive else repr(value)}"
            for option, value in self.items()
            if value != option.default
        )
        return f"{type(self).__name__}({shown})"


# Texts ---------------------------------------------------------------------------------------------------


def format_value(value: Any) -> str | None:
    """The text that Kafka prints for a parsed value."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _format_double(value)
    return str(value)


def _show(value: Any) -> str:
    return f"[{', '.join(value)}]" if isinstance(value, tuple) else format_value(value) or ""


def _format_double(value: float) -> str:
    """As Java's Double.toString: plain between 10^-3 and 10^7, one digit before the point elsewhere."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    # The fewest digits that read back as the same number.
    text = next(text for text in (f"{value:.{digits}e}" for digits in range(18)) if float(text) == value)
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}E{int(exponent)}"


# Java's parsers take no underscores, so int() and float() alone would be too kind. Integers may be written in
# the digits of any script.
# In this room patterns are compiled when first used: most are never needed, and all together they would take
# as long to compile as the options take to declare.
_INTEGER = r"[+-]?\d+\Z"
_DECIMAL = r"([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?\Z"
_NOT_FINITE = r"([+-]?(NaN|Infinity))\Z"

_DIGITS_MAX = 20
"""More digits than any 64-bit integer has, sign aside; keeps int() away from texts of any length."""


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise InvalidValue("Expected value to be either true or false")
    return lowered == "true"


def _integer_parser(kind: str, bits: int) -> Callable[[str], int]:
    limit = 1 << (bits - 1)

    def parse(text: str) -> int:
        if re.match(_INTEGER, text) and len(text.lstrip("+-").lstrip("0")) < _DIGITS_MAX:
            value = int(text)
            if -limit <= value < limit:
                return value
        raise InvalidValue(f"Not a number of type {kind}")

    return parse


def _parse_double(text: str) -> float:
    match = re.match(_DECIMAL, text) or re.match(_NOT_FINITE, text)
    if match is None:
        raise InvalidValue("Not a number of type DOUBLE")
    return float(match[1])


def _parse_strings(text: str) -> tuple[str, ...]:
    # Repeats are dropped, as Kafka does for its lists of names since 4.1.
    return tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text else ()


parse_int: Final = _integer_parser("INT", 32)
"""What Java's int is read from, for texts that are no option's value. Raises ValueError."""

_PARSERS: Final[dict[Type, Callable[[str], Any]]] = {
    Type.BOOLEAN: _parse_boolean,
    Type.STRING: str,
    Type.INT: parse_int,
    Type.SHORT: _integer_parser("SHORT", 16),
    Type.LONG: _integer_parser("LONG", 64),
    Type.DOUBLE: _parse_double,
    Type.LIST: _parse_strings,
    Type.CLASS: str,
    Type.PASSWORD: str,
}
