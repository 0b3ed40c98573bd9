"""How torch is made to run fast in this process: compilation, threads, memory."""

import ctypes
import os
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""glibc's names for the sizes from which memory is given back to the system, and taken from it directly."""
MOST = 2**30

PARAMETERS_PER_THREAD = 25_000
"""Measured on two cores: 58,000 parameters gain from a second thread, 11,000 do not."""

ON_CPU = {"cpp_wrapper": True, "cpp.use_decompose_tanh": True}
"""Of torch's compiler, where it knows them. The calls between kernels are compiled too, which saves a tenth of a small
network's gradient step; and tanh is computed from one exponential, to some 1e-7, which saves a fifth."""


def compile_method(method: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """The method compiled as a whole, for the shapes that it is first called with.

    It gets a code object of its own: torch keeps compilations per code object and gives up after eight, and a process
    may train more often than that.
    """
    from torch._inductor import list_options  # takes a second, which only those who compile spend
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    assert isinstance(method, types.MethodType)
    call = method.__func__
    code, defaults = call.__code__.replace(), call.__defaults__
    copy = types.FunctionType(code, call.__globals__, call.__name__, defaults, call.__closure__)
    # Torch's cache on disk does not know the width of vectors by itself: what a processor with AVX-512 left there
    # gives wrong numbers on one without.
    wanted = ON_CPU | {"cpp.simdlen": pick_vec_isa().bit_width()} if device.type == "cpu" else {}
    options = {name: value for name, value in wanted.items() if name in list_options()}
    return torch.compile(types.MethodType(copy, method.__self__), fullgraph=True, dynamic=False, options=options)


def skip_guards() -> AbstractContextManager:
    """Within, a compiled method is called without looking whether its inputs still have the shapes it was made for.

    A twelfth of the time of a small network's gradient step; for whoever knows that they have.
    """
    return torch.compiler.set_stance(skip_guard_eval_unsafe=True)


def useful_threads(network: nn.Module) -> int:
    """How many threads a gradient step gains from, if there are as many cores.

    Small matrices are multiplied sooner than threads meet; convolutions are worth any number.
    """
    is_convolutional = any(isinstance(module, nn.Conv2d) for module in network.modules())
    size = sum(parameter.numel() for parameter in network.parameters())
    return sys.maxsize if is_convolutional else max(1, size // PARAMETERS_PER_THREAD)


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Within, torch computes in this thread alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def keep_freed_memory() -> None:
    """What one minibatch frees is kept for the next.

    By default glibc may give the memory of images and activations back, and every page that is taken again costs a
    fault: 266,000 of them in an iteration on Atari, 0.6 s of the system's time, and none so, for 120 MB more memory.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt:  # other allocators have other names for this, or no need of it
        mallopt(TRIM_THRESHOLD, MOST)
        mallopt(MMAP_THRESHOLD, MOST)
