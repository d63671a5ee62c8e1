"""How long a server asks us to wait before the next try (RFC 9110 10.2.3, wire 6, X15, X16).

Digits are matched as ASCII text and never handed to `float` or `int` unchecked: both accept `1_0`, `+5`, `inf` and digits of
other scripts. A hint is returned as it is, however long; whether to wait is decided where the budget is known.
"""

import re
from calendar import timegm
from collections.abc import Mapping
from datetime import UTC, datetime

LONGEST_MS = 2**53  # what an overflowing hint becomes: "too long", never "none" (X15)

_DECIMAL = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CLOCK = r"(?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_FORMS = (
    re.compile(rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?P<day>\d{{2}}) {_MONTH} (?P<year>\d{{4}}) {_CLOCK} GMT", re.ASCII),
    re.compile(
        rf"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (?P<day>\d{{2}})-{_MONTH}-(?P<year>\d{{2}}) {_CLOCK} GMT", re.ASCII
    ),
    re.compile(rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) {_MONTH} (?P<day>[ \d]\d) {_CLOCK} (?P<year>\d{{4}})", re.ASCII),
)


def retry_after_ms(headers: Mapping[str, str], now_ms: int) -> int | None:
    """Milliseconds to wait, or None if the server gave no usable hint. Header names are lower case.

    `retry-after-ms` wins over `retry-after`. A date is taken against the response's own `date` where there is one, so that a
    skewed clock here changes nothing; else against `now_ms`, Unix milliseconds. A date in the past is 0.
    """
    hint = _scaled(headers.get("retry-after-ms", ""), 1)
    if hint is not None:
        return hint
    value = headers.get("retry-after", "")
    hint = _scaled(value, 1000)
    if hint is not None:
        return hint
    when_ms = http_date_ms(value, now_ms)
    if when_ms is None:
        return None
    sent_ms = http_date_ms(headers.get("date", ""), now_ms)
    return min(max(0, when_ms - (now_ms if sent_ms is None else sent_ms)), LONGEST_MS)


def _scaled(text: str, unit_ms: int) -> int | None:
    number = text.strip(" \t")
    if not _DECIMAL.fullmatch(number):
        return None
    whole, _, part = number.partition(".")
    whole = whole.lstrip("0")
    if len(whole) > 15:
        return LONGEST_MS
    billionths = int(whole or "0") * 10**9 + int(part[:9].ljust(9, "0"))
    return min(-(-billionths * unit_ms // 10**9), LONGEST_MS)  # rounded up: a hint is never shortened (X16)


def http_date_ms(text: str, now_ms: int) -> int | None:
    """Unix milliseconds of an HTTP date in any of its three forms, all of them UTC; None if it is none of them.

    A two-digit year that would lie more than 50 years after `now_ms` belongs to the past century.
    """
    match = next((found for form in _FORMS if (found := form.fullmatch(text.strip(" \t")))), None)
    if match is None:
        return None
    year = int(match["year"])
    if len(match["year"]) == 2:
        this_year = datetime.fromtimestamp(now_ms / 1000, UTC).year
        year += this_year - this_year % 100
        year -= 100 if year > this_year + 50 else 0
    try:
        moment = datetime(
            year,
            _MONTHS.index(match["month"]) + 1,
            int(match["day"]),
            int(match["hour"]),
            int(match["minute"]),
            min(int(match["second"]), 59),  # a leap second is the last one of its minute
            tzinfo=UTC,
        )
    except ValueError:
        return None
    return timegm(moment.timetuple()) * 1000
