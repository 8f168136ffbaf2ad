"""What a reader sees on the page, as values."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

KEY = "correct-horse-battery-staple"  # of the service that asks for one


def ids(page: Any) -> list[str]:
    """Of the items that are shown, in order."""
    links = page.locator("#grid .hit").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    return [parse_qs(urlsplit(link).query)["like"][0] for link in links]


def distances(page: Any) -> list[int]:
    """As each card says them: "n of 64 bits differ"."""
    texts = page.locator("#grid .distance").all_inner_texts()
    assert all(text.endswith(" of 64 bits differ") for text in texts)
    return [int(text.split()[0]) for text in texts]


def shown(page: Any) -> list[tuple[int, str]]:
    return list(zip(distances(page), ids(page), strict=True))


def wait_for_cards(page: Any, count: int | None = None) -> None:
    """Wait until the answer is there: so many cards, or any."""
    page.wait_for_selector("#results[aria-busy=false]")
    if count is None:
        page.locator(".card").first.wait_for()
    else:
        page.wait_for_function("count => document.querySelectorAll('.card').length === count", arg=count)


def ask(page: Any, words: str) -> dict[str, Any]:
    """Type and wait for the answer to just these words (the start page also asks something), which is returned."""
    page.locator("#words").fill(words)
    with page.expect_response(lambda response: words in (response.request.post_data or "")) as answer:
        page.keyboard.press("Enter")
    wait_for_cards(page)
    response: dict[str, Any] = answer.value.json()
    return response


def loaded(image: Any) -> bool:
    """Whether a picture has been fetched and decoded."""
    image.scroll_into_view_if_needed()
    return bool(image.evaluate("image => image.decode().then(() => image.naturalWidth > 0)"))


def query(page: Any) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)
