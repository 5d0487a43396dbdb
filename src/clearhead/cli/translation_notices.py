"""Notices about translations: truncated lines, suspicious translations, terms and memory matches."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from clearhead.cli.console import notice

if TYPE_CHECKING:
    from clearhead.translation.result import TermUse, Translation
    from clearhead.translation.translator import Translator


MOST_NAMED = 10
"""Maximum places or missed terms in a notice; of the rest only the count is given."""
_MOST_SHOWN = 200
"""Characters shown of a translation."""


class TranslationNotices:
    """Counts what is notable in the translations of a file, and reports it on stderr."""

    def __init__(self, name: str, translator: Translator) -> None:
        """Start counting for a file.

        Args:
            name: Name of the file.
            translator: The translator of its lines.
        """
        self._name = name
        self._translator = translator
        self._flags: Counter[str] = Counter()
        self._num_places: Counter[str] = Counter()
        self._first: defaultdict[str, list[str]] = defaultdict(list)
        self._last: dict[str, str] = {}
        self._missed: list[tuple[str, TermUse]] = []
        self._costly: list[tuple[str, TermUse]] = []
        self._left: list[str] = []
        self._terms = self._reused = self._repaired = self._shown = 0

    def add(self, translations: Sequence[tuple[str, Translation]]) -> None:
        """Count the translations of lines, or of segments that begin on them, and report truncated ones.

        Args:
            translations: Where each is in the file, such as `line 3`, and the translation, in order; several segments
                may begin on one line.
        """
        self._tell_truncated(translations)
        for place, translation in translations:
            for flag in translation.warnings:
                self._flags[flag.kind] += 1
                if self._last.get(flag.kind) == place:
                    continue  # another segment of the same line
                self._last[flag.kind] = place
                self._num_places[flag.kind] += 1
                if len(self._first[flag.kind]) < MOST_NAMED:
                    self._first[flag.kind].append(place)
            for use in translation.terms or ():
                self._terms += 1
                if use.reason is not None:
                    (self._missed if not use.form else self._costly).append((place, use))
            if translation.memory is not None:
                self._reused += translation.memory.is_reused
                self._repaired += translation.memory.repaired is not None
                self._shown += not translation.memory.is_reused

    def add_left(self, places: Iterable[str]) -> None:
        """Count what was left untranslated because of its quality.

        Args:
            places: Where it is in the file.
        """
        self._left += places

    def tell_flagged(self) -> None:
        """Report for each kind of flag its count, meaning and places; then reset the counts."""
        from clearhead.text.quality_flags import KINDS

        for name, kind in KINDS.items():
            if count := self._flags[name]:
                places = _named(self._first[name], self._num_places[name])
                notice(f"{self._name}: {count:,} with {name} ({kind.meaning}): {places}")
        for counts in (self._flags, self._num_places, self._first, self._last):
            counts.clear()

    def tell(self) -> None:
        """Report all counts."""
        from clearhead.text.lines import first_few, shortened
        from clearhead.translation.result import TERM_REASONS

        self.tell_flagged()
        if self._left:
            places = list(dict.fromkeys(self._left))
            notice(
                f"{self._name}: {len(self._left):,} left untranslated, with a quality below --only-if: "
                f"{_named(places, len(places))}"
            )
        if self._terms:
            missed = [
                f"{place}: {use.source!r} as {use.target!r} ({TERM_REASONS[use.reason or 'unmet']})"
                for place, use in self._missed
            ]
            words = f"; missed: {first_few(missed, MOST_NAMED, '; ')}" if missed else ""
            met = self._terms - len(self._missed)
            price = f", {len(self._costly):,} of them at a price" if self._costly else ""
            notice(f"{self._name}: {met:,} of {self._terms:,} terms met{price}{words}")
            for place, use in self._costly[:MOST_NAMED]:
                notice(
                    f"{self._name}, {place}: {use.source!r} as {use.form!r} costs the sentence much; look at it, "
                    f"or use it without: {shortened(use.without or '', _MOST_SHOWN)!r}"
                )
        if self._reused or self._shown:
            repaired = f" ({self._repaired:,} of them repaired)" if self._repaired else ""
            notice(
                f"{self._name}: translation memory: {self._reused:,} reused{repaired}, {self._shown:,} similar ones, "
                f"which the model translated"
            )

    def _tell_truncated(self, placed: Sequence[tuple[str, Translation]]) -> None:
        """Report which lines were truncated before translation, and which translations were truncated."""
        positions = self._translator.config.max_length
        if cut := list(dict.fromkeys(place for place, translation in placed if translation.source_truncated)):
            limit = self._translator.decode_config({}).max_input_tokens
            source_limit = "model.max_positions" if limit == positions else "decode.max_input_tokens"
            notice(
                f"{self._name}, {_named(cut, len(cut))}: longer than {limit:,} tokens ({source_limit}); only the "
                f"beginning is translated"
            )
        if cut := list(dict.fromkeys(place for place, translation in placed if translation.output_truncated)):
            output_limit = f"decode.extra_length ({self._translator.bundle.decode.extra_length:,})"
            if positions is not None:
                output_limit += f" or model.max_positions ({positions:,})"
            notice(
                f"{self._name}, {_named(cut, len(cut))}: the translation was ended by the length limit, "
                f"{output_limit}, or as a repetition loop (decode.end_loops), not by the model"
            )


def _named(places: Sequence[str], count: int) -> str:
    r"""Return the first places as text, and how many more of `count` there are.

    >>> _named(["line 3", "line 5"], 2), _named(["row 3, column de", "row 5, column de"], 12)
    ('lines 3, 5', 'row 3, column de; row 5, column de; and 10 more')
    """
    shown, more = places[:MOST_NAMED], count - len(places[:MOST_NAMED])
    if all(place.startswith("line ") for place in shown):
        named = f"line{'s' if count > 1 else ''} {', '.join(place.removeprefix('line ') for place in shown)}"
        return named + (f" and {more:,} more" if more else "")
    return "; ".join(shown) + (f"; and {more:,} more" if more else "")
