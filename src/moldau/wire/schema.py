"""How a message is declared: a class whose fields say their type and the versions that carry them.

    class Topic(Struct):
        name: str = string("0+")
        partitions: list[int] = array(INT32, "0+")

    class ExampleRequest(Message, api_key=99, versions="0-3", flexible="2+"):
        topics: list[Topic] | None = array(Topic, "0+", nullable="1+")
        timeout_ms: int = int32("1+", default=1000)

One class serves all versions of a message. `moldau.wire.codec` compiles it, for one version at a time, into a
decoder and an encoder. A field that a version does not carry has its default after decoding.

Declarations are cheap on purpose (no code is generated until a message is used): a node imports many and
uses few.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, dataclass_transform

from moldau.wire.ids import ZERO_UUID


class Versions(NamedTuple):
    """An inclusive range of versions; empty when `first` is above `last`."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


NEVER = Versions(1, 0)
_OPEN_END = 32767
OWN_TAGS_FROM = 10_000
"""Fields with such tags are Moldau's own, far above what Kafka's messages will ever use."""


def parse_versions(text: str | None) -> Versions:
    """ "3", "0-4", "2+" or None for never."""
    if text is None:
        return NEVER
    if text.endswith("+"):
        return Versions(int(text[:-1]), _OPEN_END)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


class Primitive(NamedTuple):
    """A scalar type: `code` is its struct format where its size is fixed, else empty."""

    name: str
    code: str
    zero: Any


BOOLEAN = Primitive("bool", "?", False)
INT8 = Primitive("int8", "b", 0)
INT16 = Primitive("int16", "h", 0)
UINT16 = Primitive("uint16", "H", 0)
INT32 = Primitive("int32", "i", 0)
UINT32 = Primitive("uint32", "I", 0)
INT64 = Primitive("int64", "q", 0)
FLOAT64 = Primitive("float64", "d", 0.0)
UUID = Primitive("uuid", "16s", ZERO_UUID)
STRING = Primitive("string", "", "")
BYTES = Primitive("bytes", "", b"")
# Bytes that are handed on as a view of the frame they came in, never copied.
RECORDS = Primitive("records", "", None)

_UNSET: Any = object()


class Field:
    """One field of a struct. `item` is set for arrays, and says the type of their elements."""

    __slots__ = ("default", "ignorable", "is_array", "name", "nullable", "tag", "tagged", "type", "versions")

    def __init__(
        self,
        type: Primitive | type[Struct],
        versions: str,
        *,
        is_array: bool = False,
        nullable: str | None = None,
        default: Any = _UNSET,
        tag: int | None = None,
        tagged: str | None = None,
        ignorable: bool = False,
    ) -> None:
        self.name = ""
        self.type = type
        self.versions = parse_versions(versions)
        self.is_array = is_array
        self.nullable = parse_versions(nullable)
        self.tag = tag
        self.tagged = parse_versions(tagged)
        self.ignorable = ignorable
        self.default = default

    def default_value(self) -> Any:
        """A fresh default: arrays and structs are mutable."""
        if self.default is not _UNSET:
            return self.default
        if self.is_array:
            return []
        return self.type.zero if isinstance(self.type, Primitive) else self.type()

    def is_default(self, value: Any) -> bool:
        return bool(value == self.default_value())


# The functions below return Any so that a declaration reads `name: str = string("0+")`.


def boolean(versions: str, **options: Any) -> Any:
    return Field(BOOLEAN, versions, **options)


def int8(versions: str, **options: Any) -> Any:
    return Field(INT8, versions, **options)


def int16(versions: str, **options: Any) -> Any:
    return Field(INT16, versions, **options)


def uint16(versions: str, **options: Any) -> Any:
    return Field(UINT16, versions, **options)


def int32(versions: str, **options: Any) -> Any:
    return Field(INT32, versions, **options)


def uint32(versions: str, **options: Any) -> Any:
    return Field(UINT32, versions, **options)


def int64(versions: str, **options: Any) -> Any:
    return Field(INT64, versions, **options)


def float64(versions: str, **options: Any) -> Any:
    return Field(FLOAT64, versions, **options)


def uuid(versions: str, **options: Any) -> Any:
    return Field(UUID, versions, **options)


def string(versions: str, **options: Any) -> Any:
    return Field(STRING, versions, **options)


def binary(versions: str, **options: Any) -> Any:
    return Field(BYTES, versions, **options)


def records(versions: str, **options: Any) -> Any:
    return Field(RECORDS, versions, **options)


def struct(type: type[Struct], versions: str, **options: Any) -> Any:
    return Field(type, versions, **options)


def array(item: Primitive | type[Struct], versions: str, **options: Any) -> Any:
    return Field(item, versions, is_array=True, **options)


class StructType(type):
    """Turns the declared fields of a class into slots."""

    __fields__: tuple[Field, ...]

    def __new__(
        meta, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> StructType:
        fields = []
        for key, value in list(namespace.items()):
            if isinstance(value, Field):
                value.name = key
                fields.append(value)
                del namespace[key]
        namespace["__slots__"] = tuple(field.name for field in fields)
        cls = super().__new__(meta, name, bases, namespace)
        cls.__fields__ = tuple(fields)
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, namespace)
        if options:
            cls._declare(**options)

    def _declare(cls, **options: Any) -> None:
        raise TypeError(f"{cls.__name__} takes no class options")


# No field specifiers: to a type checker every field then has a default and may be left out, as it may.
@dataclass_transform(kw_only_default=True)
class Struct(metaclass=StructType):
    """A group of fields. Built by keyword; what is left out has its default."""

    __fields__: ClassVar[tuple[Field, ...]] = ()

    def __init__(self, **values: Any) -> None:
        # Compiled on first use, for the same reason as codecs are; see the head of this file.
        cls = type(self)
        cls.__init__ = _compile_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.__fields__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        inside = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self.__fields__)
        return f"{type(self).__name__}({inside})"


def _compile_init(cls: type[Struct]) -> Any:
    scope: dict[str, Any] = {"_unset": _UNSET}
    parameters, lines = [], []
    for field in cls.__fields__:
        fresh = field.default is _UNSET and (field.is_array or not isinstance(field.type, Primitive))
        if fresh:
            scope[f"_{field.name}"] = field.default_value
            parameters.append(f"{field.name}=_unset")
            lines.append(f" self.{field.name} = _{field.name}() if {field.name} is _unset else {field.name}")
        else:
            scope[f"_{field.name}"] = field.default_value()
            parameters.append(f"{field.name}=_{field.name}")
            lines.append(f" self.{field.name} = {field.name}")
    star = "*, " if parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n" + ("\n".join(lines) or " pass")
    exec(source, scope)
    return scope["__init__"]


class Message(Struct):
    """A struct that travels on its own: a request, a response, or the payload of a record."""

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[Versions]
    FLEXIBLE: ClassVar[Versions]

    @classmethod
    def _declare(cls, *, versions: str, flexible: str | None = None, api_key: int = -1) -> None:
        cls.API_KEY = api_key
        cls.VERSIONS = parse_versions(versions)
        cls.FLEXIBLE = parse_versions(flexible)
