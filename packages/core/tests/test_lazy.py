# SPDX-License-Identifier: Apache-2.0
"""Names of a package are found on first use, kept, listed, and refused when there are none of that name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package whose names are lazy."""
    folder = tmp_path / "lazypack"
    folder.mkdir()
    (folder / "part.py").write_text("class Thing: ...\n")
    (folder / "__init__.py").write_text(
        "from ulna.core.lazy import lazy_names\n__getattr__, __dir__ = lazy_names(globals(), {'Thing': 'part'})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "lazypack"
    for name in ("lazypack", "lazypack.part"):
        sys.modules.pop(name, None)


def test_a_name_is_imported_on_first_use_and_kept(package: str) -> None:
    module = __import__(package)
    assert "lazypack.part" not in sys.modules
    assert "Thing" in dir(module)
    first = module.Thing
    assert "lazypack.part" in sys.modules
    assert vars(module)["Thing"] is first


def test_an_unknown_name_is_an_attribute_error_naming_the_package(package: str) -> None:
    with pytest.raises(AttributeError, match="'lazypack' has no attribute 'Thnig'"):
        _ = __import__(package).Thnig
