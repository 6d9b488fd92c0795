# SPDX-License-Identifier: Apache-2.0
"""The registry judges what it is given, finds one plugin for a type, loads it, and undoes what failed."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest

from ulna.core.cameras import CameraConfig
from ulna.core.config import PluginConfig
from ulna.core.errors import (
    PluginConflictError,
    PluginLoadError,
    PluginNotFoundError,
    PluginUnusableError,
)
from ulna.core.plugins import KINDS, FoundEntryPoint, Registry, import_object, load_object, use_registry
from ulna.core.plugins.judging import read_settings
from ulna.core.plugins.loading import Origin
from ulna.core.robots import RobotConfig


def found(name: str = "arm", value: str = "arm_plugin:Config", **more: object) -> FoundEntryPoint:
    """An entry point of a robot."""
    return FoundEntryPoint(**{"group": "ulna.robots", "name": name, "value": value, "distribution": "acme", **more})  # type: ignore[arg-type]


def registry_of(*entries: FoundEntryPoint, **environ: str) -> Registry:
    """A registry that finds these entry points."""
    return Registry(lambda: entries, environ={"ULNA_HOME": "/nonexistent", **environ})


def manifest(**plugin: object) -> str:
    """A manifest of `acme` with one plugin."""
    entry = {"kind": "robots", "type": "arm", "value": "arm_plugin:Config", "api_level": 1, **plugin}
    return json.dumps({"manifest": 1, "distribution": "acme", "links": {"docs": "x"}, "plugins": [entry]})


def test_good_plugin_is_ok_without_being_imported() -> None:
    """Judging tells everything from metadata; the module named does not even exist."""
    reg = registry_of(found(manifest=manifest(summary="An arm.")))
    (record,) = reg.records()
    assert (record.status, record.summary, record.qualified) == ("ok", "An arm.", "acme/arm")
    assert record.manifest is not None
    assert record.manifest["links"] == {"docs": "x"}
    assert reg.types("robots") == ["arm"]
    assert reg.types("cameras") == []
    assert reg.find("robots", "acme/arm") is record


@pytest.mark.parametrize(
    ("entry", "status", "words"),
    [
        (found(group="ulna.robot"), "invalid", "nearest: ulna.robots"),
        (found(name="my arm"), "invalid", "'my arm'"),
        (found(value="arm_plugin"), "invalid", "module:attribute"),
        (found(value="arm plugin:X"), "invalid", "module:attribute"),
        (found(problem="the line is odd"), "invalid", "the line is odd"),
        (found(manifest="{"), "invalid", "not JSON"),
        (found(manifest="[]"), "invalid", "expected an object"),
        (found(manifest='{"manifest": 7}'), "invalid", "format 7"),
        (found(manifest=manifest().replace("acme", "other")), "invalid", "about 'other'"),
        (found(manifest=manifest(api_level="one")), "invalid", "api_level"),
        (found(manifest=manifest(capabilities="all")), "invalid", "capabilities"),
        (found(manifest=manifest(value=3)), "invalid", "`value`"),
        (found(manifest='{"manifest": 1, "distribution": "acme", "plugins": {}}'), "invalid", "a list"),
        (found(requires=("ulna_core>=9",)), "incompatible", "needs ulna-core >=9"),
        (found(requires=("ulna-core ~=9.1",)), "incompatible", "needs ulna-core ~=9.1"),
        (found(requires=("ulna-core (>=0.1,!=0.1)",)), "incompatible", "installed is 0.1.0"),
        (found(requires=("ulna-core ==wrong",)), "incompatible", "cannot be understood"),
        (found(manifest=manifest(api_level=99)), "incompatible", "API level 99"),
        (found(manifest=manifest(api_level=0)), "incompatible", "supports 1"),
        (found(requires=("ulna-core>=0.1,<0.2", "ulna-core[cli]>=9; extra == 'x'", "numpy")), "ok", ""),
        (found(requires=("ulna-core[torch]<1,>=0.1.0",)), "ok", ""),
        (found(requires=("ulna-core",)), "ok", ""),
    ],
)
def test_judgement(entry: FoundEntryPoint, status: str, words: str) -> None:
    """Each fault has its status, a reason that names it, and a remedy."""
    (record,) = registry_of(entry).records()
    assert record.status == status
    assert words in record.reason
    assert bool(record.remedy) == (status != "ok")


def test_every_kind_is_found_the_same_way() -> None:
    """Field problem 93: no kind is special."""
    reg = registry_of(*(found(group=info.group) for info in KINDS.values()))
    assert {r.kind for r in reg.records() if r.status == "ok"} == set(KINDS)


@pytest.mark.parametrize("name", ["acme", "ACME", "arm", "robots/arm", "acme/arm"])
def test_disable_names_distribution_or_type(name: str) -> None:
    """ULNA_DISABLE takes a distribution or a type, in any spelling."""
    (record,) = registry_of(found(), ULNA_DISABLE=f"other, {name}").records()
    assert record.status == "disabled"
    (allowed,) = registry_of(found(), ULNA_PLUGINS=f"other {name}").records()
    assert allowed.status == "ok"


def test_allow_list_leaves_others_out() -> None:
    """What ULNA_PLUGINS does not name is disabled, and says so when asked for."""
    reg = registry_of(found(), found("leg", distribution="zoo"), ULNA_PLUGINS="zoo")
    assert reg.types("robots") == ["leg"]
    with pytest.raises(PluginUnusableError, match="ULNA_PLUGINS does not name it") as caught:
        reg.find("robots", "arm")
    assert caught.value.hint == "Add acme to ULNA_PLUGINS, or unset it."


def test_same_type_twice_has_no_silent_winner(tmp_path: Path) -> None:
    """A type of two distributions is ambiguous until it is qualified or preferred."""
    pair = (found(), found(distribution="Zoo_Arms"))
    reg = registry_of(*pair)
    assert {r.status for r in reg.records()} == {"conflict"}
    assert reg.types("robots") == ["Zoo_Arms/arm", "acme/arm"]
    with pytest.raises(PluginConflictError, match="Zoo_Arms and acme both offer robots/arm"):
        reg.find("robots", "arm")
    assert reg.find("robots", "zoo-arms/arm").distribution == "Zoo_Arms"
    (tmp_path / "settings.json").write_text('{"prefer": {"robots/arm": "zoo-arms"}}')
    preferring = registry_of(*pair, ULNA_HOME=str(tmp_path))
    assert preferring.find("robots", "arm").distribution == "Zoo_Arms"
    assert preferring.find("robots", "acme/arm").status == "ok"
    assert preferring.types("robots") == ["acme/arm", "arm"]


def test_one_distribution_twice_the_same_type_is_invalid() -> None:
    """Nothing could tell them apart."""
    assert {r.status for r in registry_of(found(), found()).records()} == {"invalid"}


@pytest.mark.parametrize("text", ["{", "[]", '{"prefer": []}', '{"prefer": {"robots/arm": 3}}'])
def test_broken_settings_file_is_reported_not_raised(tmp_path: Path, text: str) -> None:
    """Judging never raises because of the user's file."""
    (tmp_path / "settings.json").write_text(text)
    settings = read_settings({"ULNA_HOME": str(tmp_path)})
    assert settings.prefer == {}
    assert settings.problem is not None
    assert "settings.json" in settings.problem


def test_not_found_names_what_comes_nearest() -> None:
    """The error tells which part is wrong."""
    reg = registry_of(found("so101_follower"), found("so101_leader", group="ulna.teleoperators"))
    with pytest.raises(PluginNotFoundError, match=r"did you mean 'so101_follower'\?"):
        reg.find("robots", "so101_folower")
    with pytest.raises(PluginNotFoundError, match="It exists as teleoperator"):
        reg.find("robots", "so101_leader")
    with pytest.raises(PluginNotFoundError, match=r"did you mean 'robots'\?"):
        reg.find("robot", "so101_follower")


def test_strict_raises_for_what_is_broken() -> None:
    """Developers see a broken plugin at once; `records` still lists it."""
    reg = registry_of(found(manifest="{"), ULNA_STRICT="1")
    assert reg.records()[0].status == "invalid"
    with pytest.raises(PluginUnusableError, match="not JSON"):
        reg.types("robots")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Write an importable module; it is forgotten after the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write(name: str, text: str) -> None:
        file = tmp_path / f"{name.replace('.', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    yield write
    for name in set(sys.modules) - before:
        if name.split(".")[0].startswith("rude"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import no_such_library", "No module named 'no_such_library'"),
        ("def broken(:", "SyntaxError"),
        ("raise SystemExit(3)", "sys.exit"),
        ("class Odd(BaseException): pass\nraise Odd('odd')", "Odd: odd"),
        ("raise ValueError", "ValueError"),
        ("", "has no attribute 'Config'"),
    ],
)
def test_every_way_to_fail_is_one_error(module: Callable[[str, str], None], text: str, words: str) -> None:
    """The error names distribution, version, entry point, interpreter and cause; nothing half loaded stays."""
    module("rude.config", text)
    module("rude.helper", "")
    module("rude.__init__", "import rude.helper")
    reg = registry_of(found(value="rude.config:Config", version="1.2"))
    with pytest.raises(PluginLoadError) as caught:
        reg.load("robots", "arm")
    text = str(caught.value)
    for part in ("robots/arm of acme 1.2", "arm = rude.config:Config", sys.prefix, words):
        assert part in text
    assert caught.value.distribution == "acme"
    assert caught.value.__cause__ is not None
    assert not [name for name in sys.modules if name.split(".")[0] == "rude"]


def test_interrupt_passes() -> None:
    """Ctrl-C while a plugin is imported is no fault of the plugin."""
    with pytest.raises(KeyboardInterrupt):
        import_object("rude_interrupt:x", Origin("robots", "arm"), undo=_interrupting)


class _interrupting:  # noqa: N801 - used like a function
    """A context whose entry is interrupted."""

    def __enter__(self) -> None:
        raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        return


def test_half_registration_is_undone(module: Callable[[str, str], None]) -> None:
    """What a module registered before it failed is gone; what was there before stays."""
    module(
        "rude_half",
        "from ulna.core.plugins import registry\nregistry().register('robots', 'ghost', object)\nraise OSError('no')",
    )
    reg = registry_of(found(value="rude_half:Config"))
    with use_registry(reg):
        reg.register("robots", "mine", RobotConfig)
        with pytest.raises(PluginLoadError):
            reg.load("robots", "arm")
        assert reg.types("robots") == ["arm", "mine"]


def test_other_plugins_go_on(module: Callable[[str, str], None]) -> None:
    """A broken plugin takes nothing with it, and a mended one loads in the same process."""
    module("rude_bad", "import no_such_library")
    module("rude_good", "Config = 42")
    reg = registry_of(found(value="rude_bad:Config"), found("leg", value="rude_good:Config"))
    with pytest.raises(PluginLoadError):
        reg.load("robots", "arm")
    assert reg.load("robots", "leg") == 42
    module("rude_bad", "Config = 'mended'")
    assert reg.load("robots", "arm") == "mended"


class Arm(RobotConfig):
    """A robot."""

    type: str = "arm"
    implementation: ClassVar[str] = "no_such_library.arm:Arm"


class Eye(CameraConfig):
    """A camera."""

    type: str = "eye"


def test_config_class_is_of_its_kind() -> None:
    """An entry point that gives something else is an error that says what was expected."""
    reg = registry_of()
    reg.register("robots", "arm", Arm)
    reg.register("robots", "eye", Eye)
    reg.register("robots", "text", "not a class")
    assert reg.config_class("robots", "arm") is Arm
    with pytest.raises(PluginLoadError, match=r"Eye is a configuration of cameras, not of robots"):
        reg.config_class("robots", "eye")
    with pytest.raises(PluginLoadError, match="derives from PluginConfig"):
        reg.config_class("robots", "text")


def test_register_and_undo() -> None:
    """A test or a notebook adds plugins; the same class again replaces, another is refused."""
    reg = registry_of()
    undo = reg.register("robots", "arm", Arm)
    reg.register("robots", "arm", Arm)
    with pytest.raises(PluginConflictError, match="registered already"):
        reg.register("robots", "arm", Eye)
    assert reg.load("robots", "arm") is Arm
    undo()
    assert reg.types("robots") == []
    undo()
    with pytest.raises(PluginNotFoundError):
        reg.register("robot", "arm", Arm)


def test_registered_type_conflicts_with_installed_one() -> None:
    """A notebook does not silently replace what is installed."""
    reg = registry_of(found())
    reg.register("robots", "arm", Arm)
    with pytest.raises(PluginConflictError):
        reg.find("robots", "arm")
    assert reg.load("robots", "(in process)/arm") is Arm


def test_broken_implementation_names_its_plugin() -> None:
    """The implementation is imported late, and its failure is told as fully."""
    reg = registry_of()
    reg.register("robots", "arm", Arm, distribution="acme")
    with use_registry(reg), pytest.raises(PluginLoadError) as caught:
        Arm.load_implementation()
    assert "robots/arm of acme" in str(caught.value)
    assert "implementation no_such_library.arm:Arm" in str(caught.value)
    with use_registry(reg), pytest.raises(PluginLoadError, match="expected 'module:Class'"):
        load_object("", kind="robots", owner=PluginConfig)


def test_trace_logs_loads_visibly(caplog: pytest.LogCaptureFixture) -> None:
    """ULNA_TRACE=1 shows what is loaded and how long it takes."""
    reg = registry_of(found(value="json:dumps"), ULNA_TRACE="1")
    with caplog.at_level(logging.WARNING, logger="ulna.core.plugins"):
        reg.load("robots", "arm")
        reg.load("robots", "arm")
    assert [r.getMessage().startswith("loaded robots/arm of acme in ") for r in caplog.records] == [True]


def test_use_registry_restores() -> None:
    """The registry of the process comes back after the context, also after an error."""
    from ulna.core.plugins import registry

    before = registry()
    with suppress(RuntimeError), use_registry(registry_of()):
        assert registry() is not before
        raise RuntimeError
    assert registry() is before


def test_refresh_sees_what_was_installed_since() -> None:
    """A long-lived process can look again."""
    entries = [found()]
    reg = Registry(lambda: list(entries), environ={})
    assert len(reg.records()) == 1
    entries.append(found("leg"))
    assert len(reg.records()) == 1
    reg.refresh()
    assert len(reg.records()) == 2
