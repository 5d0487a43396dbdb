"""Patterns of non-translatable spans: placeholders, markup, addresses and code."""

from __future__ import annotations

import re
from collections.abc import Callable

from clearhead.text.scripts import CHINESE_AND_JAPANESE_LETTERS, CHINESE_AND_JAPANESE_MARKS

NUM_ALONE, NUM_PAIRS = 16, 8
NUM_SIGNS = NUM_ALONE + 2 * NUM_PAIRS
SIGNS = tuple(chr(0xF0000 + number) for number in range(NUM_SIGNS))
"""Private-use characters that replace placeholders (`protect`): first those for single placeholders, then those for
opening ones, then those for closing ones in the same order."""

_SPEC = r"[-+\#]{0,3}[0-9]{0,9}(?:\.[0-9]{0,9})?"  # width and precision of a number; bounded to keep matching fast

_CJK = rf"{CHINESE_AND_JAPANESE_LETTERS}{CHINESE_AND_JAPANESE_MARKS}\u3000\uffa0-\uffef"  # follow an address directly
_MAIL, _HOST = "[a-zA-Z0-9_.+-]", "[a-zA-Z0-9_-]"

CLOSING_MARK = r"(?<=[\w`\"')»”.:!?])\*{1,2}(?![\w*])"
"""Pattern of the end of `*emphasis*` or `**bold**`."""

PLACEHOLDER = re.compile(
    rf"""
      %\(\w{{1,60}}\)\ ?{_SPEC}[a-zA-Z]                       # %(name)s
    | (?<!\d)%[0-9]{{1,3}}\${_SPEC}[a-zA-Z@]                  # %1$s
    | (?<![\d%])%{_SPEC}[sdifgucx@](?![a-zA-Z])             # %s, %5.2f; not the share in 50%ig
    | (?<![\w%])%L?(?:[1-9][0-9]?(?![0-9]|[.,][0-9])|n(?!\w))  # %1, %L2, %n of Qt
    | \{{\{{[^{{}}\n]{{1,60}}\}}\}}                               # {{{{ name }}}}
    | \$?\{{[\w.:!,%\#-]{{0,60}}\}}                            # {{name}}, {{0}}, {{}}, ${{NAME}}
    | \$[A-Z_][A-Z0-9_]{{2,60}}                              # $HOME; US$ and $CA are money
    | </?[A-Za-z][A-Za-z0-9:.-]{{0,60}}(?:\s[^<>=]*=[^<>]*)?\s?/?>          # <b>, </b>, <br/>, <a href="...">
    | &(?:[A-Za-z]\w{{1,30}}|\#[0-9]{{1,7}}|\#x[0-9A-Fa-f]{{1,6}});   # &amp; &#160;
    | (?<![a-zA-Z0-9_])[a-zA-Z]{{2,9}}://[^\s<>"'{_CJK}]*[^\W{_CJK}]/?    # https://example.org
    | (?<!{_MAIL}){_MAIL}{{1,60}}@{_HOST}{{1,60}}(?:\.{_HOST}{{1,60}}){{1,5}}  # name@example.org
    | :[a-z][a-z0-9:+._-]{{0,40}}:`[^`<>\n]{{1,100}}`          # :func:`open`, not :ref:`text <label>`
    | ``[^`\n]{{1,200}}``                                        # ``code`` of reStructuredText
    | (?<![\w`:])`[^`\s<>]{{1,80}}`(?![`_\w])                     # `code` of Markdown, a word
    | \|[A-Za-z][\w.-]{{0,40}}\|                                 # |version|
    | (?<![\w*])\*{{1,2}}(?=[\w`:"'(«“])                          # *emphasis* and **bold** begin,
    | {CLOSING_MARK}                                       # and end
    """,
    re.VERBOSE,
)
"""Pattern of what programs, browsers and mail programs read, and of the marks of Markdown and reStructuredText."""

PLACEHOLDER_OR_NUMBER = re.compile(
    rf"{PLACEHOLDER.pattern} | (?<![\w.,])[0-9]+(?:[.,:/-][0-9]+){{0,9}}(?!\w)  # 7, 1,250.5, 20:15, 2016-05-03",
    re.VERBOSE,
)

_KEPT = re.compile(
    rf"""(
      {PLACEHOLDER.pattern}
    | (?<![^\s<>])[^\s<>]*(?:[%{{}}$\\_@\#=|`]|\w\.\w\w|\w\(\w)[^\s<>]*       # code: a_b, x=1, file.txt, f(x)
    | (?<!\S)/\w\S*                                          # a path
    | (?<!\w)(?:\w\.){{2,}}                                  # U.S.
    )""",
    re.VERBOSE,
)


def words_alone(text: str) -> str:
    """Return a text with its non-translatable spans replaced by spaces.

    >>> words_alone("EIN %s IM U.S. SENAT, siehe README.txt")
    'EIN   IM   SENAT, siehe  '
    """
    return _KEPT.sub(" ", text)


def change_words(text: str, change: Callable[[str], str]) -> str:
    """Return a text with a function applied to the parts between its non-translatable spans.

    >>> change_words("<b>ein</b> {hund} & und/oder", str.upper)
    '<b>EIN</b> {hund} & UND/ODER'
    """
    parts = _KEPT.split(text)
    parts[::2] = map(change, parts[::2])
    return "".join(parts)
