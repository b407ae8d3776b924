"""Where a row of a table stands in its file, in words that a user can look up."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Places:
    """Rows of a table: by line where each row is one line of text, else counted from 0.

    >>> Places("t.csv", lines=True).of(0), Places("t.parquet", lines=False).of(0)
    ('line 2', 'data row 0 (0-based)')
    """

    name: str
    lines: bool

    def of(self, row: int) -> str:
        """The place of a row, counted from 0."""
        return f"line {row + 2}" if self.lines else f"data row {row} (0-based)"

    def told(self, message: str) -> str:
        """A message about arrays in terms of the file and of the command line.

        >>> Places("t.csv", lines=True).told("input row 3 has no label; see instance_label=")
        'line 5 has no label; see --instance-label'
        """
        message = re.sub(r"\b(?:input row|entry) (\d+)", lambda m: self.of(int(m[1])), message)
        return message.replace("instance_label=", "--instance-label")
