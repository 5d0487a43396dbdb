"""Constants that JavaScript has in common with Python come from Python, and are all used."""

from __future__ import annotations

import json
import re
from importlib.resources import files

from clearhead.browser.rules import rules, rules_module

MODULES = {path.name: path.read_text("utf-8") for path in (files("clearhead") / "pages" / "web").iterdir()}
OWN = {"COMPONENTS", "MOST_PRODUCTS", "MOST_STATES", "MOST_SECONDS", "TAIL", "MOST_PIECES", "MOST_TOKENS", "MOST_LINES"}
OWN |= {"MOST_WEIGHTS", "FIXED_MASKS", "PAUSE_AFTER"}
"""Numbers of pages that Python has no use for."""


def test_every_constant_of_the_rules_is_used_by_a_module():
    used = set()
    for text in MODULES.values():
        used.update(re.findall(r"RULES\.(\w+)", text))
        for names in re.findall(r"const \{([^}]*)\} = RULES;", text):
            used.update(re.findall(r"\w+", names))
    assert used == rules().keys()


def test_modules_write_no_number_of_python_themselves():
    written = re.compile(r"^(?:export )?const \[?([A-Z][A-Z_, ]+)\]? = \[?-?[0-9]", re.MULTILINE)
    found = {name for text in MODULES.values() for names in written.findall(text) for name in re.findall(r"\w+", names)}
    assert found <= OWN, "take these from browser/rules.py"


def test_the_module_holds_the_rules():
    text = rules_module().removeprefix("export const RULES = ").removesuffix(";\n")
    assert json.loads(text) == json.loads(json.dumps(rules()))
    assert "<" not in text
