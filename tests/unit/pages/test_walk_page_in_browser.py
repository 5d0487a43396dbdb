"""The page of a walk in a real browser: a stage at a time, and all of them in print or without scripts."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

from browsers import serious
from clearhead.paper.walk.part import walk
from every_run import slow


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("walk") / "walk.html"
    path.write_text(walk().pages["walk"], encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def page(browser):
    page = browser.new_page()
    page.set_default_timeout(20_000)
    yield page
    page.close()


def numbers(page) -> list[str]:
    """Return the numbers of the stages that can be seen."""
    names = page.locator(".stage:visible").evaluate_all("stages => stages.map((stage) => stage.id)")
    return [name.removeprefix("stage-") for name in names]


def test_walk_page_moves_by_buttons_links_and_keys(page, address):
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text))
    page.goto(address)
    back, following = page.get_by_role("button", name="Back"), page.get_by_role("button", name="Next")
    assert numbers(page) == ["1"]
    assert back.is_disabled()
    following.click()
    page.locator("#stage-2").wait_for()
    assert numbers(page) == ["2"]
    assert page.url == f"{address}#stage-2"
    page.keyboard.press("ArrowRight")
    page.locator("#stage-3").wait_for()
    page.keyboard.press("ArrowLeft")
    page.locator("#stage-2").wait_for()
    back.click()
    page.locator("#stage-1").wait_for()
    page.get_by_role("link", name="Stage 11: ").click()
    page.locator("#stage-11").wait_for()
    assert numbers(page) == ["11"]
    assert page.locator("nav [aria-current]").inner_text() == "11"
    page.go_back()
    page.locator("#stage-1").wait_for()
    assert page.locator(".ending").is_hidden()
    page.keyboard.press("End")
    page.locator("#stage-13").wait_for()
    assert following.is_disabled()
    assert page.locator(".ending").inner_text().startswith("The next token is chat.")
    assert errors == []


def test_masked_scores_are_hatched(page, address):
    page.goto(f"{address}#stage-10")
    cells = page.locator("#stage-10 td")
    hatched = cells.evaluate_all(
        "all => all.filter(one => getComputedStyle(one).backgroundImage.includes('gradient')).map(one => one.innerText)"
    )
    assert set(hatched) == {"-inf"}
    assert len(hatched) == cells.all_inner_texts().count("-inf") > 0


def test_an_address_with_a_stage_opens_it(page, address):
    page.goto(f"{address}#stage-9")
    assert numbers(page) == ["9"]
    assert page.locator("#stage-9 caption").all_inner_texts()[:3] == ["N", "W_1", "b_1"]


def test_keys_scroll_a_wide_matrix_that_has_the_focus(page, address):
    page.goto(f"{address}#stage-9")
    page.locator("#stage-9 .matrix[tabindex]").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    assert numbers(page) == ["9"]


def test_print_has_all_stages(page, address):
    page.goto(address)
    page.emulate_media(media="print")
    assert numbers(page) == [str(number) for number in range(1, 14)]


def test_all_stages_are_there_without_scripts(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator(".stage:visible").count() == 13
    assert page.locator("button:visible").count() == 0
    context.close()


@pytest.mark.parametrize(("width", "theme"), [(390, "light"), slow(1280, "dark")])
def test_no_stage_is_wider_than_the_screen_and_no_rule_of_axe_is_broken(browser, address, width, theme):
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=theme)
    page.goto(address)
    for number in range(1, 14):
        page.evaluate(f"location.hash = 'stage-{number}'")
        page.locator(f"#stage-{number}").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") == width
    for number in (5, 13):  # all at once, with thousands of cells, take ten times as long
        page.evaluate(f"location.hash = 'stage-{number}'")
        page.locator(f"#stage-{number}").wait_for()
        assert serious(Axe().run(page)) == []
    page.close()
