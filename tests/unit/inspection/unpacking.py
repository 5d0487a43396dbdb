"""Packed arrays, read as docs/explanation-json.md says."""

from __future__ import annotations

import base64

import numpy as np


def unpacked(value):
    """Read an array by the words of the page alone."""
    data = base64.b64decode(value["data"])
    if value["type"] == "int8":
        return np.frombuffer(data, np.int8).reshape(value["shape"]) * unpacked(value["scales"])[..., None]
    if value["type"] == "root16":
        return (np.frombuffer(data, "<u2").reshape(value["shape"]) / 65535) ** 4
    four = b"".join(b"\0" + data[at : at + 3] for at in range(0, len(data), 3))
    return np.frombuffer(four, "<f4").reshape(value["shape"])
