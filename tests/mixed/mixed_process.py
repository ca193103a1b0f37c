"""A process with libtorch_python and remat: regions refuse with a sentence.

usage: mixed_process.py LIBRARY (python-first | remat-first)
Exit code 77 where this Python has no torch.
"""

import ctypes
import importlib.util
import sys


def region_of(library):
    text = ctypes.create_string_buffer(4096)
    library.remat_try_region(text, ctypes.c_size_t(len(text)))
    return text.value.decode()


def main():
    path, order = sys.argv[1:]
    if importlib.util.find_spec("torch") is None:
        sys.exit(77)
    if order == "python-first":
        import torch.utils.checkpoint

        text = region_of(ctypes.CDLL(path))
        since = ""
    else:
        library = ctypes.CDLL(path)
        first = region_of(library)
        assert first == "ok", first
        import torch.utils.checkpoint

        text = region_of(library)
        since = ", which was installed after remat's"
    print(text)
    start = "[checkpoint] the autograd engine of this process is "
    end = (
        since + ", not libtorch's own (a process that loads libtorch_python has "
        "Python's); remat needs a process without it"
    )
    assert text.startswith(start) and text.endswith(end), text
    # Python itself is not disturbed.
    x = torch.ones(2, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(
        lambda t: t.sin().exp(), x, use_reentrant=False
    )
    y.sum().backward()
    assert torch.equal(x.grad, (x.sin().exp() * x.cos()).detach())


main()
