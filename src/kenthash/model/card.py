"""The card beside a saved model: what it is, how it was made, how to use it."""

from pathlib import Path
from typing import TYPE_CHECKING

from kenthash.files import atomic_write

if TYPE_CHECKING:
    from kenthash.model.config import HasherConfig

USE = """\
```python
from kenthash import Hasher

hasher = Hasher.load("{folder}")
codes = {call}
```
"""


def write_card(path: Path, config: "HasherConfig") -> None:
    nbytes = config.bits // 8
    if config.encoder:
        encoder = f"{config.encoder} ({'trained with the heads' if config.encoder_trained else 'frozen'})"
        call = f'hasher.encode_texts(["two dogs and a kite"])  # uint8 [1, {nbytes}]'
    else:
        encoder = "none: it takes vectors from elsewhere"
        call = f"hasher.encode_text_features(vectors)  # floats [n, {config.text_dim}] to uint8 [n, {nbytes}]"
    lines = [
        f"# kenthash model, {config.bits} bits",
        "",
        f"Turns pictures and texts into codes of {nbytes} bytes that find each other by Hamming distance.",
        "",
        f"- encoder: {encoder}",
        f"- picture vectors: {config.image_dim}-d, text vectors: {config.text_dim}-d",
        *(f"- {key}: {value}" for key, value in config.about.items()),
        "",
        USE.format(folder=path.parent.name, call=call),
    ]
    with atomic_write(path, "w") as stream:
        stream.write("\n".join(lines))
