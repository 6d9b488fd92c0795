# SPDX-License-Identifier: Apache-2.0
"""What a user installs: each wheel carries the module, its types and its metadata, and nothing else."""

from __future__ import annotations

import configparser
import json
import zipfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path, PurePosixPath

import pytest

from tooling import tree, wheels

pytestmark = pytest.mark.xdist_group("wheels")

every_distribution = pytest.mark.parametrize("distribution", tree.distributions(), ids=lambda item: item.path)


Build = Callable[[tree.Distribution], Path]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build a distribution, once."""
    folder = tmp_path_factory.mktemp("wheels")
    return lru_cache(maxsize=None)(lambda distribution: wheels.build(distribution, folder)[0])


def contents(wheel: Path) -> dict[PurePosixPath, bytes]:
    """Return the files of a wheel by path."""
    with zipfile.ZipFile(wheel) as archive:
        return {PurePosixPath(name): archive.read(name) for name in archive.namelist()}


@every_distribution
def test_wheel_holds_its_module_and_no_more(distribution: tree.Distribution, build: Build) -> None:
    """No file above the module, so that the namespace stays open; types are announced; tests stay at home."""
    files = contents(build(distribution))
    payload = [path for path in files if not path.parts[0].endswith((".dist-info", ".data"))]
    if not distribution.has_module:
        assert payload == []
        return
    module = PurePosixPath("ulna", *distribution.parts)
    assert not [path for path in payload if not path.is_relative_to(module)]
    assert module / "__init__.py" in payload
    assert module / "py.typed" in payload
    shipped = {path.relative_to(distribution.source).as_posix() for path in distribution.modules}
    assert {path.as_posix() for path in payload if path.suffix == ".py"} == shipped


@every_distribution
def test_metadata_is_that_of_pyproject(distribution: tree.Distribution, build: Build) -> None:
    """Name, version, entry points and, for a plugin, the static manifest reach the installed metadata."""
    files = contents(build(distribution))
    folder = next(path.parts[0] for path in files if path.name == "METADATA")
    metadata = files[PurePosixPath(folder, "METADATA")].decode()
    assert f"\nName: {distribution.project['name']}\n" in metadata
    assert "\nRequires-Python: >=3.11\n" in metadata
    declared = distribution.project.get("entry-points", {})
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(files.get(PurePosixPath(folder, "entry_points.txt"), b"").decode())
    assert {group: dict(parser[group]) for group in declared} == declared
    if distribution.is_plugin:
        here = [path for path in files if path.name == "ulna-plugin.json" and path.parts[0] == folder]
        assert here, "the wheel's metadata has no ulna-plugin.json"
        source = (distribution.folder / "ulna-plugin.json").read_text(encoding="utf-8")
        assert json.loads(files[here[0]]) == json.loads(source)
