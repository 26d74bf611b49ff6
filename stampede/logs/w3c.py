"""The extended log format of the W3C, whose directive #Fields names the columns: IIS and CloudFront write it."""

import re
from collections.abc import Sequence

from stampede.logs.formats import Format

_COLUMNS = {
    "date": r"(?P<time>\d{4}-\d\d-\d\d[ \t]\d\d:\d\d:\d\d)",
    "time": "",
    "cs-method": r"(?P<method>[A-Z]+)",
    "cs-uri-stem": r"(?P<target>/\S*)",
    "sc-status": r"(?P<status>\d{3})",
    "time-taken": r"(?:(?P<s>\d+\.\d+)|(?P<ms>\d+)|-)",
}
"""What a column has. IIS writes whole milliseconds, and CloudFront decimal seconds."""


def w3c_format(texts: Sequence[str]) -> Format | None:
    """Return the format that the lines of a log declare; None: they declare none with a time and a request."""
    named = next((text for text in texts if text.lstrip("\ufeff").startswith("#Fields:")), "")
    names = named.partition(":")[2].split()
    if not {"date", "time", "cs-method", "cs-uri-stem", "sc-status"} <= {*names}:
        return None
    columns = [_COLUMNS.get(name, r"\S+") for name in names]
    return Format(
        "the W3C extended format", "www.w3.org/TR/WD-logfile, and the manuals of IIS and CloudFront",
        re.compile("^" + r"[ \t]".join(filter(None, columns)) + r"\s*$"),
        "time-taken" if "time-taken" in names else "", "balancer",
    )  # fmt: skip
