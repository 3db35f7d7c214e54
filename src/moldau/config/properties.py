"""Java's properties files: server.properties, meta.properties, and their like.

A logical line is `key=value`, `key: value` or `key value`; `#` and `!` begin comments; an odd number of
backslashes at its end joins the next line to it; backslash escapes are \\t \\n \\r \\f, \\uXXXX, and any
other character for itself. The last of two equal keys wins. Bytes are ISO-8859-1, as Java reads them, hence
\\uXXXX for the rest.
"""

from collections.abc import Iterable, Iterator, Mapping

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}
_SEPARATORS = "=:#!"


class PropertiesError(ValueError):
    """The text is not a properties file; the message names the line."""


def parse_properties(source: str | bytes) -> dict[str, str]:
    """The keys and values in `source`. Raises PropertiesError for a malformed \\uXXXX."""
    text = source.decode("latin-1") if isinstance(source, bytes) else source
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        try:
            properties[_unescape(key)] = _unescape(value)
        except ValueError:
            raise PropertiesError(f"line {number}: malformed \\uXXXX escape") from None
    return properties


def format_properties(properties: Mapping[str, str], comments: Iterable[str] = ()) -> str:
    """A properties file with `comments` on top; `parse_properties` gives the same mapping back."""
    lines = [f"#{comment}" for comment in comments]
    lines += [f"{_escape(key, key=True)}={_escape(value, key=False)}" for key, value in properties.items()]
    return "".join(f"{line}\n" for line in lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line that holds a property, with its number, after joining continued ones."""
    # Not splitlines(): Java ends lines at \r and \n only, and a value may hold U+0085 or a form feed.
    pending, started = "", 0
    for number, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = natural.lstrip(_BLANK)
        if not started:
            if not line or line[0] in "#!":
                continue
            started = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
            continue
        yield started, pending + line
        pending, started = "", 0
    if started and pending:
        yield started, pending


def _split(line: str) -> tuple[str, str]:
    """Key and value at the first separator that is not escaped; blanks around it belong to neither."""
    end = 0
    while end < len(line) and line[end] not in "=:" and line[end] not in _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\":
            out.append(char)
            continue
        escape = text[position : position + 1]
        position += 1
        if escape == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise ValueError(digits)
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(escape, escape))
    # Java's chars are UTF-16 units: two escapes can stand for one character.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, key: bool) -> str:
    out: list[str] = []
    for index, char in enumerate(text):
        if char == " ":
            # Blanks separate in keys; in values only leading ones would be lost.
            out.append("\\ " if key or index == 0 else " ")
        elif char in _ESCAPED:
            out.append(_ESCAPED[char])
        elif char in _SEPARATORS:
            out.append("\\" + char)
        elif " " <= char <= "~":
            out.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            out.extend(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
    return "".join(out)
