"""Patterns of non-translatable spans: placeholders, markup, addresses and code."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from clearhead.text.languages import CHINESE_AND_JAPANESE_LETTERS, CHINESE_AND_JAPANESE_MARKS, LETTERS_WITHOUT_SPACES

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

FIRST_SIGNS = "%{$#@<&:`|*[]\\"
"""Every placeholder begins with one of these, except emoji, addresses and codes that look like words, which have other
signs in them."""

# Most texts have none of these characters, and compiling the long patterns takes as long as translating a sentence.
# A search for one of a set of characters takes a tenth of the time of one for alternatives, so the set comes first.
_MAY_BEGIN = rf"{re.escape(FIRST_SIGNS)}{_MAY_BE_EMOJI}_/"
_AROUND = r"(?<=\()\)|(?<=-)-[a-z]|(?<=[A-Za-z0-9_]\.)[a-z_]"
_MAY_BE_PLACEHOLDER = re.compile(rf"[{_MAY_BEGIN}(.-](?:(?<=[{_MAY_BEGIN}])|{_AROUND})")
_MAY_BE_KEPT = re.compile(
    rf"[{_MAY_BEGIN}}}=(.-](?:(?<=[{_MAY_BEGIN}}}=])|{_AROUND}|(?<=\w[.(])\w|(?<=-)(?<![^\s<>]-)-?[A-Za-z])"
)
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

_BESIDE_CODES = rf"{LETTERS_WITHOUT_SPACES}\uac00-\ud7a3"
"""Letters that stand beside codes without a space: those of scripts without spaces, and Korean, for its particles."""
_BEGIN, _END = rf"(?<![^\W{_BESIDE_CODES}])", rf"(?![^\W{_BESIDE_CODES}])"
"""Patterns of places where a code can begin and end: not beside other letters, digits or `_`."""
_NO_SHARE = r"(?<!\d[ \u00a0\u202f])"
"""Pattern of a place where a percent sign is not that of a share."""
_ROLE = ":[a-z][a-z0-9:+._-]{0,40}:"
_LABELLED = r"(?=[^`<>\n]{1,100}\s<[^<>`\n]{1,200}>`)"
"""Pattern of a place before words and their target or label: ``` `words <target>`_ ``` of reStructuredText."""
_FILE = "[A-Za-z0-9_.+-]*[A-Za-z0-9_]"
_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_NO_TAG = r"(?!(?:sub|sup|b|i|u|em|strong|br|span|small|[a-z]{1,3}[0-9]+)[\s/>])"
BBCODE_TAG = (
    r"\[(?:/?(?:b|i|u|s|url|img|quote|code|color|size|list|center|spoiler|email|font|table|tr|td)|\*"
    r"|(?:url|img|quote|code|color|size|list|spoiler|email|font)=[^\[\]\n]{1,100})\]"
)

CLOSING_MARK = r"(?<=[\w`\"')»”.:!?])\*{1,2}(?![\w*])"
"""Pattern of the end of `*emphasis*` or `**bold**`."""


class CodeKind(NamedTuple):
    """A kind of placeholder."""

    name: str
    """What it is, and in which syntax."""
    examples: tuple[str, ...]
    pattern: str
    """Its pattern. Repetitions are bounded, or begin where no other can, so that a search takes time in proportion to
    the text."""


_SIGNED_KINDS = (
    CodeKind("merge field of Salesforce", ("%%First Name%%",), r"%%[A-Za-z]\w{0,40}(?: \w{1,20}){0,3}%%"),
    CodeKind("percent sign of printf", ("%%",), "%%"),
    CodeKind("named format of Python and Ruby", ("%(name)s", "%<name>d"),
             rf"%(?:\(\w{{1,60}}\) ?|<\w{{1,60}}>){_SPEC}[hlL]?[a-zA-Z]"),
    CodeKind("format of elements in D", ("%(%s, %)",), r"%\([^()\n]{1,60}%\)"),
    CodeKind("name of Symfony", ("%name%",), rf"{_BEGIN}(?<!%)%[A-Za-z_]\w{{2,40}}%(?!%){_END}"),
    CodeKind("numbered format of printf", ("%1$s", "%1$ld", "%1$#@boats@"),
             rf"(?<!\d)%[0-9]{{1,3}}\$(?:\#@\w{{1,60}}@|{_SPEC}(?:{_MACRO}|{_SIZED}|[a-zA-Z@]))"),
    CodeKind("numbered format of Go", ("%[1]q", "%[2]*.1f"), rf"%\[[0-9]{{1,2}}\]{_SPEC}[a-zA-Z]"),
    CodeKind("argument of Swift", ("%arg",), rf"%arg{_END}"),
    CodeKind("format of printf", ("%5.2f", "%ld", "%Ld", "%vd", "%<PRIu64>"),  # not the share in 50%ig
             rf"(?<!\d)%{_SPEC}(?:{_MACRO}|(?:{_SIZED}|v[dx]|L[diu]|[sdifgucxX@])(?![a-zA-Z]))"),
    CodeKind("format of one letter, of strftime and others", ("%r", "%-d", "%.1f", "%#@x@"),
             rf"(?<!\d)%(?:-?(?!L[0-9])[a-zA-Z](?![a-zA-Z])|{_SPEC}\.[0-9]{{1,9}}[a-zA-Z]|\#@\w{{1,60}}@)"),
    CodeKind("name of Drupal with a percent sign", ("%title",),  # not the formats in %dpx and %slink%s
             rf"{_BEGIN}(?<!%){_NO_SHARE}%(?![sd]|(?:age|ile)(?!\w))[a-z][a-z_]{{2,40}}(?!%){_END}"),
    CodeKind("format before letters", ("%s", "%d"), rf"(?<!\d){_NO_SHARE}%(?:[sd@]|(?:ll?|z)[du])"),  # not 50 %sure
    CodeKind("number of Qt", ("%1", "%L2"), rf"{_BEGIN}(?<!%)%L?[1-9][0-9]?(?![0-9]|[.,][0-9])"),
    CodeKind("unescaped value of Handlebars", ("{{{name}}}",), r"\{\{\{[^{}\n]{1,200}\}\}\}"),
    CodeKind("value of a template, also with braces in it", ("{{ name }}", "{{% note %}}", "{{ t('a', { b: c }) }}"),
             r"\{\{(?=[^}\n])[^{}\n]{0,200}(?:\{[^{}\n]{0,100}\}[^{}\n]{0,100}){0,3}\}\}"),
    CodeKind("unescaped value of Blade", ("{!! $title !!}",), r"\{!![^{}\n]{1,200}!!\}"),
    CodeKind("comment of Jinja and Twig", ("{# a note #}",), r"\{\#[^{}\n]{0,200}\#\}"),
    CodeKind("statement of a template", ("{% if x %}",), r"\{%[^%\n]{1,200}%\}"),
    CodeKind("statement of ERB and PHP", ("<%= x %>", "<?php x ?>"), r"<%[^\n]{0,200}?%>|<\?[^\n]{0,200}?\?>"),
    CodeKind("variable in braces", ("${NAME}", "%{x}", "#{x}", "@{/x}"), r"[$%\#@]\{[^{}\n]{1,60}\}"),
    CodeKind("field", ("{name}", "{0:>8}", "{}"), r"\{[\w.:!,%\#+<>=^?\[\]$|-]{0,60}\}"),
    CodeKind("field with spaces, of Fluent and Vue", ("{ name }", "{ $name }", "{ -brand }"), r"\{ [\w.$-]{1,60} \}"),
    CodeKind("function of Fluent", ("{ NUMBER($n) }",), r"\{ [A-Z]{1,30}\([^(){}\n]{0,100}\) \}"),
    CodeKind("literal of Vue", ("{'|'}",), r"\{'[^'{}\n]{1,20}'\}"),
    CodeKind("argument of ICU", ("{n, number}",),
             r"\{\w{1,40},\s?(?:number|date|time|spellout|ordinal|duration)[^{}\n]{0,60}\}"),
    CodeKind("environment variable", ("$HOME",), r"\$[A-Z_][A-Z0-9_]{2,60}(?![A-Z0-9_$])"),  # US$ and $CA are money
    CodeKind("name of browser extensions", ("$name$",),
             r"(?<![A-Za-z0-9_$])\$[A-Za-z][A-Za-z0-9_@]{0,60}\$(?![A-Za-z0-9_$])"),
    CodeKind("key of i18next", ("$t(key)",), r"\$tc?\([^()\n]{1,100}\)"),
    CodeKind("variable of Make", ("$(name)",), r"\$\([\w.-]{1,40}\)"),
    CodeKind("key of Vue", ("@:key", "@.lower:(a.b)"),
             rf"{_BEGIN}(?<![@.:])@(?:\.[a-z]{{1,20}})?:(?:\([\w.-]{{1,80}}\)|{_KEY}(?:\.{_KEY}){{0,8}})"),
    CodeKind("directive of Blade, name of Drupal, user", ("@lang('a.b')", "@count", "@scope/name"),
             rf"{_BEGIN}(?<![@.:/+-])@[A-Za-z_][A-Za-z0-9_-]{{1,40}}"
             r"(?:\([^()\n]{0,100}\)|/[A-Za-z0-9_-]{1,40})?"),
    CodeKind("tag", ("<b>", "</b>", '<a href="x">', "<br/>", "</0>"),
             r"</?(?:[A-Za-z][A-Za-z0-9:.-]{0,60}(?:\s[^<>=]*=[^<>]*)?|[0-9]{1,3})\s?/?>"),
    CodeKind("entity", ("&amp;", "&#160;"), r"&(?:[A-Za-z]\w{1,30}|\#[0-9]{1,7}|\#x[0-9A-Fa-f]{1,6});"),
    CodeKind("role of reStructuredText", (":func:`open`", r":term:`oar`\ "), rf"{_ROLE}`[^`<>\n]{{1,100}}`(?:\\ )?"),
    CodeKind("role of reStructuredText with a label", (), rf"{_ROLE}`{_LABELLED}"),
    CodeKind("emoji by its name", (":smile:",), rf"{_BEGIN}(?<!:):[a-z][a-z0-9_+-]{{1,30}}:(?!`){_END}"),
    CodeKind("name of Laravel", (":name",), rf"{_BEFORE_COLON}:[a-z][A-Za-z0-9_]{{1,60}}(?![A-Za-z0-9_:(])"),
    CodeKind("literal of reStructuredText", ("``a code``",), r"``[^`\n]{1,200}``"),
    CodeKind("link of reStructuredText", (), rf"(?<![\w`:\\])`{_LABELLED}"),
    CodeKind("reference of reStructuredText", ("`a page`_", "`a`__"), r"(?<![\w`:])`[^`<>\n]{1,80}`__?(?!\w)"),
    CodeKind("code of Markdown, a word", ("`code`",),
             rf"{_BEGIN}(?<![`:])`[^`\s<>]{{1,80}}`(?![`_]){_END}"),
    CodeKind("substitution of reStructuredText", ("|version|", "|boat|_"), r"\|[A-Za-z][\w.-]{0,40}\|_{0,2}"),
    CodeKind("merge field of Mailchimp", ("*|FNAME|*",), r"\*\|[A-Za-z][\w:,. -]{0,60}\|\*"),
    CodeKind("beginning of emphasis", (), r"(?<![\w*])\*{1,2}(?=[\w`:\"'(«“])"),
    CodeKind("end of emphasis", (), CLOSING_MARK),
    CodeKind("note of reStructuredText", ("[1]_", "[#]_", "[#note]_", "[CIT2002]_"),
             r"\[(?:[0-9]{1,4}|\#[\w.-]{0,40}|\*|[A-Za-z][\w.-]{0,40})\]_(?!\w)"),
    CodeKind("tag of BBCode", ("[b]", "[/b]", "[url=https://example.org]"), BBCODE_TAG),
    CodeKind("field in brackets", ("[[name]]", "[[_TOC_]]"), r"\[\[[\w.-]{1,60}\]\]"),
    CodeKind("interval of Laravel and Symfony", ("[1,19]", "]1,Inf[", "[20,*]"),
             r"[\[\]](?:-?[0-9]{1,9}|-Inf|\*), ?(?:-?[0-9]{1,9}|\+?Inf|\*)[\[\]]"),
    CodeKind("escape", (r"\n", r"\u00e9"), r"\\(?:[nrt0-9]|u[0-9A-Fa-f]{4})(?![A-Za-z])"),
)  # fmt: skip
"""Kinds that begin with one of `FIRST_SIGNS`; of several that begin at the same place the first counts."""

_WORD_KINDS = (
    CodeKind("emoji", ("\U0001f606", "\U0001f1eb\U0001f1f7"), EMOJI),
    CodeKind("address", ("https://example.org/x",),
             rf"""(?<![a-zA-Z0-9_])[a-zA-Z]{{2,9}}://[^\s<>"'{_CJK}]*[^\W{_CJK}]/?"""),
    CodeKind("mail address", ("name@example.org", "info{'@'}example.org"),
             rf"(?<!{_MAIL}){_MAIL}{{1,60}}(?:@|\{{'@'\}}){_HOST}{{1,60}}(?:\.{_HOST}{{1,60}}){{1,5}}"),
    CodeKind("link target and label of reStructuredText", (),
             r"(?<=[\w)\]\"'.!?])\s<[^<>`\n]{1,200}>`_{0,2}(?![\w`])"),
    CodeKind("path", ("/etc/app/conf.d", "~/notes", "./a.sh"),
             rf"{_BEGIN}(?<![.:/<>~@-])(?:(?:~|\.\.?)?(?:/{_FILE}){{2,}}|(?:~|\.\.?)/{_FILE})/?"),
    CodeKind("path of Windows", ("C:\\Users\\x",),
             rf"""(?<![A-Za-z0-9_])[A-Za-z]:\\(?:[^\s<>"'|?*{_CJK}]*[^\W{_CJK}])?"""),
    CodeKind("option of a command", ("--verbose", "--max-minutes"),  # not the dash of --Ja
             rf"(?<![^\s<>(\[\"'«„“{_CJK}{_BESIDE_CODES}])--[a-z][a-z0-9]*"
             rf"(?:(?:-[a-z0-9]+)+(?!-){_END}|(?![^\s,<>=)\]\"'»”“{_CJK}{_BESIDE_CODES}]))"),
    CodeKind("character in POD", ("E<lt>",), r"E<\w{1,12}>"),
    CodeKind("name in POD and man pages", ("B<ls>", "I<FILE>"),
             rf"{_BEGIN}(?<!<)[BCFILRSXZ]<{_NO_TAG}[^<>\s/]{{1,60}}>"),
    CodeKind("words in POD", (), rf"{_BEGIN}(?<!<)[BCFILRSXZ]<(?={_NO_TAG}[^<>\n/]{{1,100}}>)"),
    CodeKind("call", ("f()", "os.getcwd()"), rf"{_BEGIN}(?<![.@/-])(?:{_NAME}\.)*{_NAME}\(\)"),
    CodeKind("name with a dot", ("user.name", "README.md", "a_b.cd"),
             rf"{_BEGIN}(?<![./@:-])[A-Za-z_][A-Za-z0-9_]+(?:\.[a-z_][A-Za-z0-9_]+)+(?!\(){_END}"),
    CodeKind("name with an underscore", ("MAX_SIZE", "file_name", "__init__"),  # not the German Leser_innen
             rf"{_BEGIN}(?<![./@-])(?![A-Z][a-z]+_(?:in|innen|r|n|e)(?!\w))"
             rf"(?:_{{0,2}}[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+_{{0,2}}|__[A-Za-z][A-Za-z0-9]*__){_END}"),
)  # fmt: skip
"""Kinds that do not begin with a sign."""

CODE_KINDS = (*_SIGNED_KINDS, *_WORD_KINDS)
"""Every kind of placeholder."""


class LocalizedKind(NamedTuple):
    """A kind of code that is written in another way in the translation, so that it is compared and not protected."""

    name: str
    examples: tuple[str, ...]
    in_source: re.Pattern[str]
    """The first group is what the translation must have."""
    in_translation: re.Pattern[str]
    is_exact: bool
    """Whether the translation must not have more."""


_DOLLARS = r"(?:[Dd]ol|[Dd]ól|[Đđ]ô|[Дд]ол|[Δδ]ολ|דולר|دولار|डॉलर|ดอลลาร์|달러|ドル|美元|美金|元)"
"""Pattern of the beginning of the word for dollars, in the languages with most speakers."""

LOCALIZED_KINDS = (
    LocalizedKind(
        "combination of keys", ("Ctrl+S", "Ctrl+Shift+F4"),  # `Strg+S`
        re.compile(
            r"(?<!\w)(?:Ctrl|Control|Strg|AltGr|Alt|Shift|Cmd|Command|Option|Meta|Super|Win)"
            r"(?:\+[A-Za-z]{2,9}){0,2}\+([A-Z0-9]|F[0-9]{1,2})(?!\w)"
        ),
        re.compile(r"\+ ?([A-Z0-9]|F[0-9]{1,2})(?!\w)"), False,
    ),
    LocalizedKind(
        "argument of MediaWiki, or money", ("$1",),  # `1 $`
        re.compile(r"(?<![\w$])\$([1-9])(?!\w|[.,][0-9])"), re.compile(
            r"(?<![0-9])(?:(?<=\$)|(?<=[$D]\s)|(?=[0-9]\s?(?:US)?\$(?!\s?[0-9]))"
            rf"|(?=[0-9][\s-]?(?:USD|(?:US-)?{_DOLLARS})))([0-9])(?![0-9])"
        ),
        False,
    ),
    LocalizedKind(
        "mark before the letter of a shortcut", ("_Open", "&Quit"),  # `Ö_ffnen`
        re.compile(r"(?<![^\s(])([_&])(?=[^\W\d_]+(?![\w;(]))"), re.compile(r"([_&])(?=[^\W_])(?!\w{1,40};)"), True,
    ),
    LocalizedKind("bar between forms", ("one | two",), re.compile(r"(\|)"), re.compile(r"(\|)"), True),
)  # fmt: skip
"""Kinds of codes that are compared only."""

# Plain words pass fast.
_PLACEHOLDER = (
    rf"(?=[{re.escape(FIRST_SIGNS)}])(?:{'|'.join(kind.pattern for kind in _SIGNED_KINDS)})"
    rf"|{'|'.join(kind.pattern for kind in _WORD_KINDS)}"
)

TAG = re.compile(r"<(/?)([A-Za-z0-9][\w:.-]*)[^>]*?(/?)>")
"""Pattern of a tag among the placeholders: its slash, its name, and the slash of a tag that closes itself."""
_STATEMENT = re.compile(
    r"(\{\{?%|\{\{<|\{\{(?=[#^/])|<\?php(?= +(?:end)?(?:if|for|while|switch)))"
    r"[-+#^]?\s*+(?:(/|end_?+)(?=\w))?([A-Za-z_]\w*)"
)
_ERB_BLOCK = re.compile(r"<% (?:(?:if|unless|case|while|until|for|begin)\b|.*\bdo\b)")
_BBCODE = re.compile(r"\[(/?)([a-z]+)[^\[\]]*\]")
_RST_PAIR = re.compile(r"(?::[^`]+)?`|(\s<[^`]+>`_*)")
"""Beginning and end of a link or role of reStructuredText with a target or label."""
_ANGULAR = re.compile(r"(?:\{\$)?(START|CLOSE)_(\w+?)(?:_\d+)?\}?")

_KEPT = "|".join(
    (
        _PLACEHOLDER,
        # x=1, f(x); not _Open
        r"(?<![^\s<>])(?!_[^\W\d_]+(?![\w(]))[^\s<>]*(?:[%{}$\\_@\#=|`]|\w\.\w\w|\w\(\w)[^\s<>]*",
        r"(?<!\S)/\w\S*",  # a path
        r"(?<![^\s<>])-[A-Za-z](?![^\s,<>])",  # -n
        r"(?<!\w)(?:\w\.){2,}",  # U.S.
    )
)

_INVISIBLE_KINDS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"})
INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | set(map(chr, range(0xFE00, 0xFE10)))
"""Letters, marks and symbols that are invisible: fillers, the blank of Braille, selectors of a variant."""


@cache
def placeholder() -> re.Pattern[str]:
    """Return the pattern of placeholders, compiled when it is first needed.

    They are what programs, browsers and mail programs read, emoji, and the marks of Markdown and reStructuredText.
    """
    return re.compile(_PLACEHOLDER)


def find_placeholders(text: str, *, with_numbers: bool = False) -> Iterator[re.Match[str]]:
    """Return the placeholders of a text, and its numbers if those are asked for.

    >>> [match[0] for match in find_placeholders("%s of <b>5</b>")]
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
    number = r"(?<![\w.,])[0-9]+(?:[.,:/-][0-9]+){0,9}(?!\w)"  # 7, 1,250.5, 20:15, 2016-05-03
    return re.compile(f"{_PLACEHOLDER}|{number}")


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
        "bbcode": _BBCODE,
        "rst_pair": _RST_PAIR,
    }


def pair_role(code: str) -> tuple[str, bool] | None:
    """Return the name of the pair that a code can be half of, and whether it is the closing half; None if of no pair.

    The codes are tags, also of BBCode, links of reStructuredText, statements of template languages (`{% if x %}`,
    `{{% note %}}`, `{{#if x}}`) and the names that Angular gives tags. Whether an opening code has a closing one
    depends on the text: `{% include x %}` has none.

    >>> pair_role("{% endif %}"), pair_role("<b>"), pair_role("START_LINK_1"), pair_role("<br/>")
    (('{%if', True), ('<b', False), ('LINK', False), None)
    """
    if tag := TAG.fullmatch(code):
        return None if tag[3] else (f"<{tag[2]}", bool(tag[1]))
    if tag := _BBCODE.fullmatch(code):
        return f"[{tag[2]}", bool(tag[1])
    if half := _RST_PAIR.fullmatch(code):
        return "`", bool(half[1])
    if named := _ANGULAR.fullmatch(code):
        return named[2], named[1] == "CLOSE"
    if code.startswith("<% "):
        return ("<%", False) if _ERB_BLOCK.match(code) else ("<%", True) if code == "<% end %>" else None
    if (statement := _STATEMENT.match(code)) and not code.endswith("/>}}"):
        return statement[1] + statement[3], bool(statement[2])
    return None


@cache
def _kept() -> re.Pattern[str]:
    return re.compile(f"({_KEPT})")


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
    return placeholder().sub(lambda match: "" if TAG.fullmatch(match[0]) else match[0], text)


def _is_visible(character: str) -> bool:
    return unicodedata.category(character) not in _INVISIBLE_KINDS and character not in INVISIBLE


def change_words(text: str, change: Callable[[str], str]) -> str:
    """Return a text with a function applied to the parts between its non-translatable spans.

    >>> change_words("<b>ein</b> {hund} & und/oder", str.upper)
    '<b>EIN</b> {hund} & UND/ODER'
    """
    parts = _kept().split(text) if _MAY_BE_KEPT.search(text) else [text]
    parts[::2] = map(change, parts[::2])
    return "".join(parts)
