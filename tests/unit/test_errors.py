"""Messages can be read, whatever they quote."""

from __future__ import annotations

import pickle
import re

from clearhead.errors import LONGEST_MESSAGE, DataError


def test_a_message_keeps_its_beginning_and_its_end_however_long_it_is():
    message = "in.txt, line 3: " + "x" * 100_000 + "; give another file"
    said = str(DataError(message))
    assert said.startswith("in.txt, line 3: xxx")
    assert said.endswith("xxx; give another file")
    left_out = int(re.search(r" \[\.\.\. ([\d,]+) characters left out \.\.\.\] ", said)[1].replace(",", ""))
    assert len(said) - len(f" [... {left_out:,} characters left out ...] ") + left_out == len(message)
    assert len(said) <= LONGEST_MESSAGE
    assert str(pickle.loads(pickle.dumps(DataError(message)))) == said


def test_a_message_of_ordinary_length_is_left_as_it_is():
    assert str(DataError("x" * LONGEST_MESSAGE)) == "x" * LONGEST_MESSAGE
