"""How the page looks and is worked: keys, the drawer, light and dark, phone to wide, and what axe-core says of it.

Every view leaves a picture in artifacts/screenshots.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from on_page import ask, distances, ids, wait_for_cards
from scenes_index import Collection

from components import need

SCREENSHOTS = Path(__file__).parents[2] / "artifacts" / "screenshots"
WORDS = "two dogs in the park"
PHONE = {"width": 390, "height": 844, "device_scale_factor": 2, "has_touch": True, "is_mobile": True}
DARK = {"color_scheme": "dark"}
WIDE = {"width": 2200, "height": 1200}


def open_search(page: Any, url: str) -> None:
    page.goto(f"{url}?q={WORDS}")
    wait_for_cards(page)


def start(page: Any, url: str) -> None:
    page.goto(url)
    page.locator("#taste img").first.wait_for()


def drawer(page: Any, url: str) -> None:
    open_search(page, url)
    page.locator(".distance").nth(1).click()


def viewer(page: Any, url: str) -> None:
    open_search(page, url)
    page.locator(".closer").nth(1).click()
    page.locator("#viewer img[src]").wait_for()


def texts(page: Any, url: str) -> None:
    start(page, url)
    page.get_by_role("radio", name="Texts").check()
    ask(page, WORDS)


def filtered(page: Any, url: str) -> None:
    page.goto(f"{url}?like=scenes/pictures/000002.jpg&label=person&filter=place is not null")
    wait_for_cards(page)


def panels(page: Any, url: str) -> None:
    page.goto(f"{url}?q={WORDS}&from=2019-01-01&to=2019-12-31&plus=at night&without=snow")
    wait_for_cards(page)
    page.get_by_role("button", name="When").click()


def empty(page: Any, url: str) -> None:
    page.goto(f"{url}?q={WORDS}&filter=place = 'nowhere'")
    page.locator("#notice h2").wait_for()


def error(page: Any, url: str) -> None:
    page.goto(url)
    page.locator("#chips .chip").first.wait_for()
    page.locator("#file").set_input_files({"name": "holiday.jpg", "mimeType": "image/jpeg", "buffer": b"nothing"})
    page.locator("#notice.error h2").wait_for()


def keys(page: Any, url: str) -> None:
    start(page, url)
    page.keyboard.press("Escape")  # out of the box
    page.keyboard.press("?")


# Controls above the results that lie on each other.
OVERLAPS = """() => {
    const controls = "#filters button, #refine button, #refine input, #finds label";
    const all = [...document.querySelectorAll(controls)].filter((e) => e.offsetWidth);
    const boxes = all.map((e) => [e.textContent, e.getBoundingClientRect()]);
    const cross = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    return boxes.flatMap(([one, a], i) => boxes.slice(i + 1).filter(([, b]) => cross(a, b)).map(([two]) => [one, two]));
}"""
VIEWS = [
    (start, "light", {}),
    (start, "dark", DARK),
    (start, "phone", PHONE),
    (open_search, "light", {}),
    (open_search, "dark", DARK),
    (open_search, "phone", PHONE),
    (open_search, "wide", WIDE),
    (drawer, "light", {}),
    (drawer, "dark", DARK),
    (drawer, "phone", PHONE),
    (viewer, "light", {}),
    (viewer, "phone", {**PHONE, **DARK}),
    (texts, "light", {}),
    (filtered, "dark", DARK),
    (filtered, "phone", PHONE),
    (panels, "light", {}),
    (panels, "phone", PHONE),
    (empty, "light", {}),
    (error, "dark", DARK),
    (keys, "light", {}),
]


@pytest.mark.parametrize(("view", "name", "options"), VIEWS, ids=[f"{view.__name__}-{name}" for view, name, _ in VIEWS])
def test_a_view_is_accessible_and_fits(
    new_page: Callable[..., Any], url: str, view: Callable[[Any, str], None], name: str, options: dict[str, Any]
) -> None:
    axe = need("axe_playwright_python.sync_playwright").Axe()
    page = new_page(**options, reduced_motion="reduce")
    view(page, url)
    page.wait_for_load_state("networkidle")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{view.__name__}-{name}.png")
    result = axe.run(page, options={"resultTypes": ["violations"]}).response
    assert result["passes"], "axe-core looked at nothing"
    grave = [(v["id"], v["nodes"][0]["html"]) for v in result["violations"] if v["impact"] in ("serious", "critical")]
    assert not grave
    width, wanted = page.evaluate("() => [innerWidth, document.documentElement.scrollWidth]")
    assert wanted <= width == options.get("width", 1280)
    assert page.evaluate(OVERLAPS) == []


def test_the_theme_follows_the_system_until_one_is_chosen(new_page: Callable[..., Any], url: str) -> None:
    def brightness(page: Any) -> list[int]:
        return list(
            page.evaluate("() => getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number)")
        )

    page = new_page(**DARK)
    page.goto(url)
    assert max(brightness(page)[:3]) < 60
    page.get_by_role("button", name="Light or dark").click()
    assert min(brightness(page)[:3]) > 200
    page.reload()
    assert min(brightness(page)[:3]) > 200


def test_nothing_moves_when_pictures_come_in(page: Any, url: str) -> None:
    page.add_init_script("""
        window.shift = 0;
        const add = (list) => { for (const entry of list.getEntries()) window.shift += entry.value; };
        new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });
    """)
    open_search(page, url)
    page.wait_for_load_state("networkidle")
    assert page.evaluate("() => shift") < 0.1  # what the field calls good
    assert page.locator(".card img[loading=lazy][srcset*='512w']").count() == page.locator(".card").count()
    # Of the sizes that are offered, the browser takes the one that fits the card.
    sizes = page.locator(".card img").evaluate_all("all => all.map((image) => new URL(image.currentSrc).search)")
    assert set(sizes) - {""} == {"?size=256"}


def test_an_original_that_the_browser_cannot_show_leaves_its_thumbnail(page: Any, url: str) -> None:
    page.route("**/image", lambda route: route.fulfill(status=200, content_type="image/heif", body="no picture here"))
    open_search(page, url)
    with page.expect_response("**/image"):
        page.locator(".closer").nth(1).click()
    page.wait_for_load_state("networkidle")
    assert "/thumbnail" in page.locator("#viewer-image").get_attribute("src")
    assert page.locator("#viewer-image").is_visible() and page.locator("#viewer-missing").is_hidden()


def test_words_typed_while_the_page_starts_stay(page: Any, url: str) -> None:
    waiting: list[Any] = []
    page.route("**/stats", lambda route: route.continue_() if waiting else waiting.append(route))
    page.goto(url)
    page.locator("#words").fill(WORDS)
    while not waiting:
        page.wait_for_timeout(10)
    waiting[0].continue_()
    page.locator("#taste img").first.wait_for()
    assert page.locator("#words").input_value() == WORDS
    assert ask(page, WORDS)["hits"]


def test_everything_by_keyboard(page: Any, url: str) -> None:
    page.goto(url)
    page.locator("#chips .chip").first.wait_for()
    page.keyboard.type("the box has the focus")
    page.keyboard.press("Escape")
    page.keyboard.press("/")  # and what is in it is selected
    page.keyboard.type(WORDS)
    with page.expect_response("**/search"):
        page.keyboard.press("Enter")
    wait_for_cards(page)
    order, cards = ids(page), page.locator(".card")
    columns = cards.evaluate_all("cards => cards.filter((card) => card.offsetTop === cards[0].offsetTop).length")

    def focused() -> int:
        return int(cards.evaluate_all("cards => cards.findIndex((card) => card.contains(document.activeElement))"))

    steps = [("ArrowDown", 0), ("ArrowRight", 1), ("ArrowDown", 1 + columns), ("ArrowLeft", columns), ("ArrowUp", 0)]
    for key, place in [*steps, ("End", len(order) - 1), ("Home", 0), ("ArrowRight", 1)]:
        page.keyboard.press(key)
        assert focused() == place, key
    page.keyboard.press("o")
    assert page.locator("#viewer").is_visible()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    page.wait_for_function("() => !document.querySelector('#viewer').open")
    page.wait_for_function("() => document.activeElement.closest('.card') === document.querySelectorAll('.card')[2]")
    page.keyboard.press("b")
    assert page.locator("#hood").is_visible()
    page.keyboard.press("ArrowRight")  # the drawer goes along
    assert f"{distances(page)[3]} of 64" in page.locator("#hood .subject").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#hood").is_hidden() and focused() == 3
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    with page.expect_response("**/search"):
        page.keyboard.press("Enter")
    page.wait_for_url("**/?like=*")
    wait_for_cards(page)
    page.wait_for_function("() => document.activeElement.closest('.card') === document.querySelector('.card')")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("() => document.activeElement.id") == "words"


@pytest.mark.parametrize("find", ["pictures", "texts"])
def test_the_drawer_tells_the_truth(page: Any, url: str, collection: Collection, find: str) -> None:
    page.goto(url)
    page.get_by_role("radio", name=find).check()
    response = ask(page, WORDS)
    page.locator(".distance").nth(2).click()
    code = collection.hasher.encode_texts([WORDS])[0].tobytes()
    hit = bytes.fromhex(response["hits"][2]["code"])
    assert page.locator("#hood .hex").all_inner_texts() == [code.hex(), hit.hex()]
    bits = [[(byte >> i) & 1 for byte in one for i in range(8)] for one in (code, hit)]
    differ = [i for i in range(64) if bits[0][i] != bits[1][i]]
    assert len(differ) == distances(page)[2]
    for place, ones in enumerate(bits):
        drawn = page.locator("#hood .patterns .pattern").nth(place).locator(".bit")
        kinds = drawn.evaluate_all("bits => bits.map((bit) => bit.getAttribute('class').split(' ').slice(1))")
        assert [kind[0] == "one" for kind in kinds] == [bit == 1 for bit in ones]
        assert [i for i, kind in enumerate(kinds) if "differs" in kind] == differ
        assert drawn.locator("path").count() == len(differ)  # a mark that does not need colour
    drawer_text = page.locator("#hood").inner_text()
    assert "8 bytes" in drawer_text and "2,048 bytes" in drawer_text
    shown = float(drawer_text.partition("In all\n")[2].partition(" ms")[0])  # two digits of it
    assert shown == pytest.approx(response["timing"]["total_ms"], rel=0.05, abs=0.005)
    assert f"{response['looked_at']:,} of {response['items']:,} codes were looked at" in drawer_text
