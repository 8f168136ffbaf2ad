"""Import torchvision where its compiled part does not fit the torch that is installed.

timm and open_clip cannot be imported without torchvision (`timm.layers` takes `FrozenBatchNorm2d` from it, open_clip
its transforms), and each torchvision requires exactly one torch. The package index has one file of the version that
fits the torch of constraints.txt, and no source distribution: it is built for CUDA, its extension is linked to
libtorch_cuda and does not load beside a torch that was built for the CPU. Such a torch is what continuous integration
and many machines have, since the one for CUDA takes gigabytes. `import torchvision` then stops at the first operator
that the extension would have declared ("operator torchvision::nms does not exist"). No such operator is needed here:
declaring the missing names lets the import pass. Calling one of them still fails, as it should.

Where both are builds for CUDA, or both for the CPU, the import works by itself and nothing is declared. This module can
go once torchvision imports without its extension, or the package index has builds of it for the CPU.
"""

import importlib
import re
import sys

import torch

_MISSING = re.compile(r"operator torchvision::(\w+) does not exist")


def import_torchvision() -> None:
    """Import torchvision. To be called before timm, transformers or open_clip are imported."""
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
