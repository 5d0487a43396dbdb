from __future__ import annotations

import pytest

from clearhead.formats import language_in_name


@pytest.mark.parametrize(
    ("path", "language"),
    [
        *(("train.de", "de"), ("a.b/train.raw.en.gz", "en"), ("TRAIN.DE.zst", "de"), ("news.ja.xz", "ja")),
        *(
            ("train.txt", None),
            ("train.xx", None),
            ("de", None),
            ("train.deu", None),
            ("-", None),
            ("a.de/train", None),
        ),
    ],
)
def test_the_language_is_what_the_name_ends_in(path, language):
    assert language_in_name(path) == language
