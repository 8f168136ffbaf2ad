"""Model folders on a Hugging Face hub, through `huggingface_hub`: which hub, cache and token are what that library is
set up for (`HF_ENDPOINT`, `HF_HOME`, `hf auth login`)."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kenthash.errors import KenthashError
from kenthash.model.config import model_folder
from kenthash.model.relevance import FILE as RELEVANCE

REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
FILES = ["config.json", "model.safetensors", "*.onnx", "encoder/*", RELEVANCE, "README.md"]  # of a model folder


def is_repository(name: str) -> bool:
    """Whether a name can be that of a model on a hub, as `owner/name`."""
    return REPOSITORY.fullmatch(name) is not None


def download_model(repository: str, revision: str | None = None) -> Path:
    """The model folder of a repository, in the cache of `huggingface_hub`. What is there already is not fetched again,
    and is all that is needed where there is no network."""
    from huggingface_hub import snapshot_download

    with _one_line(repository):
        return model_folder(Path(snapshot_download(repository, revision=revision, allow_patterns=FILES)))


def upload_model(folder: Path, repository: str, private: bool, message: str) -> str:
    """Commit a model folder to a repository, which is created where there is none; the address of the commit."""
    from huggingface_hub import HfApi

    api = HfApi()
    with _one_line(repository):
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message, allow_patterns=FILES)
    return str(commit.commit_url)


@contextmanager
def _one_line(repository: str) -> Iterator[None]:
    """Whatever goes wrong on the way becomes one line. The library raises errors of its own, of its HTTP client and of
    the system, which share no base."""
    try:
        yield
    except KenthashError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise KenthashError(f"{repository}: the hub did not do this: {reason}") from error
