"""What the page knows of photos: when, where and with which camera; words that change a search; an index that grows."""

import shutil
from collections.abc import Callable
from contextlib import closing  # a page is closed before its server: what it still loads would be refused
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from on_page import ask, ids, query, shown, wait_for_cards
from PIL import Image
from scenes_index import CAMERAS, FROM_CAMERAS, ITEMS, PLACES, Collection, serving

from kenthash import Index
from kenthash.codes import combine
from kenthash.model.relevance import Relevance
from kenthash.search.folders.folder import sync_folder
from kenthash.search.folders.walk import walk_folder
from kenthash.search.models import assign_model
from kenthash.search.queries import WITHOUT

PAGE = 24
WORDS = "two dogs in the park"


def test_when_where_and_camera_filter(page: Any, url: str, collection: Collection) -> None:
    page.goto(f"{url}?q={WORDS}")
    wait_for_cards(page, PAGE)
    output = collection.hasher.query_texts([WORDS])[0]

    def click(locator: Any) -> None:
        with page.expect_response(lambda response: "taken" in (response.request.post_data or "")):
            locator.click()
        wait_for_cards(page)

    panel = page.locator("#facet-panel")
    page.get_by_role("button", name="When").click()
    click(panel.get_by_role("button", name="2020"))
    taken = [entry for entry in collection.metadata if str(entry.get("taken")).startswith("2020")]
    assert panel.get_by_role("button", name="2020").inner_text().split() == ["2020", str(len(taken))]
    assert shown(page) == collection.nearest(output, lambda entry: entry in taken)[:PAGE]
    click(panel.get_by_role("button", name="Feb"))
    in_month = lambda entry: str(entry.get("taken")).startswith("2020-02")  # noqa: E731
    assert shown(page) == collection.nearest(output, in_month)[:PAGE] != []
    assert query(page)["from"] == ["2020-02-01"] and query(page)["to"] == ["2020-02-29"]
    click(panel.get_by_role("button", name="Feb"))  # back to the year
    page.get_by_role("button", name="Camera").click()
    click(panel.get_by_role("button", name=CAMERAS[1]))
    by_camera = lambda entry: entry in taken and entry["camera"] == CAMERAS[1]  # noqa: E731
    assert shown(page) == collection.nearest(output, by_camera)[:PAGE] != []
    assert page.get_by_role("button", name=f"Camera: {CAMERAS[1]}").is_visible()
    page.get_by_role("button", name="Clear the filters").click()
    wait_for_cards(page, PAGE)
    page.get_by_role("button", name="Where").click()
    place = page.locator("#facet-panel .chip", has_text="151.2° E")
    place.locator("img").wait_for()  # a photo from there
    with page.expect_response(lambda response: "near(" in (response.request.post_data or "")):
        place.click()
    wait_for_cards(page, FROM_CAMERAS // 2)

    def near(entry: dict[str, Any]) -> bool:
        return bool(entry.get("latitude") == PLACES[1]["latitude"])

    assert shown(page) == collection.nearest(output, near)
    page.reload()
    wait_for_cards(page, FROM_CAMERAS // 2)
    page.get_by_role("button", name="Clear the filters").click()
    wait_for_cards(page, PAGE)
    photo = next(i for i, name in enumerate(ids(page)) if near(collection.metadata[collection.ids.index(name)]))
    page.locator(".closer").nth(photo).click()
    with page.expect_response(lambda response: "near(" in (response.request.post_data or "")):
        page.get_by_role("button", name="Taken near here").click()
    wait_for_cards(page, FROM_CAMERAS // 2)
    assert shown(page) == collection.nearest(output, near)


@pytest.mark.parametrize("typed", [False, True])
def test_words_are_added_and_taken_away(page: Any, url: str, collection: Collection, typed: bool) -> None:
    outputs = collection.hasher.query_texts([WORDS, "at night", "snow"])
    expected = collection.nearest(combine(outputs, [1, 1, -WITHOUT])[0])[:PAGE]
    page.goto(url)
    page.locator("#chips .chip").first.wait_for()
    if typed:
        page.keyboard.type(f'{WORDS} +"at night" -snow')
        page.keyboard.press("Enter")
    else:
        ask(page, WORDS)
        for words, name in (("at night", "plus"), ("snow", "without")):
            page.locator("#refine-words").fill(words)
            with page.expect_response(lambda response, words=words: words in (response.request.post_data or "")):
                page.locator(f"#refine-{name}").click()
    wait_for_cards(page, PAGE)
    page.locator("#refine-chosen .chip", has_text="snow").wait_for()
    assert shown(page) == expected
    assert query(page) == {"q": [WORDS], "plus": ["at night"], "without": ["snow"]}
    page.get_by_role("button", name="without “snow”").click()
    page.wait_for_url(lambda address: "snow" not in address)
    wait_for_cards(page, PAGE)
    assert shown(page) == collection.nearest(combine(outputs[:2], [1, 1])[0])[:PAGE]


def test_words_change_a_picture(page: Any, url: str, collection: Collection) -> None:
    page.goto(url)
    picture = collection.pictures / "pictures" / "000007.jpg"
    page.locator("#file").set_input_files(picture)
    wait_for_cards(page)
    page.locator("#words").fill("snow")
    with page.expect_response("**/search"):
        page.keyboard.press("Enter")
    wait_for_cards(page)
    page.locator("#refine-chosen .chip", has_text="snow").wait_for()
    outputs = [collection.hasher.query_pictures(picture)[0], collection.hasher.query_texts(["snow"])[0]]
    assert shown(page) == collection.nearest(combine(np.array(outputs), [1, 1])[0])[:PAGE]
    assert page.locator("#pill .name").inner_text() == "000007.jpg" and page.locator("#words").input_value() == ""


def test_the_page_follows_an_index_that_grows(
    new_page: Callable[..., Any], collection: Collection, tmp_path: Path
) -> None:
    for part in collection.index.parent.glob("scenes.kh*"):
        shutil.copy(part, tmp_path)
    later_ids = collection.ids[5:]
    with Index.open(tmp_path / "scenes.kh") as index:
        items = [item for item in index.get(later_ids) if item]
        index.remove(collection.ids)
        with serving("--index", str(tmp_path / "scenes.kh")) as url, closing(new_page()) as page:
            page.goto(url)
            page.get_by_text("The index is empty").wait_for()
            page.keyboard.type("half a que")  # which stays while the page learns of new items
            index.add([i.id for i in items], np.stack([i.code for i in items]), [i.metadata for i in items])
            page.get_by_text(f"{len(later_ids)} items").wait_for()
            page.locator("#chips .chip").first.wait_for()
            page.locator("#taste .frame").first.wait_for()
            assert page.locator("#words").input_value() == "half a que"
            ask(page, WORDS)
            first = [(bits, name) for bits, name in nearest(collection) if name in later_ids]
            assert shown(page) == first[:PAGE]
            new = collection.ids[:5]
            entries = collection.metadata[:5]
            index.add(new, collection.codes[:5], entries)
            page.get_by_role("button", name="5 new").click()
            page.get_by_text(f"of {ITEMS}").wait_for()
            wait_for_cards(page, PAGE)
            assert shown(page) == nearest(collection)[:PAGE]


def test_relevance_and_that_nothing_is_close(
    new_page: Callable[..., Any], collection: Collection, tmp_path: Path
) -> None:
    for part in collection.index.parent.glob("scenes.kh*"):
        shutil.copy(part, tmp_path)
    shutil.copytree(collection.index.parent / "model", tmp_path / "model")
    unsure, sure = (-9.0, 9.0, 0.0, 0.0), (9.0, 0.0, 0.0, 0.0)  # by the codes; always over 99 %
    Relevance({64: {"words": unsure, "picture": sure}}, "scenes", ITEMS).write(tmp_path / "model")
    with (
        serving("--index", str(tmp_path / "scenes.kh"), "--model", str(tmp_path / "model")) as url,
        closing(new_page()) as page,
    ):
        page.goto(url)
        response = ask(page, WORDS)
        assert response["close"] == 0
        page.get_by_role("heading", name="Nothing here is close").wait_for()
        first = round(100 * response["hits"][0]["relevance"])
        expected_label = f"{first} % match" if first else "under 1 % match"
        assert page.locator(".distance").first.inner_text() == expected_label
        assert page.locator(".card.likely").count() == 0
        response = ask(page, "000007.jpg")  # a file name
        assert (response["close"], response["hits"][0]["id"]) == (1, "scenes/pictures/000007.jpg")
        page.locator(".card.likely .distance", has_text="words match").wait_for()
        assert page.locator(".card.likely").count() == 1 and page.locator("#notice h2").count() == 0
        page.locator(".hit").first.click()
        page.wait_for_url("**/?like=*")
        page.get_by_text("over 99 % match").first.wait_for()
        assert page.locator("#notice h2").count() == 0 and page.locator(".card.likely").count() == PAGE


def test_duplicates_are_shown_with_their_sizes(
    new_page: Callable[..., Any], collection: Collection, tmp_path: Path
) -> None:
    (tmp_path / "album").mkdir()
    for number in (1, 2, 3):
        shutil.copy(collection.pictures / "pictures" / f"00000{number}.jpg", tmp_path / "album")
    with Image.open(tmp_path / "album" / "000002.jpg") as picture:
        picture.resize((picture.width // 2, picture.height // 2)).save(tmp_path / "album" / "small.jpg", quality=70)
        expected = [f"{picture.width} × {picture.height}", f"{picture.width // 2} × {picture.height // 2}"]
    with Index.create(tmp_path / "album.kh", 64) as index:
        assign_model(index, collection.index.parent / "model")
        sync_folder(index, walk_folder(tmp_path / "album"), collection.hasher.encode_files)
    with serving("--index", str(tmp_path / "album.kh")) as url, closing(new_page()) as page:
        page.goto(url)
        page.locator("#taste img").first.wait_for()
        page.get_by_role("button", name="Duplicates").click()
        page.locator(".group img").first.wait_for()
        assert page.locator(".group").count() == 1
        assert page.locator(".group .name").all_inner_texts() == ["000002.jpg", "small.jpg"]
        assert [
            text.split(",")[0] for text in page.locator(".group li .quiet:last-child").all_inner_texts()
        ] == expected
        assert "1 group" in page.locator("#status").inner_text() and query(page) == {"view": ["duplicates"]}
        page.locator(".group button").last.click()
        page.wait_for_url("**/?like=*")
        wait_for_cards(page, 3)
        assert ids(page)[0] == "album/000002.jpg" and page.locator(".group").count() == 0


def nearest(collection: Collection) -> list[tuple[int, str]]:
    return collection.nearest(collection.hasher.query_texts([WORDS])[0])
