"""Numbers and times as Java prints them."""

from __future__ import annotations

import math
import re
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal


def fixed(value: float, digits: int) -> str:
    """`%.<digits>f`: unlike C's, it rounds the decimal that the value is written as, and halves go up."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def ratio(part: float, whole: float) -> float:
    """A division as doubles do it: by zero it gives NaN or an infinity."""
    if whole:
        return part / whole
    return math.copysign(math.inf, part) if part else math.nan


_DATE_FIELDS = {
    "y": lambda at: at.year,
    "M": lambda at: at.month,
    "d": lambda at: at.day,
    "H": lambda at: at.hour,
    "m": lambda at: at.minute,
    "s": lambda at: at.second,
    "S": lambda at: at.microsecond // 1000,
}
_DATE_TOKEN = re.compile(r"'([^']*)'|([A-Za-z])\2*|[^A-Za-z']+")


def java_date(pattern: str, at: datetime) -> str:
    """SimpleDateFormat, of the numeric fields of date and time. Raises ValueError for others."""
    parts: list[str] = []
    for token in _DATE_TOKEN.finditer(pattern):
        letter, text = token.group(2), token.group()
        if letter is None:
            parts.append((token.group(1) or "'") if text.startswith("'") else text)
        elif letter not in _DATE_FIELDS:
            raise ValueError(f"{letter!r} in a date format is none of {', '.join(_DATE_FIELDS)}")
        elif letter == "y" and len(text) == 2:
            parts.append(f"{at.year % 100:02}")
        else:
            parts.append(f"{_DATE_FIELDS[letter](at):0{len(text)}}")
    return "".join(parts)
