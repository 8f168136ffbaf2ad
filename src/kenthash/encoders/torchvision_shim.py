"""Import torchvision where its compiled part does not fit the torch that is installed.

Package indexes serve torchvision built for CUDA next to a torch built for the CPU. Its extension then does not load,
and `import torchvision` stops at the first operator whose schema the extension would have declared ("operator
torchvision::nms does not exist"). timm, transformers and open_clip import torchvision but need no such operator here,
so that declaring the missing names lets the import pass. Calling one of them still fails, as it should.
"""

import importlib
import re
import sys

import torch

_MISSING = re.compile(r"operator torchvision::(\w+) does not exist")


def import_torchvision() -> None:
    """Import torchvision before anything else does. Where the import works by itself, this is all it does."""
    for _ in range(20):  # one missing operator is named at a time; there are two in torchvision 0.28
        try:
            importlib.import_module("torchvision")
            return
        except RuntimeError as error:
            missing = _MISSING.search(str(error))
            if missing is None:
                raise
            for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
                del sys.modules[name]
            torch.library.define(f"torchvision::{missing[1]}", "() -> ()")
    raise ImportError("torchvision lacks more operators than can be declared: install the build that fits torch")
