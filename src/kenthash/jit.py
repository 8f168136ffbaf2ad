"""numba's just-in-time compiler as the kernels of this package use it: compiled code is kept, also by `compiled` with
vectorised sums; and two instructions of the processor that numba has no name for."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def njit_cached(**options: Any) -> Callable[[Kernel], Kernel]:
    """numba's `njit(cache=True)`, also where compiled code cannot be kept, as in a read-only container: each process
    compiles again there."""

    def decorate(function: Kernel) -> Kernel:
        try:
            return cast(Kernel, njit(cache=True, **options)(function))
        except RuntimeError:  # numba finds no folder that it may write
            return cast(Kernel, njit(**options)(function))

    return decorate


def compiled(function: Kernel) -> Kernel:
    """Reassociation lets sums of floats use vector registers; nothing here divides by zero."""
    return njit_cached(nogil=True, error_model="numpy", fastmath={"reassoc"})(function)


def inlined(function: Kernel) -> Kernel:
    """A part of compiled functions that numba copies into each of them: a call from an inner loop would take time, for
    one to count references to arrays."""
    return cast(Kernel, njit(inline="always")(function))


def _popcount(typing_context: Any, word: Any) -> Any:
    """The processor's own bit count (LLVM's ctpop), which numba has no name for."""
    return word(word), lambda context, builder, signature, arguments: builder.ctpop(arguments[0])


popcount: Any = intrinsic(_popcount)


def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of array[index] without waiting for it (LLVM's prefetch, for reading, kept)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.bitcast(builder.gep(view.data, [arguments[1]]), ir.IntType(8).as_pointer())
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, flag, flag, flag])
        function = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        builder.call(function, [place, flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


prefetch: Any = intrinsic(_prefetch)
