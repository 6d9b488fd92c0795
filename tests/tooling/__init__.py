# SPDX-License-Identifier: Apache-2.0
"""Repository tooling: what noxfile.py, the docs build and the repository tests know about the tree.

Nothing here is shipped. `tree` and `bootstrap` use the standard library only: a fresh machine starts with them.
"""
