"""A folder searched in one call, and a model trained in one: what `kenthash index add`, `search` and `train` are made
of. It joins the index, which knows no models, to the models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kenthash.data.pictures import PictureInput
from kenthash.errors import DataError, KenthashError, UsageError, missing_extra
from kenthash.files import HALF
from kenthash.model.hasher import Hasher
from kenthash.model.pretrained import best_pretrained, find_model, pretrained_folders
from kenthash.model.relevance import Relevance
from kenthash.search import Index
from kenthash.search.answer import Answer, Query, ScoredHit, answer_query
from kenthash.search.engine import Metadata, NoSuchIndex
from kenthash.search.filters import Filter
from kenthash.search.folders.folder import IndexingReport, add_content
from kenthash.search.folders.own_index import index_for
from kenthash.search.folders.roots import Roots
from kenthash.search.folders.walk import walk_folder
from kenthash.search.metadata import public
from kenthash.search.models import is_current, model_for, stages
from kenthash.search.servers.addresses import without_password

if TYPE_CHECKING:
    from kenthash.training.evaluate import RunEvaluation

MAX_HITS = 10_000  # that an index returns


@dataclass(frozen=True)
class FolderHit:
    path: Path | None  # of the picture; None where the item has no file
    distance: int  # the number of bits that differ from the query
    id: str
    metadata: Metadata  # without what `index add` keeps for itself: size, mtime, digest and fingerprint
    relevance: float | None = None  # how often hits like it are right; None of a model that was not calibrated
    by_words: bool = False  # whether the name, the texts or the labels have all the words


def search_folder(
    folder: Path | str,
    query: str | PictureInput,
    k: int = 10,
    filter: str | None = None,
    model: Path | str | None = None,
    index: str | Path | None = None,
    device: str = "auto",
    plus: Sequence[str] = (),
    without: Sequence[str] = (),
    min_relevance: float = 0.0,
) -> list[FolderHit]:
    """The k pictures of a folder that are nearest to words (a string) or to a picture (a path, the content of a file or
    a Pillow image), nearest first; those with all the words in their names, texts or labels come before.

    The folder is indexed first, as `kenthash index add` does it: the first call encodes all pictures, later ones only
    what is new or has changed. `filter` is on metadata, as in `kenthash search --filter`; `plus` and `without` are
    words that are added and taken away; hits below `min_relevance`, from 0 to 1, are left out.

    A folder without pictures is refused:

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     search_folder(folder, "two dogs")  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        kenthash.errors.DataError: ...: no pictures here
    """
    folder = Path(folder)
    target = str(index) if index is not None else str(index_for(folder))
    index_folder(folder, target, model, device=device)
    with Index.open(target) as opened:
        hasher, roots, count = hasher_of(opened, None, device), Roots(opened), k
        combined = _encoded(hasher, query, plus, without)
        while True:  # an index may hold more than this folder
            most = min(count, MAX_HITS)
            answer = answer_query(
                opened, combined, most, filter=filter, judge=hasher.relevance, min_relevance=min_relevance
            )
            every = [_folder_hit(hit, roots.path_of(hit.id, hit.metadata)) for hit in answer]
            inside = [hit for hit in every if hit.path is not None and hit.path.is_relative_to(folder.resolve())]
            if len(inside) >= k or len(every) < count or count >= MAX_HITS:
                return inside[:k]
            count *= 4


def _folder_hit(hit: ScoredHit, path: Path | None) -> FolderHit:
    return FolderHit(path, hit.distance, hit.id, public(hit.metadata), hit.relevance, hit.by_words)


def search_index(
    index: Index,
    query: str | PictureInput | None = None,
    like: str | None = None,
    k: int = 10,
    radius: int | None = None,
    filter: Filter | str | None = None,
    plus: Sequence[str] = (),
    without: Sequence[str] = (),
    min_relevance: float = 0.0,
    model: Hasher | Path | str | None = None,
) -> Answer:
    """The k items nearest to words (a string), to a picture (a path, the content of a file or a Pillow image), or to
    the item `like` of the index, given by its id or file: `kenthash search`.

    Items with all the words of a query in their names, texts or labels come first. `plus` and `without` are words that
    are added and taken away; hits below `min_relevance`, from 0 to 1, are left out (see `search.answer`). `model` is
    the one that is noted in the index, unless it has been loaded already or is elsewhere now.
    """
    if (query is None) == (like is None):
        raise UsageError("give one of: words, a picture, the id of an item")
    first: str | PictureInput | Query
    if like is not None:
        like = Roots(index).id_of(like)
        (item,) = index.get([like])
        if item is None:
            raise DataError(f"{like}: no such id in the index: `kenthash index list` prints them")
        first = Query(item.code, id=like)
    else:
        assert query is not None
        first = query
    if isinstance(first, Query) and not plus and not without:
        combined, judge = first, _relevance_of(index, model)
    else:
        hasher = model if isinstance(model, Hasher) else hasher_of(index, model)
        combined, judge = _encoded(hasher, first, plus, without), hasher.relevance
    return answer_query(index, combined, k, radius, filter, judge, min_relevance)


def _encoded(hasher: Hasher, first: str | PictureInput | Query, plus: Sequence[str], without: Sequence[str]) -> Query:
    """Words, a picture or an item, with words to add and to take away, as `answer_query` takes them."""
    for words in (first, *plus, *without):
        if isinstance(words, str) and not words.strip():
            raise UsageError("words to search for are empty: say what to look for")
        if isinstance(words, str) and HALF.search(words):  # as of a terminal that is not set to UTF-8
            raise UsageError(f"words to search for are not valid Unicode: {words[:60]!r}")
    if isinstance(first, str):
        first = Query(hasher.query_texts(first)[0], words=first, known=hasher.knows(first))
    elif not isinstance(first, Query):
        first = Query(hasher.query_pictures(first)[0])
    more, less = ([hasher.query_texts(words)[0] for words in texts] for texts in (plus, without))
    return replace(first, plus=more, without=less)


def _relevance_of(index: Index, model: Hasher | Path | str | None) -> Relevance | None:
    """What tells the relevance of hits where nothing is to be encoded: the model itself need not be there."""
    if isinstance(model, Hasher):
        return model.relevance
    try:
        folder = model_for(index, find_model(model) if model is not None else None, pretrained_folders().values())
    except KenthashError:
        if model is not None:
            raise
        return None
    return Relevance.read(folder)


def index_folder(
    folder: Path | str,
    index: str | Path | None = None,
    model: Path | str | None = None,
    texts: bool = False,
    exclude: Sequence[str] | None = None,
    device: str = "auto",
    notify: Callable[[str], object] = lambda line: None,
) -> IndexingReport:
    """Make an index hold the pictures of a folder as they are now: `kenthash index add FOLDER`. By default it is the
    folder's own, and the model is that of the index or, of a new one, the best pretrained model that can be had."""
    # First of all, so that neither a folder without pictures nor an encoder with other weights leaves an index behind.
    content = walk_folder(Path(folder))
    target = str(index) if index is not None else str(index_for(Path(folder)))
    hasher = Hasher.load(model_to_index_with(target, model), device)
    _ = hasher.encoder
    number = f"{len(content.files):,} picture{'' if len(content.files) == 1 else 's'}"
    notify(f"{content.folder}: {number}, by the model {hasher.name}, into {without_password(target)}")
    with Index.open_or_create(target, *stages(hasher.bits, hasher.config.nested)) as opened:
        if not is_current(opened) and opened.list_ids(limit=1):
            notify("this index was filled by another version of kenthash: its pictures are encoded again")
        try:
            report = add_content(opened, content, hasher, texts, exclude)
        except KeyboardInterrupt:
            notify("stopped: what has been indexed is kept, and the same command continues from there")
            raise
        if report.texts is not None and not opened.has_texts():
            notify("no item has a text: name them as `text` or `texts` in metadata.jsonl")
    return report


def model_to_index_with(target: str, given: Path | str | None = None) -> Path:
    """The folder of the model that encodes what is added to an index, which may not be there yet."""
    folder = None if given is None else find_model(given)
    try:
        with Index.open(target) as index:
            if "model_path" in index.notes():
                return model_for(index, folder, pretrained_folders().values())
    except NoSuchIndex:
        pass
    return find_model(best_pretrained()) if folder is None else folder


def hasher_of(index: Index, given: Path | str | None = None, device: str = "cpu") -> Hasher:
    """The model that encodes queries to an index: the one that is noted in it, or `given`, which must be the same."""
    folder = model_for(index, find_model(given) if given is not None else None, pretrained_folders().values())
    return Hasher.load(folder, device, index.code_bits)


def train(
    data: Path | str | None,
    out: Path | str,
    method: str | None = None,
    bits: int | None = None,
    seed: int | None = None,
    recipe: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    resume: bool = False,
    device: str = "auto",
) -> "RunEvaluation | None":
    """Train a method on a feature pack or a folder of pictures into the run folder `out`, and evaluate it once:
    `kenthash train`. `Hasher.load(out)` opens the model. Where enough items with texts or labels were not trained
    on, the relevance of its hits is calibrated on them, so that searches have it in per cent.

    `recipe` is the name of one or a file; `overrides` are further values of it, such as `{"epochs": 40}`. The default
    method goes on from the pretrained model of the data's encoder where there is one that knows such pictures;
    `{"start": ""}` begins with random heads. Of several processes (torchrun) the first has the result.

        >>> train("photos", "run", method="kdhp")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        kenthash.errors.UsageError: method 'kdhp': choose one of ...
    """
    try:
        import torch

        from kenthash.encoders import check_device
        from kenthash.training.evaluate import evaluate_run
        from kenthash.training.recipe import find_recipe, make_recipe, read_recipe
        from kenthash.training.train import calibrate_run, train_run
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from error

    run, layers = Path(out), []
    begun = resume and (run / "recipe.yaml").is_file()
    if begun:
        layers.append(read_recipe(run / "recipe.yaml"))
    if recipe is not None:
        layers.append(read_recipe(find_recipe(recipe)))
    layers.append(dict(overrides or {}))
    given = {"data": str(data) if data is not None else None, "method": method, "bits": bits, "seed": seed}
    layers.append({name: value for name, value in given.items() if value is not None})
    settings = make_recipe(*layers)
    choose = not begun and not any("start" in layer for layer in layers)  # a run goes on from what it began with
    device = check_device(device)
    first = train_run(settings, run, resume, torch.device(device), choose_start=choose)
    if not first:
        return None
    result = evaluate_run(run, device=device)
    calibrate_run(run)
    return result
