"""The characters that nobody sees."""

import re

UNPRINTABLE = r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
"""Characters that a terminal or a reader obeys instead of showing them: controls, directions of text, and halves."""
OBEYED = re.compile(rf"(?![\n\t]){UNPRINTABLE}")
"""The same but ends of lines and tabs, which texts of several lines have."""
