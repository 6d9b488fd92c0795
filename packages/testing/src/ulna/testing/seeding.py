# SPDX-License-Identifier: Apache-2.0
"""Seeding every random generator for a block, and putting them back."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

__all__ = ["seeded"]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed Python's, numpy's and, if installed, torch's generator for the block; then they go on as before.

    Args:
        seed: The seed.

    Yields:
        Nothing.
    """
    state, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002 - plugins may use the old generator
    with ExitStack() as stack:
        stack.callback(random.setstate, state)
        stack.callback(np.random.set_state, numbers)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        if importlib.util.find_spec("torch") is not None:
            import torch

            stack.enter_context(torch.random.fork_rng(devices=[]))
            accelerated = torch.cuda.is_available() or torch.backends.mps.is_available()
            # Without an accelerator torch.manual_seed adds a traceback to CUDA's to-do list, which takes milliseconds.
            (torch.manual_seed if accelerated else torch.default_generator.manual_seed)(seed)
        yield
