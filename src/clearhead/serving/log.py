"""The server's log: one JSON object per line, without texts, keys and addresses."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

LOGGER = logging.getLogger("clearhead.serving")


def log_event(level: int, **fields: Any) -> None:
    """Write a log line.

    Args:
        level: As for `logging`.
        **fields: Its fields, first the name of the `event`.
    """
    LOGGER.log(level, json.dumps(fields))


class _JsonFormatter(logging.Formatter):
    """Format of a log line: a JSON object with time and level before the fields of the event.

    Messages of libraries may contain a text or an address, so only the place where they were logged is kept.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields = {"time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"), "level": record.levelname.lower()}
        if record.name == LOGGER.name:
            return f"{json.dumps(fields)[:-1]}, {record.getMessage()[1:]}"  # merge the two JSON objects into one
        kind = {"error": record.exc_info[0].__name__} if record.exc_info and record.exc_info[0] else {}
        place = f"{record.filename}:{record.lineno}"
        return json.dumps({**fields, "event": "library", "logger": record.name, "place": place, **kind})


def log_to_stderr(*, with_libraries: bool = False) -> None:
    """Write the log to stderr, one JSON object per line.

    Args:
        with_libraries: Include log records of libraries, and warnings, for use where nothing else prints them.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter())
    LOGGER.handlers[:] = [handler]
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    if with_libraries:
        logging.getLogger().handlers[:] = [handler]
        logging.captureWarnings(True)
