"""Patterns of non-translatable spans: placeholders, markup, addresses and code."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache

from clearhead.text.scripts import CHINESE_AND_JAPANESE_LETTERS, CHINESE_AND_JAPANESE_MARKS

NUM_ALONE, NUM_PAIRS = 16, 8
NUM_SIGNS = NUM_ALONE + 2 * NUM_PAIRS
SIGNS = tuple(chr(0xF0000 + number) for number in range(NUM_SIGNS))
"""Private-use characters that replace placeholders (`protect`): first those for single placeholders, then those for
opening ones, then those for closing ones in the same order."""

_PICTURE = (
    "(?:[\u203c-\u3299\xa9\xae]\ufe0f|[\U0001f000-\U0001f1e5\U0001f200-\U0001faff\u231a\u231b\u23e9-\u23ec\u23f0\u23f3"
    "\u25fd\u25fe\u2614\u2615\u2648-\u2653\u267f\u2693\u26a1\u26aa\u26ab\u26bd\u26be\u26c4\u26c5\u26ce\u26d4\u26ea\u26f2\u26f3\u26f5"
    "\u26fa\u26fd\u2705\u270a\u270b\u2728\u274c\u274e\u2753-\u2755\u2757\u2795-\u2797\u27b0\u27bf\u2b1b\u2b1c\u2b50\u2b55]\ufe0f?)"
    "[\U0001f3fb-\U0001f3ff]?[\U000e0020-\U000e007f]{0,10}"
)
"""Pattern of a character that is shown as a picture by itself (Emoji_Presentation of Unicode) or by a selector."""
EMOJI = rf"(?:[\U0001f1e6-\U0001f1ff]{{2}}|[0-9\#*]\ufe0f?\u20e3|{_PICTURE}(?:\u200d{_PICTURE}){{0,9}})"
"""Pattern of an emoji: a flag, a key, or pictures joined to one."""

_MAY_BE_EMOJI = "\xa9\xae\u203c-\u3299\U0001f000-\U0001faff"
"""Range of characters of which every emoji has one."""

FIRST_SIGNS = "%{$#@<&:`|*"
"""Every placeholder begins with one of these, except addresses, which contain one, and emoji."""

# Most texts have none of these characters, and compiling the long patterns takes as long as translating a sentence.
_MAY_BE_PLACEHOLDER = re.compile(rf"[{re.escape(FIRST_SIGNS)}{_MAY_BE_EMOJI}]")
_MAY_BE_KEPT = re.compile(rf"[{re.escape(FIRST_SIGNS)}{_MAY_BE_EMOJI}}}\\_=/]|\w[.(]\w|(?<![^\s<>])--?[A-Za-z]")
STATEMENT_SIGNS = ("{%", "{{%", "{{<", "{{#", "{{^", "{{/")
"""Beginnings of statements of template languages."""

_SPEC = r"[-+\#'0]{0,4}(?:[0-9]{1,9}|\*(?:[0-9]{1,3}\$)?)?(?:\.(?:[0-9]{1,9}|\*(?:[0-9]{1,3}\$)?)?)?"
"""Pattern of flags, width and precision of a format; bounded to keep matching fast. The flag for a space is left out:
it would make a format of `100 % sure`."""
_SIZED = r"(?:(?:hh?|ll?|[qjzt]|I64|I32)[diouxXn]|l[csaAeEfFgG]|L[aAeEfFgG])"
_MACRO = "<PRI[diouxX][A-Z0-9]{1,12}>"

_CJK = rf"{CHINESE_AND_JAPANESE_LETTERS}{CHINESE_AND_JAPANESE_MARKS}\u3000\uffa0-\uffef"  # follow an address directly
_MAIL, _HOST = "[a-zA-Z0-9_.+-]", "[a-zA-Z0-9_-]"
_KEY = "[A-Za-z_][A-Za-z0-9_]{0,40}"
_BEFORE_COLON = rf"""(?<![^\s{CHINESE_AND_JAPANESE_LETTERS}(\[<>/"'«„“‘¿¡,;=|$€£\#+–—-])(?<!\w["'])"""
"""Pattern of a place where `:name` can be a placeholder: not behind a word, an address or a closing sign."""

CLOSING_MARK = r"(?<=[\w`\"')»”.:!?])\*{1,2}(?![\w*])"
"""Pattern of the end of `*emphasis*` or `**bold**`."""

_PLACEHOLDER = rf"""
      (?=[{re.escape(FIRST_SIGNS)}])(?:                     # plain words pass fast
      %%                                                    # the sign itself in a text with formats
    | %(?:\(\w{{1,60}}\)\ ?|<\w{{1,60}}>){_SPEC}[hlL]?[a-zA-Z]       # %(name)s, %<name>s
    | (?<![\w%])%[A-Za-z_]\w{{2,40}}%(?![\w%])                  # %name% of Symfony
    | (?<!\d)%[0-9]{{1,3}}\${_SPEC}(?:{_MACRO}|{_SIZED}|[a-zA-Z@])    # %1$s, %1$ld
    | (?<!\d)%{_SPEC}(?:{_MACRO}|(?:{_SIZED}|[sdifgucxX@])(?![a-zA-Z]))    # %5.2f, %ld; not the share in 50%ig
    | (?<!\d)%(?:-?(?!L[0-9])[a-zA-Z](?![a-zA-Z])|{_SPEC}\.[0-9]{{1,9}}[a-zA-Z]|\#@\w{{1,60}}@)    # %r, %.1fMB, %#@x@
    | (?<!\d)(?<!\d[ \u00a0\u202f])%(?:[sd@]|(?:ll?|z)[du])     # %sLink%s, %dpx; not 50 %sure
    | (?<![\w%])%L?[1-9][0-9]?(?![0-9]|[.,][0-9])           # %1, %L2 of Qt
    | \{{\{{[^{{}}\n]{{1,200}}\}}\}}                              # {{{{ name }}}}, {{{{% note %}}}}
    | \{{%[^%\n]{{1,200}}%\}} | <%[^\n]{{0,200}}?%> | <\?[^\n]{{0,200}}?\?>     # {{% if x %}}, <%= x %>, <?php x ?>
    | [$%\#]\{{[^{{}}\n]{{1,60}}\}}                              # ${{NAME}}, %{{x}}, #{{x}}
    | \{{[\w.:!,%\#+<>=^?\[\]$-]{{0,60}}\}}                      # {{name}}, {{0:>8}}, {{}}
    | \{{\w{{1,40}},\s?(?:number|date|time|spellout|ordinal|duration)[^{{}}\n]{{0,60}}\}}      # {{n, number}}
    | \$[A-Z_][A-Z0-9_]{{2,60}}(?![A-Z0-9_$])                  # $HOME; US$ and $CA are money
    | (?<![A-Za-z0-9_$])\$[A-Za-z][A-Za-z0-9_@]{{0,60}}\$(?![A-Za-z0-9_$])    # $name$ of browser extensions
    | \$tc?\([^()\n]{{1,100}}\)                                # $t(key) of i18next
    | (?<![\w@.:])@(?:\.[a-z]{{1,20}})?:(?:\([\w.-]{{1,80}}\)|{_KEY}(?:\.{_KEY}){{0,8}})    # @:key of vue-i18n
    | </?(?:[A-Za-z][A-Za-z0-9:.-]{{0,60}}(?:\s[^<>=]*=[^<>]*)?|[0-9]{{1,3}})\s?/?>    # <b>, <a href="...">, </0>
    | &(?:[A-Za-z]\w{{1,30}}|\#[0-9]{{1,7}}|\#x[0-9A-Fa-f]{{1,6}});   # &amp; &#160;
    | :[a-z][a-z0-9:+._-]{{0,40}}:`[^`<>\n]{{1,100}}`          # :func:`open`, not :ref:`text <label>`
    | (?<![\w:]):[a-z][a-z0-9_+-]{{1,30}}:(?![\w`])            # :smile:
    | {_BEFORE_COLON}:[a-z][A-Za-z0-9_]{{1,60}}(?![A-Za-z0-9_:(])    # :name of Laravel
    | ``[^`\n]{{1,200}}``                                        # ``code`` of reStructuredText
    | (?<![\w`:])`[^`\s<>]{{1,80}}`(?![`_\w])                     # `code` of Markdown, a word
    | \|[A-Za-z][\w.-]{{0,40}}\|                                 # |version|
    | (?<![\w*])\*{{1,2}}(?=[\w`:"'(«“])                          # *emphasis* and **bold** begin,
    | {CLOSING_MARK}                                       # and end
      )
    | {EMOJI}
    | (?<![a-zA-Z0-9_])[a-zA-Z]{{2,9}}://[^\s<>"'{_CJK}]*[^\W{_CJK}]/?    # https://example.org
    | (?<!{_MAIL}){_MAIL}{{1,60}}@{_HOST}{{1,60}}(?:\.{_HOST}{{1,60}}){{1,5}}  # name@example.org
    """

TAG = re.compile(r"<(/?)([A-Za-z0-9][\w:.-]*)[^>]*?(/?)>")
"""Pattern of a tag among the placeholders: its slash, its name, and the slash of a tag that closes itself."""
_STATEMENT = re.compile(
    r"(\{\{?%|\{\{<|\{\{(?=[#^/])|<\?php(?= +(?:end)?(?:if|for|while|switch)))"
    r"[-+#^]?\s*+(?:(/|end_?+)(?=\w))?([A-Za-z_]\w*)"
)
_ERB_BLOCK = re.compile(r"<% (?:(?:if|unless|case|while|until|for|begin)\b|.*\bdo\b)")
_ANGULAR = re.compile(r"(?:\{\$)?(START|CLOSE)_(\w+?)(?:_\d+)?\}?")

_KEPT = rf"""(
      {_PLACEHOLDER}
    | (?<![^\s<>])[^\s<>]*(?:[%{{}}$\\_@\#=|`]|\w\.\w\w|\w\(\w)[^\s<>]*       # code: a_b, x=1, file.txt, f(x)
    | (?<!\S)/\w\S*                                          # a path
    | (?<![^\s<>])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?![^\s,<>])       # --max-minutes of a command; not the dash of --Ja
    | (?<![^\s<>])-[A-Za-z](?![^\s,<>])                      # -n
    | (?<!\w)(?:\w\.){{2,}}                                  # U.S.
    )"""

_INVISIBLE_KINDS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"})
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | set(map(chr, range(0xFE00, 0xFE10)))
"""Letters, marks and symbols that are invisible: fillers, the blank of Braille, selectors of a variant."""


@cache
def placeholder() -> re.Pattern[str]:
    """Return the pattern of placeholders, compiled when it is first needed.

    They are what programs, browsers and mail programs read, emoji, and the marks of Markdown and reStructuredText.
    """
    return re.compile(_PLACEHOLDER, re.VERBOSE)


def find_placeholders(text: str, *, with_numbers: bool = False) -> Iterator[re.Match[str]]:
    """Return the placeholders of a text, and its numbers if those are asked for.

    >>> [found[0] for found in find_placeholders("%s of <b>5</b>")]
    ['%s', '<b>', '</b>']
    """
    if with_numbers:
        return _placeholder_or_number().finditer(text)
    return placeholder().finditer(text) if may_have_placeholders(text) else iter(())


def may_have_placeholders(text: str) -> bool:
    """Return whether a text has a character that every placeholder has; quicker than to find them.

    >>> may_have_placeholders("50 %"), may_have_placeholders("a dog.")
    (True, False)
    """
    return _MAY_BE_PLACEHOLDER.search(text) is not None


@cache
def _placeholder_or_number() -> re.Pattern[str]:
    number = r"(?<![\w.,])[0-9]+(?:[.,:/-][0-9]+){0,9}(?!\w)  # 7, 1,250.5, 20:15, 2016-05-03"
    return re.compile(f"{_PLACEHOLDER} | {number}", re.VERBOSE)


def patterns() -> dict[str, re.Pattern[str]]:
    """Return the patterns of this module by name, for the same search in another language (`pages/web`)."""
    return {
        "may_be_placeholder": _MAY_BE_PLACEHOLDER,
        "may_be_kept": _MAY_BE_KEPT,
        "placeholder": placeholder(),
        "placeholder_or_number": _placeholder_or_number(),
        "kept": _kept(),
        "closing_mark": re.compile(CLOSING_MARK),
        "tag": TAG,
        "statement": _STATEMENT,
        "erb_block": _ERB_BLOCK,
        "angular": _ANGULAR,
    }


def pair_role(code: str) -> tuple[str, bool] | None:
    """Return the name of the pair that a code can be half of, and whether it is the closing half; None if of no pair.

    The codes are tags, statements of template languages (`{% if x %}`, `{{% note %}}`, `{{#if x}}`) and the names that
    Angular gives tags. Whether an opening code has a closing one depends on the text: `{% include x %}` has none.

    >>> pair_role("{% endif %}"), pair_role("<b>"), pair_role("START_LINK_1"), pair_role("<br/>")
    (('{%if', True), ('<b', False), ('LINK', False), None)
    """
    if tag := TAG.fullmatch(code):
        return None if tag[3] else (f"<{tag[2]}", bool(tag[1]))
    if named := _ANGULAR.fullmatch(code):
        return named[2], named[1] == "CLOSE"
    if code.startswith("<% "):
        return ("<%", False) if _ERB_BLOCK.match(code) else ("<%", True) if code == "<% end %>" else None
    if (statement := _STATEMENT.match(code)) and not code.endswith("/>}}"):
        return statement[1] + statement[3], bool(statement[2])
    return None


@cache
def _kept() -> re.Pattern[str]:
    return re.compile(_KEPT, re.VERBOSE)


def words_alone(text: str) -> str:
    """Return a text with its non-translatable spans replaced by spaces.

    >>> words_alone("EIN %s IM U.S. SENAT, siehe README.txt")
    'EIN   IM   SENAT, siehe  '
    """
    return _kept().sub(" ", text) if _MAY_BE_KEPT.search(text) else text


def has_words(text: str) -> bool:
    """Return whether a text has a letter outside its non-translatable spans.

    >>> (
    ...     has_words("%s Hunde"),
    ...     has_words("12,50 € ... 😆 %s"),
    ...     has_words("https://example.org"),
    ...     has_words("-n, --dry-run"),
    ... )
    (True, False, False, False)
    """
    return any(map(str.isalpha, words_alone(text)))


def is_blank(text: str) -> bool:
    r"""Return whether a text shows no character: it has only white space, invisible characters and tags.

    >>> is_blank("\u200b \u00ad"), is_blank("<b> </b>"), is_blank("...")
    (True, True, False)
    """
    return not any(map(_is_visible, without_tags(text)))


def without_tags(text: str) -> str:
    """Return a text without its tags.

    >>> without_tags("<g1>a < b</g1> <x2/>")
    'a < b '
    """
    if "<" not in text:
        return text
    return placeholder().sub(lambda found: "" if TAG.fullmatch(found[0]) else found[0], text)


def _is_visible(character: str) -> bool:
    return unicodedata.category(character) not in _INVISIBLE_KINDS and character not in _INVISIBLE


def change_words(text: str, change: Callable[[str], str]) -> str:
    """Return a text with a function applied to the parts between its non-translatable spans.

    >>> change_words("<b>ein</b> {hund} & und/oder", str.upper)
    '<b>EIN</b> {hund} & UND/ODER'
    """
    parts = _kept().split(text) if _MAY_BE_KEPT.search(text) else [text]
    parts[::2] = map(change, parts[::2])
    return "".join(parts)
