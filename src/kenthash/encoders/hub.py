"""Files from the hub, or at once an error that says what to do without one."""

import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

from kenthash.encoders.openclip_source import CONFIG, WEIGHTS, Source, folder_source
from kenthash.errors import KenthashError
from kenthash.files import content_digest

PATIENCE = 5.0  # seconds that the hub has to answer at all


def fetch(source: Source) -> Source:
    """The source with its weights on this disk: in the hub's cache where they were not here before."""
    if source.file is not None:
        return source
    if not source.repository:
        import open_clip

        need_hub(source.spec, source.url)
        try:
            file = Path(open_clip.download_pretrained({"url": source.url}))
        except (OSError, RuntimeError) as error:
            raise no_hub(source.spec, str(error)) from error
        return replace(source, file=file, digest=content_digest(file))
    file = hub_file(source.spec, source.repository, (source.repository_file,) if source.repository_file else WEIGHTS)
    if source.model:
        return replace(source, file=file, digest=content_digest(file))
    config = hub_file(source.spec, source.repository, (CONFIG,))
    return replace(folder_source(config.parent), spec=source.spec, name=source.name)


def hub_file(spec: str, repository: str, names: tuple[str, ...]) -> Path:
    """The first of `names` that the repository has, from the cache or downloaded."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError

    for name in names:
        if isinstance(cached := try_to_load_from_cache(repository, name), str):
            return Path(cached)
    need_hub(spec)
    for name in names:
        try:
            return Path(hf_hub_download(repository, name))
        except EntryNotFoundError:
            continue
        except Exception as error:  # the client has a dozen kinds for a connection that breaks or is not allowed
            raise no_hub(spec, str(error)) from error
    raise KenthashError(f"openclip:{spec}: the repository {repository} on the hub has none of {', '.join(names)}")


def need_hub(spec: str, url: str = "") -> None:
    """Ask once whether the hub answers. Its own client would try for most of a minute before giving up."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise no_hub(spec, "HF_HUB_OFFLINE is set")
    try:
        request = urllib.request.Request(url or constants.ENDPOINT, method="HEAD")
        urllib.request.urlopen(request, timeout=PATIENCE).close()
    except urllib.error.HTTPError:
        return  # a refusal is an answer
    except OSError as error:
        raise no_hub(spec, str(getattr(error, "reason", error))) from error


def no_hub(spec: str, reason: str) -> KenthashError:
    model = "MODEL" if spec.startswith("hf-hub:") else spec.partition("/")[0]
    first = reason.strip().splitlines()[0] if reason.strip() else "no reason given"
    return KenthashError(
        f"openclip:{spec}: the hub does not answer ({first}): download the weights elsewhere and give the file as "
        f"--encoder openclip:{model}/FILE.safetensors, or use --encoder light, which needs no hub"
    )
