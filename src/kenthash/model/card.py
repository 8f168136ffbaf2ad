"""The card beside a saved model: what it is, how it was made, what it reached, how to use it."""

from pathlib import Path
from typing import TYPE_CHECKING

from kenthash.files import atomic_write

if TYPE_CHECKING:
    from kenthash.model.hasher import HasherConfig

USE = """\
```python
from kenthash import Hasher

hasher = Hasher.load("{folder}")
codes = hasher.encode_texts(["two dogs and a kite"])  # uint8 [1, {nbytes}]
```
"""


def write_card(path: Path, config: "HasherConfig") -> None:
    about = config.about
    trained = "trained with the heads" if config.encoder_trained else "frozen"
    lines = [
        f"# kenthash model, {config.bits} bits",
        "",
        f"Turns pictures and texts into codes of {config.bits // 8} bytes that find each other by Hamming distance.",
        "",
        f"- encoder: {config.encoder or 'vectors from elsewhere'} ({trained})",
        f"- picture vectors: {config.image_dim}-d, text vectors: {config.text_dim}-d",
        *(f"- {key}: {value}" for key, value in about.items()),
        "",
        USE.format(folder=path.parent.name, nbytes=config.bits // 8),
    ]
    with atomic_write(path, "w") as stream:
        stream.write("\n".join(lines))
