"""Import torchvision where its compiled part does not fit the torch that is installed.

`timm.layers`, `open_clip.transform` and the models of transformers import torchvision when they are imported. Of the
version that fits the torch of constraints.txt, the package index has one file, which is linked to libtorch_cuda: beside
a torch that was built for the CPU its operators are missing, and `import torchvision` stops where it describes the
first of them ("operator torchvision::nms does not exist"). No operator of it is called here, and declaring their names
lets the import pass. This module can go once torchvision imports without its extension, or the index has a build for
the CPU.
"""

import importlib
import sys

import torch

_DESCRIBED = ("nms", "qnms")  # the operators that torchvision describes when it is imported


def import_torchvision() -> None:
    """Import torchvision. To be called before timm, transformers or open_clip are imported."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        for operator in _DESCRIBED:
            torch.library.define(f"torchvision::{operator}", "() -> ()")
        importlib.import_module("torchvision")
