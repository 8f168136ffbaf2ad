"""Moved: the feature pack is in `kenthash.data.pack`. This name is kept for one version."""

import warnings
from typing import Any


def __getattr__(name: str) -> Any:
    from kenthash.data import pack

    if name not in ("FeaturePack", "bad_rows"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"kenthash.encoders.features.{name} is kenthash.data.pack.{name} now", DeprecationWarning, 2)
    return getattr(pack, name)
