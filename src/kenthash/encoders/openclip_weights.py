"""Which open_clip model a spec means, where its weights are, and how they are read: tensors and nothing else.

`find_source` looks at the disk, never at the network; `fetch` gets from the hub what is not here, or says at once what
to do without one.

After `openclip:` comes one of

    MODEL                 a name of `open_clip.list_models()`, with the weights by OpenAI where there are some
    MODEL/TAG             weights by a tag that the library knows, from its hub
    MODEL/FILE            weights from a file: .safetensors, or .pt with nothing but tensors in it
    FOLDER                a copy of a hub repository: open_clip_config.json and a weights file
    hf-hub:OWNER/NAME     such a repository on the hub
"""

import re
import urllib.error
import urllib.request
import warnings
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from kenthash.encoders.torchvision_shim import import_torchvision
from kenthash.errors import KenthashError, UsageError
from kenthash.files import content_digest, expand, read_json

CONFIG = "open_clip_config.json"
WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin", "model.safetensors")
SHORT = 12  # digits of the digest in a name: other weights under an old name must not find cached vectors
PATIENCE = 5.0  # seconds that the hub has to answer at all
# Numbers that OpenAI's own checkpoints keep among the weights.
OPENAI_NUMBERS = frozenset({"input_resolution", "context_length", "vocab_size"})
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


@dataclass(frozen=True)
class OpenClipSource:
    spec: str  # after "openclip:", paths made absolute
    name: str
    model: str  # a name of open_clip's, or "" for the model that the configuration in `folder` describes
    folder: Path | None = None
    file: Path | None = None  # the weights, where they are on this disk
    digest: str = ""  # of that file, and of the configuration in `folder`
    repository: str = ""  # on the hub
    repository_file: str = ""  # "" for the first of WEIGHTS that is there
    url: str = ""  # for the few weights that no repository has
    quick_gelu: bool = False  # whatever the model's own configuration says
    preprocess: dict[str, Any] = field(default_factory=dict)


def find_source(spec: str, weights: bool = True) -> OpenClipSource:
    """Read a spec (without "openclip:"). With `weights=False`, a weights file need not be there."""
    if spec.startswith("hf-hub:"):
        repository = spec.removeprefix("hf-hub:")
        if not _REPOSITORY.fullmatch(repository):
            raise UsageError(f"openclip:{spec}: not the name of a repository: give openclip:hf-hub:OWNER/NAME")
        return OpenClipSource(spec, f"openclip:{spec}", "", repository=repository)
    if (folder := expand(Path(spec))).is_dir():
        return _folder_source(folder.resolve(), weights)
    import_torchvision()
    import open_clip

    model, _, weights_name = spec.partition("/")
    if model not in open_clip.list_models():
        near = ", ".join(get_close_matches(model, open_clip.list_models(), 4, 0.4)) or "ViT-B-32, ViT-L-14, RN50"
        raise UsageError(f"openclip:{spec}: open_clip has no model {model!r}, and there is no such folder: try {near}")
    tags = open_clip.list_pretrained_tags_by_model(model)
    tag = open_clip.get_pretrained_cfg(model, weights_name or "openai")
    if tag:
        return _tag_source(model, weights_name or "openai", tag)
    file = expand(Path(weights_name)).resolve()
    if weights_name and (file.is_file() or not weights):
        return _file_source(model, file)
    known = f"a tag of {model} ({', '.join(tags)})" if tags else "a tag (this model has none)"
    raise UsageError(f"openclip:{spec}: give {known} or a weights file that is there, as openclip:{model}/FILE")


def _tag_source(model: str, name: str, tag: dict[str, Any]) -> OpenClipSource:
    repository, _, file = tag.get("hf_hub", "").rpartition("/")
    return OpenClipSource(
        spec=f"{model}/{name}",
        name=f"openclip:{model}/{name}",
        model=model,
        repository=repository,
        repository_file=file,
        url=tag.get("url", ""),
        quick_gelu=tag.get("quick_gelu", False),
        preprocess={key: tag[key] for key in ("mean", "std", "interpolation") if key in tag},
    )


def _file_source(model: str, file: Path) -> OpenClipSource:
    """Weights by OpenAI were trained with QuickGELU, which a model name without -quickgelu does not build."""
    import open_clip

    if not file.is_file():
        return OpenClipSource(f"{model}/{file}", f"openclip:{model}/{file.name}", model)
    quick = f"{model}-quickgelu"
    if quick in open_clip.list_models() and _is_by_openai(file):
        model = quick
    digest = content_digest(file)
    name = f"openclip:{model}/{file.name}@{digest[:SHORT]}"
    return OpenClipSource(f"{model}/{file}", name, model, file=file, digest=digest)


def _folder_source(folder: Path, weights: bool = True) -> OpenClipSource:
    file = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if not (folder / CONFIG).is_file() or (weights and file is None):
        raise KenthashError(f"{folder}: needs {CONFIG} and one of {', '.join(WEIGHTS)} to be an open_clip model")
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict) or not isinstance(config.get("model_cfg"), dict):
        raise KenthashError(f"{folder / CONFIG}: has no 'model_cfg', so it does not describe a model")
    digest = content_digest(folder / CONFIG, *filter(None, [file]))
    name = f"openclip:{folder.name}@{digest[:SHORT]}"
    return OpenClipSource(str(folder), name, "", folder=folder, file=file, digest=digest)


def fetch(source: OpenClipSource) -> OpenClipSource:
    """The source with its weights on this disk: in the hub's cache where they were not here before."""
    if source.file is not None:
        return source
    if not source.repository:
        import open_clip

        _need_hub(source.spec, source.url)
        try:
            file = Path(open_clip.download_pretrained({"url": source.url}))
        except (OSError, RuntimeError) as error:
            raise _no_hub(source.spec, str(error)) from error
        return replace(source, file=file, digest=content_digest(file))
    file = hub_file(source.spec, source.repository, (source.repository_file,) if source.repository_file else WEIGHTS)
    if source.model:
        return replace(source, file=file, digest=content_digest(file))
    config = hub_file(source.spec, source.repository, (CONFIG,))
    return replace(_folder_source(config.parent), spec=source.spec, name=source.name)


def hub_file(spec: str, repository: str, names: tuple[str, ...]) -> Path:
    """The first of `names` that the repository has, from the cache or downloaded."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError

    for name in names:
        if isinstance(cached := try_to_load_from_cache(repository, name), str):
            return Path(cached)
    _need_hub(spec)
    for name in names:
        try:
            return Path(hf_hub_download(repository, name))
        except EntryNotFoundError:
            continue
        except Exception as error:  # the client has a dozen kinds for a connection that breaks or is not allowed
            raise _no_hub(spec, str(error)) from error
    raise KenthashError(f"openclip:{spec}: the repository {repository} on the hub has none of {', '.join(names)}")


def _need_hub(spec: str, url: str = "") -> None:
    """Ask once whether the hub answers. Its own client would try for most of a minute before giving up."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise _no_hub(spec, "HF_HUB_OFFLINE is set")
    try:
        request = urllib.request.Request(url or constants.ENDPOINT, method="HEAD")
        urllib.request.urlopen(request, timeout=PATIENCE).close()
    except urllib.error.HTTPError:
        return  # a refusal is an answer
    except OSError as error:
        raise _no_hub(spec, str(getattr(error, "reason", error))) from error


def _no_hub(spec: str, reason: str) -> KenthashError:
    model = "MODEL" if spec.startswith("hf-hub:") else spec.partition("/")[0]
    first = reason.strip().splitlines()[0] if reason.strip() else "no reason given"
    return KenthashError(
        f"openclip:{spec}: the hub does not answer ({first}): download the weights elsewhere and give the file as "
        f"--encoder openclip:{model}/FILE.safetensors, or use --encoder light, which needs no hub"
    )


def _read_weights(file: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, or of a .pt file that holds only tensors (no code is run)."""
    weights: Any
    try:
        if file.suffix == ".safetensors":
            weights = load_file(file)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch remarks on what is refused below
                weights = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises anything on a file that is none of its own: IndexError, KeyError ...
        if "TorchScript" in str(error):
            raise KenthashError(
                f"{file}: is a program (TorchScript), which is not run for safety: take the model as .safetensors, "
                "or save its state_dict() with safetensors.torch.save_file"
            ) from error
        reason = "" if file.suffix == ".safetensors" else " of plain tensors"
        raise KenthashError(f"{file}: not a weights file{reason}: a .safetensors file is safest") from error
    weights = weights.get("state_dict", weights) if isinstance(weights, dict) else weights
    if not _named_tensors(weights):
        raise KenthashError(f"{file}: holds no state_dict of tensors: save the model's state_dict() as .safetensors")
    return {name.removeprefix("module."): value for name, value in weights.items()}


def _named_tensors(weights: object) -> bool:
    if not isinstance(weights, dict) or not weights:
        return False
    return all(isinstance(name, str) and isinstance(value, Tensor) for name, value in weights.items())


def _is_by_openai(file: Path) -> bool:
    """By the file's name, or by the three numbers."""
    if "openai" in file.name.lower():
        return True
    if file.suffix == ".safetensors":
        try:
            with safe_open(file, "pt") as stream:
                return set(stream.keys()) >= OPENAI_NUMBERS
        except (OSError, SafetensorError) as error:
            raise KenthashError(f"{file}: not a .safetensors file: {error}") from error
    return _read_weights(file).keys() >= OPENAI_NUMBERS


def load_weights(model: nn.Module, file: Path, name: str) -> None:
    """Load a checkpoint of any age that open_clip can convert; every weight must find its place."""
    import open_clip

    weights = _read_weights(file)
    try:
        if weights.keys() >= OPENAI_NUMBERS:
            plain = {key: value for key, value in weights.items() if key not in OPENAI_NUMBERS}
            model.load_state_dict(plain, strict=True)
        else:
            del weights  # a second reading is cheaper than twice the memory
            open_clip.load_checkpoint(model, str(file), strict=True, weights_only=True)
    except (RuntimeError, KeyError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[min(1, len(lines) - 1)] if lines else type(error).__name__
        raise KenthashError(f"{file}: does not hold the weights of {name}: {reason[:200]}") from error
