"""A vocabulary as the files that other programs spell text with, and as CTranslate2's lists of tokens.

One that was learned here is a `tokenizer.json`. One of another library is what it came from, byte for byte, and beside
it stands a file of ours, from which an import makes the same vocabulary again: their files do not say everything, such
as what stands around a sentence.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from clearhead.config import DecodeConfig
from clearhead.interop.ctranslate2.pieces import Pieces
from clearhead.interop.origin import OWN_VOCABULARY, their_tokenizer
from clearhead.interop.vocabularies.their_tokenizer import token_ids
from clearhead.language_tags import language_tag
from clearhead.tokenizers import SPECIAL_TOKENS, Tokenizer, Vocabulary
from clearhead.tokenizers.foreign import ForeignVocabulary, Frame, Side, VocabularyFile

__all__ = [
    "framed_tokenizer",
    "listed_pieces",
    "side_bytes",
    "token_names",
    "told_by_tag",
    "told_in_tokens",
    "unknown_name",
    "vocabulary_files",
    "write_files",
]

_NAMES = {
    "sentencepiece": ("sentencepiece.model", "source.spm", "target.spm"),
    "tokenizers": ("tokenizer.json", "source.tokenizer.json", "target.tokenizer.json"),
    "words": ("codes", "source.codes", "target.codes"),
}
"""What spells text to the name of its file: where both sides have the same, of the source, of the target."""
_LANGUAGES = ("source_lang", "target_lang")


def vocabulary_files(vocabulary: Vocabulary) -> dict[str, bytes]:
    """Return the files that spell text, and ours, by their names; words that are split at spaces alone need none."""
    if not isinstance(vocabulary, ForeignVocabulary):
        assert isinstance(vocabulary, Tokenizer)
        return {"tokenizer.json": their_tokenizer(vocabulary).encode()}
    file, own = vocabulary.file, {OWN_VOCABULARY: vocabulary.text.encode()}
    source, target = file.source, file.target or file.source
    if (source.speller, source.model) == (target.speller, target.model):
        found = {_NAMES[source.speller][0]: side_bytes(file)}
    else:
        found = {_NAMES[source.speller][1]: side_bytes(file), _NAMES[target.speller][2]: _content(target)}
    return {**{name: content for name, content in found.items() if content}, **own}


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files by their names.

    Raises:
        OSError: If one cannot be written.
    """
    for name, content in files.items():
        (directory / name).write_bytes(content)


def side_bytes(file: VocabularyFile) -> bytes:
    """Return the file that spells a source; a `tokenizer.json` puts around a text what stands around every source."""
    if file.source.speller == "tokenizers" and not any(part in _LANGUAGES for part in file.source_frame):
        return framed_tokenizer(file.source, file.source_frame).encode()
    return _content(file.source)


def _content(side: Side) -> bytes:
    return base64.b64decode(side.model) if side.speller == "sentencepiece" else side.model.encode()


def framed_tokenizer(side: Side, frame: Frame) -> str:
    """Return a `tokenizer.json` that puts the ids of a frame around a text.

    Args:
        side: What spells text, a `tokenizer.json` itself.
        frame: Ids, and the place of the text.
    """
    names = {number: name for name, number in token_ids(side).items()}
    values = json.loads(side.model)
    text, other = ({"Sequence": {"id": which, "type_id": 0}} for which in "AB")
    around = [text if part == "text" else {"SpecialToken": {"id": names[int(part)], "type_id": 0}} for part in frame]
    at = around.index(text)
    special = {
        names[part]: {"id": names[part], "ids": [part], "tokens": [names[part]]}
        for part in frame
        if isinstance(part, int)
    }
    values["post_processor"] = {
        "type": "TemplateProcessing",
        "single": around,
        "pair": [*around[: at + 1], other, *around[at + 1 :]],
        "special_tokens": special,
    }
    return json.dumps(values, ensure_ascii=False, indent=2)


def token_names(side: Side, size: int, pad_id: int) -> list[str]:
    """Return a name for every id, no two alike: its piece or, where it has none, one that no text is spelled in.

    Args:
        side: How text is spelled.
        size: How many ids there are.
        pad_id: Id of padding, which is `<pad>` if it has no name.
    """
    names = {number: name for name, number in token_ids(side).items()}
    taken = set(names.values())
    if "<pad>" not in taken:
        names.setdefault(pad_id, "<pad>")
    found = []
    for number in range(size):
        name = names.get(number, f"<unused_{number}>")
        while number not in names and name in taken:
            name += "_"
        found.append(name)
    return found


def unknown_name(side: Side, names: Sequence[str]) -> str | None:
    """Return the name of the token that stands for what has none; None if there is no such token.

    Args:
        side: How text is spelled.
        names: Of its ids.
    """
    if side.speller != "tokenizers":
        return names[side.unk_id]
    model = json.loads(side.model)["model"]
    if isinstance(number := model.get("unk_id"), int) and number < len(names):
        return names[number]
    named = model.get("unk_token") or "<unk>"
    return named if named in names else None


def listed_pieces(vocabulary: Vocabulary) -> Pieces:
    """Return the lists of tokens of a model in CTranslate2, and what it puts around a source by itself."""
    if not isinstance(vocabulary, ForeignVocabulary):
        assert isinstance(vocabulary, Tokenizer)
        tokens = vocabulary.tokens()
        _, bos, eos, unk = SPECIAL_TOKENS
        return Pieces(tokens, tokens, bos=bos, eos=eos, unk=unk, start=bos)
    file = vocabulary.file
    source = token_names(file.source, file.source_vocab_size or file.vocab_size, file.pad_id)
    target = token_names(file.target or file.source, file.vocab_size, file.pad_id)
    start, eos = target[file.bos_id], target[file.eos_id]
    # A tokenizer.json puts around a text what stands there, and the others nothing.
    begin, end = (None, None) if file.source.speller == "tokenizers" else _ends(file.source_frame)
    return Pieces(
        source,
        target,
        bos=start if begin is None else source[begin],
        eos=eos,
        unk=unknown_name(file.source, source) or target[file.pad_id],
        start=start,
        adds_bos=begin is not None,
        adds_eos=end is not None and source[end] == eos,
    )


def _ends(frame: Frame) -> tuple[int | None, int | None]:
    """Return the ids that a frame begins and ends with, None where that is no id."""
    begin, end = (part if isinstance(part, int) else None for part in (frame[0], frame[-1]))
    return begin, end


def told_by_tag(vocabulary: Vocabulary, decode: DecodeConfig) -> list[str]:
    """Return in words how a model that was made here is told elsewhere which language to write.

    Args:
        vocabulary: Of the model, learned here.
        decode: Names the language that is written here if nothing else is asked for.
    """
    if not vocabulary.language_tags:
        return []
    tag = language_tag(decode.target_lang or min(vocabulary.language_tags))
    default = f": that {decode.target_lang} is written if nothing is said is not known there" * bool(decode.target_lang)
    return [f"a text begins with the tag of the language to write, such as {tag!r} and a space{default}"]


def told_in_tokens(vocabulary: Vocabulary, pieces: Pieces, decode: DecodeConfig) -> list[str]:
    """Return in words which tokens a user of CTranslate2 gives a model beside the pieces of a text.

    Args:
        vocabulary: Of the model.
        pieces: From `listed_pieces`.
        decode: Names the languages that are written for example.
    """
    if not isinstance(vocabulary, ForeignVocabulary):
        return told_by_tag(vocabulary, decode)
    file, notes = vocabulary.file, []
    source, target = file.source, file.target or file.source
    given = file.source_frame[pieces.adds_bos : len(file.source_frame) - pieces.adds_eos]
    if given != ("text",) and (source.speller != "tokenizers" or any(part in _LANGUAGES for part in given)):
        notes.append(f"CTranslate2 is given a source as {_in_words(given, file, pieces.source, decode)}")
    if begin := file.target_frame[: file.target_frame.index("text")]:
        said = _in_words(begin, file, pieces.target, decode)
        notes.append(f"every translation begins with {said}: give CTranslate2 that as target_prefix")
    if "words" in (source.speller, target.speller):
        notes.append("text is spelled in the words between its spaces; codes, where they stand beside, split those")
    if source.lowercase or target.lowercase:
        notes.append("text is put in small letters before it is spelled, which CTranslate2 does not do")
    return notes


def _in_words(frame: Frame, file: VocabularyFile, names: Sequence[str], decode: DecodeConfig) -> str:
    said = {
        "text": "its pieces",
        "source_lang": "the token of its language",
        "target_lang": "the token of the language to write",
    }
    example = {"source_lang": decode.source_lang, "target_lang": decode.target_lang}
    found = []
    for part in frame:
        if isinstance(part, int):
            found.append(repr(names[part]))
            continue
        number = file.languages.get(example.get(part) or "", next(iter(file.languages.values()), None))
        found.append(said[part] + ("" if part == "text" or number is None else f" (such as {names[number]!r})"))
    return ", ".join(found)
