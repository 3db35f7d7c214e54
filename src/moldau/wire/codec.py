"""Compiles a declared message, for one version, into a decoder and an encoder.

The generated Python does what a careful hand would: neighbouring fields of fixed size are read by one
`struct` call, lengths are checked before anything is allocated for them, and no field is looked up by name at
run time. A codec is compiled on first use and kept.

Decoding accepts any bytes: what is not a message raises `ProtocolError`, and the memory it takes is in
proportion to the bytes given.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from moldau.wire.schema import RECORDS, Field, Message, Primitive, Struct

M = TypeVar("M", bound=Struct)
Buffer = bytes | bytearray | memoryview
Decoder = Callable[[Buffer, int], tuple[Any, int]]
Encoder = Callable[[Any, bytearray], None]


STRING_BYTES_MAX = 32767
"""Flexible versions have room for more, and Kafka neither writes nor reads it: what is kept in the metadata
has to be readable in every version."""


class ProtocolError(Exception):
    """The peer broke the protocol: the bytes are not a message of the version they claim."""


class UnsupportedFieldError(ValueError):
    """A value was set that the chosen version cannot carry, and that must not be dropped in silence."""


def decode(message: type[M], version: int, buffer: Buffer, position: int = 0) -> tuple[M, int]:
    """The message that starts at `position`, and the position behind it."""
    decoder = _decoders.get((message, version)) or _decoder(message, version)
    try:
        result: tuple[M, int] = decoder(buffer, position)
        return result
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"malformed {message.__name__} v{version}: {error}") from None


def decode_whole(message: type[M], version: int, buffer: Buffer) -> M:
    """As `decode`, for a buffer that holds the message and nothing else."""
    decoded, end = decode(message, version, buffer)
    if end != len(buffer):
        raise ProtocolError(f"{len(buffer) - end} bytes left over after {message.__name__} v{version}")
    return decoded


def encode(message: Struct, version: int, out: bytearray | None = None) -> bytearray:
    """Appends the message to `out`, or to a new buffer, and returns it."""
    if out is None:
        out = bytearray()
    cls = type(message)
    encoder = _encoders.get((cls, version)) or _encoder(cls, version)
    encoder(message, out)
    return out


def encoder_of(message: type[Struct], version: int) -> Encoder:
    """What `encode` calls, for those who ask for the same again and again."""
    return _encoders.get((message, version)) or _encoder(message, version)


_decoders: dict[tuple[type[Struct], int], Decoder] = {}
_encoders: dict[tuple[type[Struct], int], Encoder] = {}


def _check_version(cls: type[Message], version: int) -> bool:
    if version not in cls.VERSIONS:
        raise UnsupportedFieldError(f"{cls.__name__} has no version {version}")
    return version in cls.FLEXIBLE


def _decoder(cls: type[Any], version: int) -> Decoder:
    decoder: Decoder = _DecoderSource(version, _check_version(cls, version)).compile(cls)
    _decoders[cls, version] = decoder
    return decoder


def _encoder(cls: type[Any], version: int) -> Encoder:
    encoder: Encoder = _EncoderSource(version, _check_version(cls, version)).compile(cls)
    _encoders[cls, version] = encoder
    return encoder


# ---------------------------------------------------------------- run-time parts of the generated code


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
    raise ProtocolError("a varint of more than five bytes")


def write_uvarint(value: int, out: bytearray) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def skip_tags(buffer: Buffer, position: int) -> int:
    """Past a section of tagged fields none of which is known here."""
    count, position = read_uvarint(buffer, position)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > len(buffer):
            raise ProtocolError("a tagged field is longer than the message")
    return position


def _too_long(name: str, size: int) -> ProtocolError:
    return ProtocolError(f"{name} claims {size} bytes or items, more than the message has")


def _too_long_string(name: str, size: int) -> ProtocolError:
    return ProtocolError(f"{name} has {size} bytes, more than a string may have")


def _unwritable_string(size: int) -> UnsupportedFieldError:
    return UnsupportedFieldError(f"{size} bytes are more than a string may have")


def _null(name: str) -> ProtocolError:
    return ProtocolError(f"{name} is null, which this version does not allow")


def _null_value(name: str, version: int) -> UnsupportedFieldError:
    return UnsupportedFieldError(f"{name} is None, which version {version} does not allow")


def _dropped(name: str, version: int) -> UnsupportedFieldError:
    return UnsupportedFieldError(f"{name} is set, which version {version} cannot carry")


class _Source:
    """Lines of Python and the objects they refer to."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []  # of the function being written
        self.finished: list[str] = []
        self.scope: dict[str, Any] = {}
        self.keeps_views = False
        self._structs: dict[type[Struct], str] = {}
        self._names = 0

    def name(self, prefix: str, value: Any = None) -> str:
        self._names += 1
        name = f"_{prefix}{self._names}"
        if value is not None:
            self.scope[name] = value
        return name

    def literal(self, value: Any) -> str:
        if value is None or isinstance(value, bool | int | str | float):
            return repr(value)
        return self.name("value", value)

    def emit(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def plain_fields(self, cls: type[Struct]) -> list[Field]:
        return [f for f in cls.__fields__ if self.version in f.versions and not self.is_tagged(f)]

    def tagged_fields(self, cls: type[Struct]) -> list[Field]:
        fields = [f for f in cls.__fields__ if self.version in f.versions and self.is_tagged(f)]
        return sorted(fields, key=lambda f: f.tag or 0)

    def is_tagged(self, field: Field) -> bool:
        return field.tag is not None and self.version in field.tagged

    @property
    def is_outermost(self) -> bool:
        return len(self._structs) == 1

    def compile(self, cls: type[Struct]) -> Any:
        self.keeps_views = _has_records(cls)
        name = self.function_for(cls)
        exec(
            compile("\n".join(self.finished), f"<codec of {cls.__name__} v{self.version}>", "exec"),
            self.scope,
        )
        return self.scope[name]

    def function_for(self, cls: type[Struct]) -> str:
        known = self._structs.get(cls)
        if known is None:
            known = self._structs[cls] = f"_{cls.__name__}"
            outer, self.lines = self.lines, []
            self.write_function(known, cls)
            self.finished += self.lines
            self.lines = outer
        return known

    def write_function(self, name: str, cls: type[Struct]) -> None:
        raise AssertionError


class _DecoderSource(_Source):
    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self.scope.update(
            ProtocolError=ProtocolError,
            read_uvarint=read_uvarint,
            skip_tags=skip_tags,
            _too_long=_too_long,
            _too_long_string=_too_long_string,
            _null=_null,
        )

    def write_function(self, name: str, cls: type[Struct]) -> None:
        create = self.name("new", cls.__new__)
        kind = self.name("cls", cls)
        self.emit(0, f"def {name}(b, p):")
        if self.is_outermost and not self.keeps_views:
            # Copied once, since every slice of a view costs more than one of bytes.
            self.emit(1, "if b.__class__ is memoryview: b = bytes(b)")
        self.emit(1, f"o = {create}({kind})")
        present = self.plain_fields(cls)
        for field in cls.__fields__:
            if field not in present:
                if field.is_array or not isinstance(field.type, Primitive):
                    self.emit(1, f"o.{field.name} = {self.name('default', field.default_value)}()")
                else:
                    self.emit(1, f"o.{field.name} = {self.literal(field.default_value())}")
        index = 0
        while index < len(present):
            run = _fixed_run(present, index)
            if run:
                self.read_fixed(run, "b", "o.", 1)
                index += len(run)
            else:
                self.read_value(present[index], f"o.{present[index].name}", 1)
                index += 1
        if self.flexible:
            tagged = self.tagged_fields(cls)
            if tagged:
                self.read_tags(tagged)
            else:
                self.emit(1, "if b[p]:")
                self.emit(2, "p = skip_tags(b, p)")
                self.emit(1, "else:")
                self.emit(2, "p += 1")
        self.emit(1, "return o, p")

    def read_fixed(self, run: list[Field], buffer: str, prefix: str, depth: int) -> None:
        layout = struct.Struct(">" + "".join(f.type.code for f in run))  # type: ignore[union-attr]
        unpack = self.name("unpack", layout.unpack_from)
        targets = "".join(f"{prefix}{f.name}, " for f in run)
        self.emit(depth, f"{targets}= {unpack}({buffer}, p)")
        self.emit(depth, f"p += {layout.size}")

    def read_tags(self, tagged: list[Field]) -> None:
        self.emit(1, "n_ = b[p]")
        self.emit(1, "if n_ < 128: p += 1")
        self.emit(1, "else: n_, p = read_uvarint(b, p)")
        self.emit(1, "for _ in range(n_):")
        self.emit(2, "t_ = b[p]")
        self.emit(2, "s_ = b[p + 1]")
        self.emit(2, "if t_ < 128 and s_ < 128: p += 2")
        self.emit(2, "else:")
        self.emit(3, "t_, p = read_uvarint(b, p)")
        self.emit(3, "s_, p = read_uvarint(b, p)")
        self.emit(2, "e_ = p + s_")
        self.emit(2, "if e_ > len(b): raise _too_long('a tagged field', s_)")
        for position, field in enumerate(tagged):
            self.emit(2, f"{'elif' if position else 'if'} t_ == {field.tag}:")
            self.read_value(field, f"o.{field.name}", 3, in_tag=True)
            self.emit(3, f"if p != e_: raise ProtocolError('{field.name} does not fill its tag')")
        self.emit(2, "p = e_")

    def read_value(self, field: Field, target: str, depth: int, in_tag: bool = False) -> None:
        nullable = self.version in field.nullable
        if field.is_array:
            self.read_array(field, target, depth, nullable)
        elif isinstance(field.type, Primitive):
            if field.type.code:
                self.read_fixed([field], "b", target.removesuffix(field.name), depth)
            else:
                self.read_sized(field, target, depth, nullable)
        else:
            self.read_struct(field.type, target, depth, nullable, in_tag)

    def read_length(self, name: str, depth: int, *, short: bool) -> str:
        """Leaves the length in n, one too large if the version is flexible; the condition that it is null."""
        if self.flexible:
            self.emit(depth, "n = b[p]")
            self.emit(depth, "if n < 128: p += 1")
            self.emit(depth, "else:")
            self.emit(depth + 1, "n, p = read_uvarint(b, p)")
            if short:
                self.emit(
                    depth + 1, f"if n > {STRING_BYTES_MAX + 1}: raise _too_long_string({name!r}, n - 1)"
                )
            return "not n"
        layout = struct.Struct(">h" if short else ">i")
        self.emit(depth, f"n, = {self.name('unpack', layout.unpack_from)}(b, p)")
        self.emit(depth, f"p += {layout.size}")
        return "n < 0"

    def when_null(self, condition: str, name: str, target: str, depth: int, nullable: bool) -> None:
        self.emit(depth, f"if {condition}:")
        self.emit(depth + 1, f"{target} = None" if nullable else f"raise _null({name!r})")
        self.emit(depth, "else:")

    def read_sized(self, field: Field, target: str, depth: int, nullable: bool) -> None:
        assert isinstance(field.type, Primitive)
        kind = field.type.name
        is_null = self.read_length(field.name, depth, short=kind == "string")
        self.when_null(is_null, field.name, target, depth, nullable)
        self.emit(depth + 1, f"e = p + n{' - 1' if self.flexible else ''}")
        self.emit(depth + 1, f"if e > len(b): raise _too_long({field.name!r}, e - p)")
        values = {
            # As Java does: what is not UTF-8 is a strange name, not the end of the connection.
            "string": "str(b[p:e], 'utf-8', 'replace')"
            if self.keeps_views
            else "b[p:e].decode('utf-8', 'replace')",
            "bytes": "bytes(b[p:e])",
            "records": "b[p:e]",
        }
        self.emit(depth + 1, f"{target} = {values[kind]}")
        self.emit(depth + 1, "p = e")

    def read_struct(
        self, cls: type[Struct], target: str, depth: int, nullable: bool, in_tag: bool = False
    ) -> None:
        """In front of one that may be null a byte says whether it is: in a tag by zero, elsewhere by -1."""
        function = self.function_for(cls)
        if nullable:
            self.emit(depth, "n = b[p]")
            self.emit(depth, "p += 1")
            self.emit(depth, "if n == 0:" if in_tag else "if n > 127:")
            self.emit(depth + 1, f"{target} = None")
            self.emit(depth, "else:")
            depth += 1
        self.emit(depth, f"{target}, p = {function}(b, p)")

    def read_array(self, field: Field, target: str, depth: int, nullable: bool) -> None:
        is_null = self.read_length(field.name, depth, short=False)
        self.when_null(is_null, field.name, target, depth, nullable)
        depth += 1
        if self.flexible:
            self.emit(depth, "n -= 1")
        self.emit(depth, f"if n > len(b) - p: raise _too_long({field.name!r}, n)")
        if isinstance(field.type, Primitive) and field.type.code:
            layout = struct.Struct(">" + field.type.code)
            self.emit(depth, f"e = p + n * {layout.size}")
            self.emit(depth, f"if e > len(b): raise _too_long({field.name!r}, n)")
            if field.type.name == "uuid":
                self.emit(depth, f"{target} = [bytes(b[i:i + 16]) for i in range(p, e, 16)]")
            else:
                unpack = self.name("unpack", struct.unpack_from)
                self.emit(depth, f"{target} = list({unpack}(f'>{{n}}{field.type.code}', b, p))")
            self.emit(depth, "p = e")
            return
        items, count, item = self.name("items"), self.name("count"), self.name("item")
        self.emit(depth, f"{items} = []")
        self.emit(depth, f"{count} = n")
        self.emit(depth, f"for _ in range({count}):")
        if isinstance(field.type, Primitive):
            # A null element is never allowed: Kafka's arrays of strings have none.
            self.read_sized(field, item, depth + 1, nullable=False)
        else:
            self.emit(depth + 1, f"{item}, p = {self.function_for(field.type)}(b, p)")
        self.emit(depth + 1, f"{items}.append({item})")
        self.emit(depth, f"{target} = {items}")


class _EncoderSource(_Source):
    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self.scope.update(
            write_uvarint=write_uvarint,
            _unwritable_string=_unwritable_string,
            _null_value=_null_value,
            _dropped=_dropped,
            bytearray=bytearray,
        )

    def write_function(self, name: str, cls: type[Struct]) -> None:
        self.emit(0, f"def {name}(o, out):")
        present = self.plain_fields(cls)
        index = 0
        while index < len(present):
            run = _fixed_run(present, index)
            if run:
                self.write_fixed([f"o.{f.name}" for f in run], [f.type for f in run], 1)
                index += len(run)
            else:
                self.write_value(present[index], f"o.{present[index].name}", 1)
                index += 1
        for field in cls.__fields__:
            if self.version not in field.versions and not field.ignorable:
                default = self.literal(field.default_value())
                self.emit(
                    1, f"if o.{field.name} != {default}: raise _dropped({field.name!r}, {self.version})"
                )
        if self.flexible:
            self.write_tags(self.tagged_fields(cls))
        elif len(self.lines) == 1:
            self.emit(1, "pass")

    def write_tags(self, tagged: list[Field]) -> None:
        if not tagged:
            self.emit(1, "out.append(0)")
            return
        self.emit(1, "n_ = 0")
        self.emit(1, "tags = bytearray()")
        self.emit(1, "whole = out")
        for field in tagged:
            self.emit(1, f"if o.{field.name} != {self.literal(field.default_value())}:")
            self.emit(2, "n_ += 1")
            if isinstance(field.type, Primitive) and field.type.code and not field.is_array:
                layout = struct.Struct(">" + field.type.code)
                head = bytearray()
                write_uvarint(field.tag or 0, head)
                write_uvarint(layout.size, head)
                pack = self.name("pack", layout.pack)
                self.emit(2, f"tags += {bytes(head)!r}")
                self.emit(2, f"tags += {pack}(o.{field.name})")
                continue
            self.emit(2, "out = bytearray()")
            self.write_value(field, f"o.{field.name}", 2, in_tag=True)
            self.emit(2, f"write_uvarint({field.tag}, tags)")
            self.emit(2, "write_uvarint(len(out), tags)")
            self.emit(2, "tags += out")
        self.emit(1, "write_uvarint(n_, whole)")
        self.emit(1, "whole += tags")

    def write_fixed(self, values: list[str], types: list[Any], depth: int) -> None:
        layout = struct.Struct(">" + "".join(t.code for t in types))
        self.emit(depth, f"out += {self.name('pack', layout.pack)}({', '.join(values)})")

    def write_value(self, field: Field, value: str, depth: int, in_tag: bool = False) -> None:
        nullable = self.version in field.nullable
        if field.is_array:
            self.write_array(field, value, depth, nullable)
        elif isinstance(field.type, Primitive):
            if field.type.code:
                self.write_fixed([value], [field.type], depth)
            else:
                self.write_sized(field.type, field.name, value, depth, nullable)
        else:
            self.write_struct(field, value, depth, nullable, in_tag)

    def write_length(self, length: str, depth: int, *, short: bool) -> None:
        if self.flexible:
            self.emit(depth, f"n = {length} + 1")
            self.emit(depth, "if n < 128: out.append(n)")
            if short:
                self.emit(depth, f"elif n > {STRING_BYTES_MAX + 1}: raise _unwritable_string(n - 1)")
            self.emit(depth, "else: write_uvarint(n, out)")
        else:
            pack = self.name("pack", struct.Struct(">h" if short else ">i").pack)
            self.emit(depth, f"out += {pack}({length})")

    def unless_null(self, name: str, value: str, depth: int, nullable: bool, *, short: bool) -> None:
        minus_one = b"\xff\xff" if short else b"\xff\xff\xff\xff"
        self.emit(depth, f"if {value} is None:")
        if not nullable:
            self.emit(depth + 1, f"raise _null_value({name!r}, {self.version})")
        elif self.flexible:
            self.emit(depth + 1, "out.append(0)")
        else:
            self.emit(depth + 1, f"out += {minus_one!r}")
        self.emit(depth, "else:")

    def write_sized(self, kind: Primitive, name: str, value: str, depth: int, nullable: bool) -> None:
        short = kind.name == "string"
        if kind.name == "records" and not nullable:
            # None is the default of records; where null cannot be said, there are just none.
            self.emit(depth, f"v = {value} or b''")
        else:
            self.unless_null(name, value, depth, nullable, short=short)
            depth += 1
            self.emit(depth, f"v = {value}.encode()" if short else f"v = {value}")
        self.write_length("len(v)", depth, short=short)
        self.emit(depth, "out += v")

    def write_struct(self, field: Field, value: str, depth: int, nullable: bool, in_tag: bool) -> None:
        assert not isinstance(field.type, Primitive)
        function = self.function_for(field.type)
        if nullable:
            self.emit(depth, f"if {value} is None: out.append({0 if in_tag else 255})")
            self.emit(depth, "else:")
            self.emit(depth + 1, "out.append(1)")
            self.emit(depth + 1, f"{function}({value}, out)")
        else:
            self.emit(depth, f"{function}({value}, out)")

    def write_array(self, field: Field, value: str, depth: int, nullable: bool) -> None:
        self.unless_null(field.name, value, depth, nullable, short=False)
        depth += 1
        self.write_length(f"len({value})", depth, short=False)
        if isinstance(field.type, Primitive) and field.type.code:
            if field.type.name == "uuid":
                self.emit(depth, f"out += b''.join({value})")
            else:
                pack = self.name("pack", struct.pack)
                self.emit(depth, f"out += {pack}(f'>{{len({value})}}{field.type.code}', *{value})")
            return
        item = self.name("item")
        self.emit(depth, f"for {item} in {value}:")
        if isinstance(field.type, Primitive):
            self.write_sized(field.type, field.name, item, depth + 1, nullable=False)
        else:
            self.emit(depth + 1, f"{self.function_for(field.type)}({item}, out)")


def _has_records(cls: type[Struct]) -> bool:
    """Whether something in it is handed on as a view of the buffer."""
    return any(
        field.type is RECORDS if isinstance(field.type, Primitive) else _has_records(field.type)
        for field in cls.__fields__
    )


def _fixed_run(fields: list[Field], start: int) -> list[Field]:
    """The longest run of fixed-size scalar fields from `start`."""
    end = start
    while end < len(fields):
        field = fields[end]
        if field.is_array or not isinstance(field.type, Primitive) or not field.type.code:
            break
        end += 1
    return fields[start:end]
