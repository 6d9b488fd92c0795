# SPDX-License-Identifier: Apache-2.0
"""What the operating system allows this process."""

from __future__ import annotations

__all__ = ["open_files_limit"]


def open_files_limit() -> int:
    """Return how many files this process may have open at once."""
    try:
        import resource
    except ImportError:
        return 512  # what Windows' C library allows
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**20 if soft == resource.RLIM_INFINITY else soft
