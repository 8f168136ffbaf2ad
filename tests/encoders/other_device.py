"""A device that is not the CPU, for machines without a GPU: `torch.device("other")`, once this module is imported.

Its tensors are computed on the CPU, but torch takes them for those of another device: an operation that mixes them with
tensors of the CPU fails, as does `.numpy()`. `ran` counts the operations. Importing it changes torch for the whole
process, so tests import it in a process of their own.
"""

from collections import Counter
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

aten: Any = torch.ops.aten
MOVE = (aten._to_copy.default, aten.copy_.default)
# By row numbers that may be on the CPU, as with a GPU.
INDEX = (aten.index.Tensor, aten.index_put_.default, aten._index_put_impl_.default)

ran: Counter[str] = Counter()


class OtherTensor(torch.Tensor):
    held: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "OtherTensor":
        make: Any = torch.Tensor._make_wrapper_subclass
        tensor: OtherTensor = make(cls, inner.size(), inner.stride(), dtype=inner.dtype, device="other:0")
        tensor.held = inner
        return tensor

    def __init__(self, inner: torch.Tensor) -> None:
        pass

    def tolist(self) -> Any:
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        with torch.inference_mode(False), torch.no_grad():  # which torch cannot do with views of tensors such as these
            return _run(operation, *args, **(kwargs or {}))


def _run(operation: Any, *args: Any, **kwargs: Any) -> Any:
    ran[operation.overloadpacket.__name__] += 1
    for value in pytree.tree_leaves((args, kwargs)):
        foreign = isinstance(value, torch.Tensor) and not isinstance(value, OtherTensor) and value.ndim > 0
        if foreign and operation not in MOVE + INDEX:
            raise RuntimeError(f"{operation}: expected all tensors on other:0, but found one on {value.device}")
    to_cpu = kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cpu"
    inner_args, inner_kwargs = pytree.tree_map_only(OtherTensor, lambda tensor: tensor.held, (args, kwargs))
    if "device" in kwargs:
        inner_kwargs["device"] = "cpu"
    result = operation(*inner_args, **inner_kwargs)
    if not operation._schema.returns:
        return None
    if operation._schema.name.endswith("_"):  # in place
        return args[0]
    if "out" in kwargs:
        return kwargs["out"]
    return result if to_cpu else pytree.tree_map_only(torch.Tensor, OtherTensor, result)


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """What `torch.tensor(values, device="other")` ends in."""
    getattr(target, "held", target).copy_(getattr(source, "held", source))
    return target


_setup_privateuseone_for_python_backend("other")
library: Any = torch.library
_factories = library.Library("_", "IMPL")
_factories.fallback(_run, "PrivateUse1")
_copying = library.Library("aten", "IMPL")
_copying.impl("_copy_from", _copy_from, "PrivateUse1")
