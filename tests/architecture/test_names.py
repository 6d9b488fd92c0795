# SPDX-License-Identifier: Apache-2.0
"""The shape of the tree: top level, one name in four spellings, open namespace levels, required files."""

from __future__ import annotations

import json
import subprocess

import pytest
from packaging.requirements import Requirement

from tooling import environments, files, tree

TOP_LEVEL = {
    *("packages", "plugins", "docs", "tests"),
    *("noxfile.py", "pyproject.toml", "hatch.toml"),
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"),
}
REQUIRED = ("pyproject.toml", "README.md", "CHANGELOG.md", "tests")
REQUIRED_OF_PLUGIN = ("ulna-plugin.json", "docs/index.md")

every_distribution = pytest.mark.parametrize("distribution", tree.distributions(), ids=lambda item: item.path)
every_module_distribution = pytest.mark.parametrize(
    "distribution", [item for item in tree.distributions() if item.has_module], ids=lambda item: item.path
)


def test_the_top_level_is_exact() -> None:
    """Nothing but the agreed entries and dot files lies at the root."""
    visible = {files.name_of(path).split("/")[0] for path in files.tracked()}
    extra = {name for name in visible if not name.startswith(".")} - TOP_LEVEL
    assert not extra, f"move these below an existing folder: {sorted(extra)}"


def test_every_folder_is_a_distribution() -> None:
    """A folder under packages/ or plugins/<kind>/ that has files has a pyproject.toml."""
    known = {item.folder for item in tree.distributions()}
    depth = {"packages": 2, "plugins": 3}
    for path in files.tracked():
        parts = path.relative_to(tree.ROOT).parts
        if parts[0] in depth:
            folder = tree.ROOT.joinpath(*parts[: depth[parts[0]]])
            assert folder in known, (
                f"{files.name_of(path)} belongs to no distribution: {folder.name} has no pyproject.toml"
            )


@every_distribution
def test_folder_and_distribution_have_one_name(distribution: tree.Distribution) -> None:
    """`plugins/robots/so` is the distribution `ulna-robots-so`."""
    assert distribution.project["name"] == tree.normalize("-".join(("ulna", *distribution.parts)))


@every_module_distribution
def test_folder_and_module_have_one_name(distribution: tree.Distribution) -> None:
    """`plugins/robots/so` is imported as `ulna.robots.so` and ships nothing else."""
    assert (distribution.package / "__init__.py").is_file(), f"{distribution.module} has no __init__.py"
    assert (distribution.package / "py.typed").is_file(), f"{distribution.module} has no py.typed"
    strays = [path for path in distribution.source.rglob("*.py") if not path.is_relative_to(distribution.package)]
    assert not strays, f"files outside {distribution.module}: {[files.name_of(path) for path in strays]}"


@every_module_distribution
def test_namespace_levels_stay_open(distribution: tree.Distribution) -> None:
    """No `__init__.py` above the leaf: one stray file would hide every other plugin."""
    folder = distribution.package.parent
    while folder != distribution.folder:
        assert not (folder / "__init__.py").exists(), f"delete {files.name_of(folder / '__init__.py')}"
        folder = folder.parent


@pytest.mark.parametrize(
    "distribution", [item for item in tree.distributions() if item.is_plugin], ids=lambda i: i.path
)
def test_entry_points_belong_to_the_plugin(distribution: tree.Distribution) -> None:
    """A plugin announces itself in the group of its kind, and every target lies in its own module."""
    groups = distribution.project.get("entry-points", {})
    ours = {group: entries for group, entries in groups.items() if group.startswith("ulna.")}
    assert ours, "no entry point in an ulna.* group: the plugin cannot be found"
    # A server or an environment suite may add nothing but commands; every other kind has its own group.
    if distribution.parts[0] not in {"servers"}:
        assert f"ulna.{distribution.parts[0]}" in ours
    for entries in ours.values():
        for name, target in entries.items():
            module = target.partition(":")[0]
            assert f"{module}.".startswith(f"{distribution.module}."), f"{name} = {target} points outside"


@every_distribution
def test_required_files(distribution: tree.Distribution) -> None:
    """Each distribution has its README, changelog and tests; a plugin also its manifest and page."""
    wanted = REQUIRED + (REQUIRED_OF_PLUGIN if distribution.is_plugin else ())
    if not distribution.has_module:
        wanted = tuple(name for name in wanted if name != "tests")
    missing = [name for name in wanted if not (distribution.folder / name).exists()]
    assert not missing


@every_module_distribution
def test_there_are_tests(distribution: tree.Distribution) -> None:
    """Each distribution that ships code has at least one test module."""
    assert list((distribution.folder / "tests").rglob("test_*.py"))


@every_distribution
def test_pyproject_has_the_agreed_shape(distribution: tree.Distribution) -> None:
    """hatchling, Python 3.11 or newer, Apache-2.0, version in `__about__.py`, ranges on our own distributions."""
    project = distribution.project
    assert distribution.pyproject["build-system"]["build-backend"] == "hatchling.build"
    assert project["requires-python"] == ">=3.11"
    assert project["license"] == "Apache-2.0"
    assert project["readme"] == "README.md"
    assert project["description"].endswith(".")
    if distribution.has_module:
        assert project["dynamic"] == ["version"]
        about = distribution.folder / distribution.pyproject["tool"]["hatch"]["version"]["path"]
        assert about == distribution.package / "__about__.py"
    own = set(tree.by_name())
    texts = [*distribution.requirements, *(text for extra in distribution.extras.values() for text in extra)]
    for text in texts:
        name = tree.requirement_name(text)
        if name in own and name != distribution.name:
            assert ">=" in text, f"{text}: a lower bound is missing"
            assert "<" in text, f"{text}: an upper bound is missing"
        assert "==" not in text, f"{text}: a pin keeps users from installing two distributions together"


@pytest.mark.parametrize(
    "distribution", [item for item in tree.distributions() if item.is_plugin], ids=lambda i: i.path
)
def test_manifest_names_its_distribution(distribution: tree.Distribution) -> None:
    """The static manifest is valid JSON, lies in the wheel's metadata, and speaks of this distribution's kind."""
    manifest = json.loads((distribution.folder / "ulna-plugin.json").read_text(encoding="utf-8"))
    assert manifest
    wheel = distribution.pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]
    carried = {**wheel.get("shared-data", {}), **wheel.get("extra-metadata", {}), **wheel.get("force-include", {})}
    assert "ulna-plugin.json" in carried, (
        'add [tool.hatch.build.targets.wheel.extra-metadata] "ulna-plugin.json" = "ulna-plugin.json"'
    )


def test_test_modules_do_not_shadow_each_other() -> None:
    """No `__init__.py` below a tests folder but in the tooling, so that equal file names live side by side."""
    strays = [
        files.name_of(path)
        for path in files.tracked()
        if path.name == "__init__.py"
        and "tests" in path.parts
        and "tooling" not in path.parts
        and not files.is_golden(path)
    ]
    assert not [name for name in strays if "/src/" not in name and "/fixtures/" not in name]


def test_checkout_is_readable_by_git() -> None:
    """The rules about tracked files see a checkout (they would pass on nothing)."""
    answer = subprocess.run(
        ["git", "rev-parse", "--is-inside-work-tree"], cwd=tree.ROOT, capture_output=True, text=True
    )
    assert answer.stdout.strip() == "true"
    assert len(files.tracked()) > 20


def test_extras_of_the_meta_distribution_lead_somewhere() -> None:
    """Each extra of `ulna` names distributions of this tree and extras that they have; `all` reaches every plugin."""
    known = tree.by_name()
    for text in [text for texts in known[tree.META].extras.values() for text in texts]:
        requirement = Requirement(text)
        name = tree.normalize(requirement.name)
        assert name in known, f"packages/ulna: there is no {name}"
        unknown = requirement.extras - set(known[name].extras)
        assert not unknown, f"packages/ulna: {name} has no extra {sorted(unknown)}"
    left_out = {item.name for item in tree.distributions() if item.is_plugin} - environments.closure(["ulna[all]"])
    assert not left_out, f"add to the extra `all` of packages/ulna: {sorted(left_out)}"
