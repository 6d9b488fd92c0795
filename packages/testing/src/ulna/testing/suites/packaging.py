# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of an installed distribution: its entry points, names, manifest, metadata and manners."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from ulna.core.errors import PluginLoadError
from ulna.core.plugins import KINDS, FoundEntryPoint, PluginRecord, Registry, normalize, scan
from ulna.testing import sources
from ulna.testing.checks import NotExercised, Suite, check, expect
from ulna.testing.distributions import Installed
from ulna.testing.isolation import HEAVY_MODULES, importing, side_effects

__all__ = ["PackagingSuite"]


class PackagingSuite(Suite):
    """Checks of an installed distribution. Override the fixture `distribution`; it returns its name.

    Attributes:
        vendor_modules: Libraries of the vendor that no configuration module may import.
        import_all: Whether every module is imported, in fresh interpreters, to see what importing changes.
    """

    subject: ClassVar[str] = "distribution"
    vendor_modules: ClassVar[tuple[str, ...]] = ()
    import_all: ClassVar[bool] = True

    @pytest.fixture
    def distribution(self) -> str:
        """Give the name of the installed distribution. The one thing an author overrides."""
        made: str = self.missing_fixture()
        return made

    def _entry_points(self, distribution: str) -> list[FoundEntryPoint]:
        return [e for e in scan() if normalize(e.distribution) == normalize(distribution)]

    def _records(self, distribution: str) -> list[PluginRecord]:
        found = self._entry_points(distribution)
        if not found:
            raise NotExercised("it has no entry point of Ulna (see K01)")
        return Registry(lambda: found, environ={}).records()

    def _loaded(self, distribution: str) -> Iterator[tuple[PluginRecord, Any]]:
        """Yield what loads; what does not is the business of K02."""
        found = self._entry_points(distribution)
        reg = Registry(lambda: found, environ={})
        for record in (r for r in reg.records() if r.usable):
            try:
                yield record, reg.load_record(record)
            except PluginLoadError:
                continue

    def _installed(self, distribution: str) -> Installed:
        found = Installed.find(distribution)
        if found is None:
            raise NotExercised(f"{distribution} is not installed (see K01)")
        return found

    @check(
        "K01-is-a-plugin",
        "The distribution is installed and declares at least one entry point in a group of Ulna.",
        'Write my_arm = "my_package.config:MyArmConfig" under [project.entry-points."ulna.robots"], and reinstall.',
    )
    def test_k01_is_a_plugin(self, distribution: str) -> None:
        expect(Installed.find(distribution), f"{distribution} is not installed; install it with: pip install -e .")
        groups = ", ".join(info.group for info in KINDS.values())
        expect(self._entry_points(distribution), f"{distribution} has no entry point in any of the groups {groups}")

    @check(
        "K02-entry-points-load",
        "Every entry point is judged ok and loads; what it gives derives from the base of its kind.",
        "Fix what the error says; the entry point names the configuration class (for processors the step class).",
    )
    def test_k02_entry_points_load(self, distribution: str) -> None:
        found = self._entry_points(distribution)
        reg = Registry(lambda: found, environ={})
        for record in self._records(distribution):
            expect(record.usable, f"{record.label} is {record.status}: {record.reason}")
            loaded = reg.load_record(record)
            if KINDS[record.kind].config:
                reg.config_class(record.kind, record.qualified)
            elif record.kind == "processors":
                from ulna.core.pipeline import ProcessorStep

                fits = isinstance(loaded, type) and issubclass(loaded, ProcessorStep)
                expect(fits, f"{record.label} gives {loaded!r}, which is no ProcessorStep class")

    @check(
        "K03-one-name",
        "The type that a class says it has is the name of its entry point, or of one of them if it has several.",
        'Give the class `type: str = "..."` (a step class `registry_name`) equal to the name of the entry point.',
    )
    def test_k03_one_name(self, distribution: str) -> None:
        self._records(distribution)
        pairs = list(self._loaded(distribution))
        for record, loaded in pairs:
            shared = {r.type for r, other in pairs if other is loaded and r.kind == record.kind}
            said: Any = record.type
            if KINDS[record.kind].config:
                field = getattr(loaded, "model_fields", {}).get("type")
                said = getattr(field, "default", record.type)
            elif record.kind == "processors":
                said = getattr(loaded, "registry_name", record.type)
            expect(said in shared, f"the entry point is called {record.type!r}, the class says {said!r}")

    @check(
        "K04-four-spellings",
        "A distribution inside the ulna namespace is called like its module: ulna-robots-so is ulna.robots.so.",
        "Rename one of them, or move the code out of the ulna namespace.",
    )
    def test_k04_four_spellings(self, distribution: str) -> None:
        modules = sorted({r.value.partition(":")[0] for r in self._records(distribution)})
        own = [m for m in modules if m.partition(".")[0] == "ulna"]
        if not own:
            raise NotExercised("its code is outside the ulna namespace, where any name will do")
        name = normalize(distribution)
        for module in own:
            parts = module.split(".")
            spellings = {re.sub(r"[._]", "-", ".".join(parts[:n])) for n in (2, 3)}
            expect(name in spellings, f"the module {module} belongs to {' or '.join(sorted(spellings))}, not to {name}")

    @check(
        "K05-manifest-tells-the-truth",
        "ulna-plugin.json, where there is one, says what the code says.",
        "Write it anew: ulna plugins manifest <distribution>.",
    )
    def test_k05_manifest_tells_the_truth(self, distribution: str) -> None:
        from ulna.core.plugins.manifest import generate, parse

        found = self._entry_points(distribution)
        text = next((e.manifest for e in found if e.manifest is not None), None)
        if text is None:
            raise NotExercised("it has no manifest")
        manifest = parse(text, distribution)
        expect(manifest.problem is None, str(manifest.problem))
        wanted = generate(manifest.data["distribution"], self._loaded(distribution), manifest.data)
        drift = [k for k in wanted if k != "plugins" and wanted[k] != manifest.data.get(k)]
        told = {(e["kind"], e["type"]): e for e in manifest.data["plugins"]}
        for entry in wanted["plugins"]:
            there = told.pop((entry["kind"], entry["type"]), {})
            drift += [f"{entry['kind']}/{entry['type']}.{k}" for k in entry if entry[k] != there.get(k)]
        drift += [f"{kind}/{name} (not in the code)" for kind, name in told]
        expect(not drift, f"ulna-plugin.json differs from the code in {', '.join(drift)}")

    @check(
        "K06-namespace-stays-open",
        "The distribution ships no __init__.py in ulna/ or in ulna/<kind>/: one such file hides every other plugin.",
        "Delete that file; `ulna` is a namespace package (PEP 420).",
    )
    def test_k06_namespace_stays_open(self, distribution: str) -> None:
        installed = self._installed(distribution)
        closed = {
            "ulna/__init__.py",
            *(f"ulna/{kind}/__init__.py" for kind in KINDS if kind not in ("commands", "hooks")),
        }
        bad = sorted(closed & {path.as_posix() for path in installed.files()})
        expect(not bad, f"it ships {', '.join(bad)}")

    @check(
        "K07-is-typed",
        "Every package the distribution ships carries py.typed.",
        "Add an empty py.typed beside the package's __init__.py.",
    )
    def test_k07_is_typed(self, distribution: str) -> None:
        installed = self._installed(distribution)
        bare = [root.as_posix() for root in installed.packages() if not (installed.base / root / "py.typed").is_file()]
        expect(installed.packages(), "it ships no package that the check can see")
        expect(not bare, f"no py.typed in {', '.join(bare)}")

    @check(
        "K08-lean-imports",
        "Importing what the entry points name imports neither torch nor a vendor's library; processor steps may.",
        "Keep configurations in modules of their own and import libraries where they are used.",
    )
    def test_k08_lean_imports(self, distribution: str) -> None:
        heavy = tuple(sorted({*HEAVY_MODULES, *self.vendor_modules}))
        records = [r for r in self._records(distribution) if r.kind != "processors"]
        for module in sorted({r.value.partition(":")[0] for r in records}):
            loaded, _, _ = importing((module,), watched=heavy)
            expect(not loaded, f"importing {module} also imports {', '.join(loaded)}")

    @check(
        "K09-import-changes-nothing",
        "Importing any module changes nothing of the process: logging, seeds, environment, signals, threads, warnings.",
        "Move such code into the function that needs it.",
    )
    def test_k09_import_changes_nothing(self, distribution: str) -> None:
        if not self.import_all:
            raise NotExercised("import_all is False")
        installed = self._installed(distribution)
        names = [n for n in installed.modules() if not n.endswith("__main__")]
        changed, broken = side_effects(tuple(names))
        expect(not changed, f"importing changed {'; '.join(changed)}")
        expect(not broken, f"these modules cannot be imported: {'; '.join(broken)}")

    @check(
        "K10-no-pickle",
        "No module uses pickle or what pickles: loading such a file runs code from it.",
        "Store tensors as safetensors and settings as JSON.",
    )
    def test_k10_no_pickle(self, distribution: str) -> None:
        found = [hit for path in self._installed(distribution).python_files() for hit in sources.pickling(path)]
        expect(not found, f"pickle is used in {', '.join(found)}")

    @check(
        "K11-no-test-code",
        "Shipped modules import neither ulna.testing nor pytest, and no module of tests is shipped.",
        "Move test code into tests/ outside the package.",
    )
    def test_k11_no_test_code(self, distribution: str) -> None:
        installed = self._installed(distribution)
        if normalize(distribution) == "ulna-testing":
            raise NotExercised("it is ulna-testing itself")
        found = [
            hit for path in installed.python_files() for hit in sources.imports_of(path, ("ulna.testing", "pytest"))
        ]
        found += [f.as_posix() for f in installed.files() if f.parts[0] in ("tests", "test")]
        expect(not found, f"test code is shipped: {', '.join(found)}")

    @check(
        "K12-no-stray-input",
        "Only command modules print, ask with input() or read sys.argv.",
        "Use logging in a library; put what a command says into a module called commands.",
    )
    def test_k12_no_stray_input(self, distribution: str) -> None:
        found = [hit for path in self._installed(distribution).python_files() for hit in sources.talking(path)]
        expect(not found, f"it talks past the command line in {', '.join(found)}")

    @check(
        "K13-metadata",
        "The metadata has a summary, a description (README), a licence, a version and requires Python 3.11 or newer.",
        "Fill in description, readme, license, version and requires-python in pyproject.toml.",
    )
    def test_k13_metadata(self, distribution: str) -> None:
        said = self._installed(distribution).metadata
        lacking = [name for name in ("Version", "Summary", "Requires-Python") if not said.get(name)]
        lacking += [] if said.get("License-Expression") or said.get("License") or _classified(said) else ["License"]
        lacking += [] if (said.get_payload() or said.get("Description")) else ["Description"]
        expect(not lacking, f"the metadata lacks {', '.join(lacking)}")

    @check(
        "K14-fits-a-range-of-cores",
        "It requires ulna-core with a lower and an upper bound, and pins no distribution of Ulna with ==.",
        'Write "ulna-core>=0.1,<0.2".',
    )
    def test_k14_fits_a_range_of_cores(self, distribution: str) -> None:
        from packaging.requirements import Requirement

        lines = [Requirement(line) for line in self._installed(distribution).metadata.get_all("Requires-Dist", [])]
        ours = [r for r in lines if normalize(r.name) == "ulna" or normalize(r.name).startswith("ulna-")]
        pinned = [str(r) for r in ours if any(s.operator in ("==", "===") for s in r.specifier)]
        expect(not pinned, f"it pins {', '.join(pinned)}")
        if normalize(distribution) == "ulna-core":
            return
        core = [r for r in ours if normalize(r.name) == "ulna-core" and not (r.marker and "extra" in str(r.marker))]
        expect(core, "it does not require ulna-core")
        operators = {s.operator for r in core for s in r.specifier}
        bounded = ("~=" in operators) or (operators & {">=", ">"} and operators & {"<", "<="})
        expect(bounded, f"it requires {core[0]}, which has no lower or no upper bound")

    @check(
        "K15-changelog",
        "The source of the distribution has a CHANGELOG.md and a README.md beside pyproject.toml.",
        "Add them; write the changelog for users.",
    )
    def test_k15_changelog(self, distribution: str) -> None:
        folder = self._installed(distribution).source_folder()
        if folder is None:
            raise NotExercised("it is installed from a wheel, which has no source folder")
        lacking = [name for name in ("CHANGELOG.md", "README.md") if not (folder / name).is_file()]
        expect(not lacking, f"{folder.name}/ lacks {', '.join(lacking)}")


def _classified(metadata: Any) -> bool:
    return any(line.startswith("License ::") for line in metadata.get_all("Classifier", []))
