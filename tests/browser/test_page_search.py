"""Searching with the page as people do, each answer against a brute-force search of the same codes."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from on_page import KEY, ask, distances, ids, loaded, query, shown, wait_for_cards
from scenes_index import HOSTILE, ITEMS, QUOTED, Collection

from kenthash.search.queries import real_valued

PAGE = 24
WORDS = "two dogs in the park"


def notice(page: Any) -> str:
    page.locator("#notice h2").wait_for()
    return str(page.locator("#notice").inner_text())


def test_words_find_what_their_code_is_nearest_to(page: Any, url: str, collection: Collection) -> None:
    page.goto(url)
    ask(page, WORDS)
    expected = collection.nearest(collection.hasher.query_texts([WORDS])[0])
    assert shown(page) == expected[:PAGE]
    assert query(page) == {"q": [WORDS]} and page.title().startswith(WORDS)
    assert f"{PAGE} nearest of {ITEMS}" in page.locator("#status").inner_text()
    assert loaded(page.locator(".card img").first) and loaded(page.locator(".card img").last)


def test_more_goes_on_to_the_end(page: Any, url: str, collection: Collection) -> None:
    page.goto(f"{url}?q={WORDS}")
    wait_for_cards(page, PAGE)
    more = page.get_by_role("button", name="Show more")
    for count in (2 * PAGE, ITEMS):
        more.click()
        wait_for_cards(page, count)
    assert shown(page) == collection.nearest(collection.hasher.query_texts([WORDS])[0])
    assert more.is_hidden()
    page.reload()  # the address remembers how far one had read
    wait_for_cards(page, ITEMS)
    page.goto(f"{url}?q={WORDS}")
    wait_for_cards(page, PAGE)
    with page.expect_response("**/search"), page.expect_response("**/search"):
        more.evaluate("button => { button.click(); button.click(); }")  # in a hurry: no hit comes twice for it
    page.wait_for_load_state("networkidle")
    wait_for_cards(page, 2 * PAGE)
    assert len(set(ids(page))) == 2 * PAGE


def test_an_uploaded_picture_finds_itself(page: Any, url: str, collection: Collection) -> None:
    page.goto(url)
    page.locator("#file").set_input_files(collection.pictures / "pictures" / "000007.jpg")
    wait_for_cards(page)
    assert shown(page)[0] == (0, "scenes/pictures/000007.jpg")
    assert "000007.jpg" in page.locator("#pill").inner_text()
    page.reload()  # a file is not part of a link: the page says what to do instead
    assert "choose it again" in notice(page)
    page.get_by_role("button", name="Search without this picture").click()
    page.get_by_role("heading", name="Find pictures").wait_for()


def test_a_pasted_and_a_dropped_picture(page: Any, url: str, collection: Collection) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{url}?like=scenes/pictures/000003.jpg")
    wait_for_cards(page)
    # The browser itself turns the picture into pixels and back, so that its code is near, not equal.
    page.evaluate("""async () => {
        const response = await fetch("items/scenes%2Fpictures%2F000011.jpg/image");
        const bitmap = await createImageBitmap(await response.blob());
        const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
        canvas.getContext("2d").drawImage(bitmap, 0, 0);
        const png = await canvas.convertToBlob({ type: "image/png" });
        await navigator.clipboard.write([new ClipboardItem({ "image/png": png })]);
    }""")
    with page.expect_response("**/search"):
        page.keyboard.press("Control+V")
    wait_for_cards(page)
    assert ids(page)[0] == "scenes/pictures/000011.jpg" and distances(page)[0] <= 2
    carried = page.evaluate_handle("""async () => {
        const blob = await (await fetch("items/scenes%2Fpictures%2F000012.jpg/image")).blob();
        const data = new DataTransfer();
        data.items.add(new File([blob], "holiday.jpg", { type: "image/jpeg" }));
        return data;
    }""")
    page.dispatch_event("main", "dragenter", {"dataTransfer": carried})
    assert page.get_by_text("Drop the picture").is_visible()
    with page.expect_response("**/search"):
        page.dispatch_event("main", "drop", {"dataTransfer": carried})
    wait_for_cards(page)
    assert page.get_by_text("Drop the picture").is_hidden()
    assert shown(page)[0] == (0, "scenes/pictures/000012.jpg")


def test_similar_then_back_forward_and_a_shared_link(
    page: Any, new_page: Callable[..., Any], url: str, collection: Collection
) -> None:
    page.goto(f"{url}?q={WORDS}")
    wait_for_cards(page)
    first = shown(page)
    chosen = first[2][1]
    page.locator(".hit").nth(2).click()
    page.wait_for_url("**/?like=*")
    wait_for_cards(page)
    code = collection.codes[collection.ids.index(chosen)]
    similar = [row for row in collection.nearest(code) if row[1] != chosen][:PAGE]
    assert shown(page) == similar
    page.go_back()
    page.wait_for_function("id => document.querySelector('.hit').search.includes(id)", arg=first[0][1].split("/")[-1])
    assert shown(page) == first and page.locator("#words").input_value() == WORDS
    page.go_forward()
    page.locator("#pill .name").wait_for()
    wait_for_cards(page)
    other = new_page()
    other.goto(page.url)
    wait_for_cards(other)
    assert shown(other) == similar


def test_chips_and_expressions_filter(page: Any, url: str, collection: Collection) -> None:
    page.goto(f"{url}?q={WORDS}")
    wait_for_cards(page)
    output = collection.hasher.query_texts([WORDS])[0]
    labels = [entry["labels"] for entry in collection.metadata]
    together = next(names for names in labels if "person" in names and len(names) > 2 and QUOTED not in names)
    other = next(label for label in together if label != "person")
    page.locator("#chips .plain").click()  # all labels
    for wanted in (["person"], ["person", other]):
        with page.expect_response("**/search"):
            page.locator(f'#chips [data-label="{wanted[-1]}"]').click()
        wait_for_cards(page)
        labelled = {id for id, own in zip(collection.ids, labels, strict=True) if set(wanted) <= set(own)}
        expected = [row for row in collection.nearest(output) if row[1] in labelled]
        assert shown(page) == expected[:PAGE] and query(page)["label"] == wanted
    page.get_by_role("button", name="Clear the filters").click()
    wait_for_cards(page, PAGE)
    page.locator(f"""#chips [data-label="{QUOTED.replace("'", chr(92) + "'")}"]""").click()
    wait_for_cards(page, 3)
    place = collection.metadata[5]["place"]
    page.get_by_role("button", name="Clear the filters").click()
    wait_for_cards(page, PAGE)
    page.get_by_role("button", name="Filter expression").click()
    page.locator("#filter").fill(f"place = '{place}'")
    with page.expect_response("**/search"):
        page.keyboard.press("Enter")
    wait_for_cards(page)
    assert shown(page) == collection.nearest(output, lambda entry: entry["place"] == place)[:PAGE]
    page.locator("#filter").fill("place beach")
    page.get_by_role("button", name="Apply").click()
    assert "position 7" in notice(page)
    page.locator("#notice").get_by_role("button", name="Clear the filters").click()
    wait_for_cards(page, PAGE)
    assert "filter" not in query(page) and page.locator("#notice h2").count() == 0


def test_the_other_direction_finds_texts_by_a_picture(page: Any, url: str, collection: Collection) -> None:
    page.goto(url)
    page.get_by_role("radio", name="Texts").check()
    page.locator("#file").set_input_files(collection.pictures / "pictures" / "000007.jpg")
    wait_for_cards(page)
    query_of_picture = real_valued(collection.hasher.query_pictures(collection.pictures / "pictures" / "000007.jpg"))
    best = []
    for name, entry in zip(collection.ids, collection.metadata, strict=True):
        texts = collection.hasher.encode_texts(entry["texts"])
        nearest = int(query_of_picture.distances(0, texts).argmin())
        bits = int(np.unpackbits(texts[nearest] ^ query_of_picture.codes[0]).sum())
        best.append((int(query_of_picture.distances(0, texts)[nearest]), name, bits))
    assert shown(page) == [(bits, name) for _, name, bits in sorted(best)[:PAGE]]
    caption = page.locator(".caption").first.inner_text()
    assert caption in collection.metadata[collection.ids.index(ids(page)[0])]["texts"]
    assert query(page)["find"] == ["texts"]


@pytest.mark.parametrize(
    ("name", "kind", "content", "message"),
    [
        ("holiday.jpg", "image/jpeg", b"no picture at all", "cannot be used"),
        ("notes.txt", "text/plain", b"words", "notes.txt is not a picture"),
    ],
)
def test_a_bad_upload_says_so_and_the_next_one_works(
    page: Any, url: str, collection: Collection, name: str, kind: str, content: bytes, message: str
) -> None:
    page.goto(url)
    page.locator("#chips .chip").first.wait_for()
    page.locator("#file").set_input_files({"name": name, "mimeType": kind, "buffer": content})
    assert re.search(rf"{message}.*\n.*JPEG", notice(page), re.DOTALL)
    page.locator("#file").set_input_files(collection.pictures / "pictures" / "000001.jpg")
    wait_for_cards(page)
    assert distances(page)[0] == 0 and page.locator("#notice h2").count() == 0


def test_what_comes_from_outside_stays_text(page: Any, url: str) -> None:
    page.goto(f"{url}?like=scenes/pictures/000001.jpg&label={QUOTED}")
    wait_for_cards(page)
    assert HOSTILE in page.locator(".caption").all_inner_texts()
    page.locator(".card", has_text="onerror").locator(".closer").click()
    assert page.locator("#viewer-title").inner_text() == HOSTILE
    assert page.title() != "owned" and page.locator("main b, main i").count() == 0


def test_a_key_is_asked_for_kept_for_the_tab_and_sent_with_pictures(page: Any, locked_url: str) -> None:
    page.goto(f"{locked_url}?q={WORDS}")
    field = page.get_by_label("Key", exact=True)
    field.fill("a wrong key of enough length")
    page.keyboard.press("Enter")
    page.get_by_text("was not accepted").wait_for()
    assert page.locator(".card").count() == 0
    field.fill(KEY)
    page.keyboard.press("Enter")
    wait_for_cards(page, PAGE)
    image = page.locator(".card").first.locator("img[src^='blob:']")  # of the others, any may come before it
    image.wait_for()
    assert loaded(image)
    page.reload()
    wait_for_cards(page, PAGE)
    stored = page.evaluate("() => [Object.values(sessionStorage), Object.values(localStorage), location.href]")
    assert stored[0] == [KEY] and KEY not in str(stored[1:])


def test_a_service_that_is_gone_is_told_and_tried_again(page: Any, url: str) -> None:
    page.goto(url)
    page.locator("#chips .chip").first.wait_for()
    page.route("**/search", lambda route: route.fulfill(status=503, headers={"Retry-After": "3"}, body="busy"))
    page.locator("#words").fill(WORDS)
    page.keyboard.press("Enter")
    assert "Try again in 3 s" in notice(page)
    page.unroute("**/search")
    page.locator("#notice").get_by_role("button", name="Try again").click()
    wait_for_cards(page, PAGE)


def test_a_page_of_another_site_gets_no_search(page: Any, url: str) -> None:
    """A real browser says where a form comes from, which it sends without asking first; a link is followed."""
    elsewhere = "http://localhost:54321/"
    form = f"""<form method=post enctype=multipart/form-data action="{url}search"><input name=image><button>Go</button>
        </form><a href="{url}?q={WORDS}">a link</a>"""
    page.route(elsewhere, lambda route: route.fulfill(content_type="text/html", body=form))
    page.goto(elsewhere)
    with page.expect_response("**/search") as answer:
        page.get_by_role("button").click()
    assert answer.value.status == 403
    page.goto(elsewhere)
    page.get_by_text("a link").click()
    wait_for_cards(page, PAGE)
