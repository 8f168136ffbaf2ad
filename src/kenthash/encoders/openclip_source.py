"""Which open_clip model a spec means, and where its weights are. Looks at the disk, never at the network.

After `openclip:` comes one of

    MODEL                 a name of `open_clip.list_models()`, with the weights by OpenAI where there are some
    MODEL/TAG             weights by a tag that the library knows, from its hub
    MODEL/FILE            weights from a file: .safetensors, or .pt with nothing but tensors in it
    FOLDER                a copy of a hub repository: open_clip_config.json and a weights file
    hf-hub:OWNER/NAME     such a repository on the hub
"""

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kenthash.encoders.openclip_weights import is_by_openai
from kenthash.encoders.torchvision_shim import import_torchvision
from kenthash.errors import KenthashError, UsageError
from kenthash.files import content_digest, expand, read_json

CONFIG = "open_clip_config.json"
WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin", "model.safetensors")
SHORT = 12  # digits of the digest in a name: other weights under an old name must not find cached vectors
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


@dataclass(frozen=True)
class Source:
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


def find_source(spec: str, weights: bool = True) -> Source:
    """Read a spec (without "openclip:"). With `weights=False`, a weights file need not be there."""
    if spec.startswith("hf-hub:"):
        repository = spec.removeprefix("hf-hub:")
        if not _REPOSITORY.fullmatch(repository):
            raise UsageError(f"openclip:{spec}: not the name of a repository: give openclip:hf-hub:OWNER/NAME")
        return Source(spec, f"openclip:{spec}", "", repository=repository)
    if (folder := expand(Path(spec))).is_dir():
        return folder_source(folder.resolve(), weights)
    import_torchvision()
    import open_clip

    model, _, rest = spec.partition("/")
    if model not in open_clip.list_models():
        near = ", ".join(get_close_matches(model, open_clip.list_models(), 4, 0.4)) or "ViT-B-32, ViT-L-14, RN50"
        raise UsageError(f"openclip:{spec}: open_clip has no model {model!r}, and there is no such folder: try {near}")
    tags = open_clip.list_pretrained_tags_by_model(model)
    tag = open_clip.get_pretrained_cfg(model, rest or "openai")
    if tag:
        return _tag_source(model, rest or "openai", tag)
    file = expand(Path(rest)).resolve()
    if rest and (file.is_file() or not weights):
        return _file_source(model, file)
    known = f"a tag of {model} ({', '.join(tags)})" if tags else "a tag (this model has none)"
    raise UsageError(f"openclip:{spec}: give {known} or a weights file that is there, as openclip:{model}/FILE")


def _tag_source(model: str, name: str, tag: dict[str, Any]) -> Source:
    repository, _, file = tag.get("hf_hub", "").rpartition("/")
    return Source(
        spec=f"{model}/{name}",
        name=f"openclip:{model}/{name}",
        model=model,
        repository=repository,
        repository_file=file,
        url=tag.get("url", ""),
        quick_gelu=tag.get("quick_gelu", False),
        preprocess={key: tag[key] for key in ("mean", "std", "interpolation") if key in tag},
    )


def _file_source(model: str, file: Path) -> Source:
    """Weights by OpenAI were trained with QuickGELU, which a model name without -quickgelu does not build."""
    import open_clip

    if not file.is_file():
        return Source(f"{model}/{file}", f"openclip:{model}/{file.name}", model)
    quick = f"{model}-quickgelu"
    if quick in open_clip.list_models() and is_by_openai(file):
        model = quick
    digest = content_digest(file)
    name = f"openclip:{model}/{file.name}@{digest[:SHORT]}"
    return Source(f"{model}/{file}", name, model, file=file, digest=digest)


def folder_source(folder: Path, weights: bool = True) -> Source:
    file = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if not (folder / CONFIG).is_file() or (weights and file is None):
        raise KenthashError(f"{folder}: needs {CONFIG} and one of {', '.join(WEIGHTS)} to be an open_clip model")
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict) or not isinstance(config.get("model_cfg"), dict):
        raise KenthashError(f"{folder / CONFIG}: has no 'model_cfg', so it does not describe a model")
    digest = content_digest(folder / CONFIG, *filter(None, [file]))
    name = f"openclip:{folder.name}@{digest[:SHORT]}"
    return Source(str(folder), name, "", folder=folder, file=file, digest=digest)
