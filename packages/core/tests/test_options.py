# SPDX-License-Identifier: Apache-2.0
"""One reader: settings by flag, file and Python are equal, precedence is one, and every problem comes at once."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field

from ulna.core.config import Config, PluginConfig
from ulna.core.errors import ConfigError, MissingDependencyError, PluginLoadError
from ulna.core.options import describe, read_options, render
from ulna.core.options.schema import NULLS
from ulna.core.options.sources import NUMBER, _loader
from ulna.core.plugins import FoundEntryPoint, Registry, use_registry


class Policy(PluginConfig):
    """Base of policies.

    Attributes:
        device: Where it runs;
            two lines of text.
    """

    plugin_kind: ClassVar[str] = "policies"
    plugin_base: ClassVar[bool] = True
    device: str | None = None
    pretrained_path: Path | None = None


class Act(Policy):
    """A policy."""

    type: Literal["act"] = "act"
    chunk_size: int = Field(100, ge=1, description="Actions at once.")
    use_vae: bool = True
    lr: float = 1e-5
    extra: dict[str, Any] = {}


class Diffusion(Policy):
    """Another policy."""

    type: Literal["diffusion"] = "diffusion"
    horizon: int = 16


class Camera(PluginConfig):
    """Base of cameras."""

    plugin_kind: ClassVar[str] = "cameras"
    plugin_base: ClassVar[bool] = True
    fps: int | None = None


class OpenCV(Camera):
    """A camera."""

    type: Literal["opencv"] = "opencv"
    index_or_path: int | Path = 0


class Sim(Camera):
    """Another camera."""

    type: Literal["sim"] = "sim"
    scene: str = "table"


class Dataset(Config):
    """Nested settings."""

    repo_id: str = "me/data"
    fps: int = 30
    episodes: list[int] | None = None
    shape: tuple[int, int] = (1, 1)


class Train(Config):
    """All settings."""

    policy: Policy | None = None
    optimizer: Camera = OpenCV(fps=25)
    cameras: dict[str, Camera] = {}
    dataset: Dataset = Dataset(fps=10)
    steps: int = 100
    resume: bool = False
    rate: float = 1.0
    note: str = ""
    tag: str | None = None
    mode: Literal["fast", "slow"] = "fast"


@pytest.fixture(autouse=True)
def registry() -> Iterator[Registry]:
    with use_registry(Registry(list, environ={})) as reg:
        for kind, cls in (("policies", Act), ("policies", Diffusion), ("cameras", OpenCV), ("cameras", Sim)):
            reg.register(kind, cls.model_fields["type"].default, cls)
        yield reg


def read(*flags: str, **data: Any) -> Train:
    return read_options(Train, flags, title="training", data=data).config


def problems(*flags: str, **data: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        read(*flags, **data)
    return {problem.path: str(problem) for problem in caught.value.problems}


def test_forms_of_a_flag() -> None:
    """`--a=b`, `--a b`, bare `--a`, dashes for underscores, negative numbers and an empty value."""
    config = read(
        "--steps=5",
        "--policy.type",
        "act",
        "--policy.chunk-size",
        "50",
        "--resume",
        "--rate",
        "-1e-3",
        "--note=",
        "--tag=a=b",
    )
    assert isinstance(config.policy, Act)
    assert (config.steps, config.policy.chunk_size, config.resume) == (5, 50, True)
    assert (config.rate, config.note, config.tag) == (-1e-3, "", "a=b")


TRUE = ("true", "True", "TRUE", "yes", "on", "1", "t", "y")
FALSE = ("false", "False", "FALSE", "no", "off", "0", "f", "n")


@pytest.mark.parametrize("text", [*TRUE, *FALSE])
def test_booleans_are_one_documented_set(text: str, tmp_path: Path) -> None:
    """Field problem 85: the same words count in a flag, YAML and JSON."""
    wanted = text in TRUE
    (tmp_path / "c.yaml").write_text(f"resume: {text}\n")
    (tmp_path / "c.json").write_text(json.dumps({"resume": text}))
    assert read(f"--resume={text}").resume is wanted
    assert read(f"--config={tmp_path / 'c.yaml'}").resume is wanted
    assert read(f"--config={tmp_path / 'c.json'}").resume is wanted
    assert read(resume=text).resume is wanted


@pytest.mark.parametrize("text", ["2", "null", "enable", "", "ja", "[]"])
def test_other_booleans_are_refused_with_the_list(text: str) -> None:
    """Field problem 85: nothing is guessed."""
    assert "true, yes, on, 1, t, y or false, no, off, 0, f, n" in problems(f"--resume={text}")["resume"]


@pytest.mark.parametrize("text", NULLS)
def test_null_where_null_may_be(text: str) -> None:
    """Null is understood by optional fields; a plain text field takes the word."""
    config = read(f"--tag={text}", f"--note={text}", f"--policy={text}")
    assert (config.tag, config.note, config.policy) == (None, text, None)


def test_text_stays_text() -> None:
    """A word that YAML would turn into something else stays what it is in a text field."""
    config = read("--note=no", "--tag=1.10", "--dataset.repo_id=0123", "--optimizer.index_or_path=3")
    assert (config.note, config.tag, config.dataset.repo_id) == ("no", "1.10", "0123")
    assert isinstance(config.optimizer, OpenCV)
    assert config.optimizer.index_or_path == 3


def test_inline_maps_and_dotted_names() -> None:
    """A map can be given whole, and changed by dotted names; giving it whole again replaces it."""
    whole = "--cameras={front: {type: opencv, index_or_path: /dev/video0, fps: 30}, top: {type: sim}}"
    config = read(whole, "--cameras.front.fps=15", "--cameras.wrist.type=sim", "--cameras.wrist.scene=shelf")
    front, wrist = config.cameras["front"], config.cameras["wrist"]
    assert isinstance(front, OpenCV)
    assert isinstance(wrist, Sim)
    assert (front.fps, front.index_or_path, wrist.scene) == (15, Path("/dev/video0"), "shelf")
    assert list(config.cameras) == ["front", "top", "wrist"]
    assert list(read(whole, "--cameras={only: {type: sim}}").cameras) == ["only"]
    assert read("--cameras.a-b.type=sim").cameras["a-b"] == Sim()


def test_lists_and_anything() -> None:
    """Lists are written in brackets; a field that takes anything reads YAML, floats such as 1e-4 included."""
    config = read(
        "--dataset.episodes=[1, 2]",
        "--dataset.shape=[3, 4]",
        "--policy.type=act",
        "--policy.extra={a: 1e-4, b: [x, no]}",
    )
    assert (config.dataset.episodes, config.dataset.shape) == ([1, 2], (3, 4))
    assert isinstance(config.policy, Act)
    assert config.policy.extra == {"a": 1e-4, "b": ["x", "no"]}
    assert read("--policy.type=act", "--policy.extra.depth=2").policy == Act(extra={"depth": 2})


@pytest.mark.parametrize("text", ["0E0", "12e4567", "1_000", "0x1f", "1:30", "null", "no", "2024-01-01"])
def test_text_of_a_file_written_by_yaml_stays_text(text: str, tmp_path: Path) -> None:
    """What a YAML writer leaves without quotes, or quotes, is read as the text it was."""
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"note": text}))
    assert read(f"--config={tmp_path / 'c.yaml'}").note == text


def test_partial_settings_keep_the_defaults_of_the_rest() -> None:
    """Setting one field of a section leaves the section's other defaults, and its type, in place."""
    config = read("--dataset.repo_id=you/other", "--optimizer.index_or_path=7")
    assert config.dataset == Dataset(repo_id="you/other", fps=10)
    assert config.optimizer == OpenCV(fps=25, index_or_path=7)
    assert read("--optimizer.type=sim").optimizer == Sim()


def test_precedence_and_origins(tmp_path: Path) -> None:
    """Defaults < Python < files in order < flags, wherever they stand on the line."""
    one, two = tmp_path / "one.yaml", tmp_path / "two.json"
    one.write_text("steps: 1\nrate: 1\nnote: one\npolicy: {type: act, chunk_size: 7}\n")
    two.write_text('{"rate": 2, "note": "two", "policy": {"lr": 0.5}}')
    flags = ["--note=flag", f"--config={one}", "--config_path", str(two)]
    found = read_options(Train, flags, title="training", data={"tag": "py", "steps": 9})
    assert found.config.policy == Act(chunk_size=7, lr=0.5)
    assert (found.config.steps, found.config.rate, found.config.note, found.config.tag) == (1, 2, "flag", "py")
    assert found.origins == {
        "steps": str(one),
        "rate": str(two),
        "note": "--note",
        "tag": "Python",
        "policy.type": str(one),
        "policy.chunk_size": str(one),
        "policy.lr": str(two),
    }


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "last" / "pretrained_model"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"type": "act", "chunk_size": 20, "lr": 0.1, "gone_field": 1}')
    return folder


def test_checkpoint_by_flag_file_and_python(checkpoint: Path, tmp_path: Path) -> None:
    """Field problem 49: a path with overrides beside it gives the same by every way."""
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump({"policy": {"path": str(checkpoint), "lr": 0.2}}))
    wanted = Act(chunk_size=20, lr=0.2, pretrained_path=checkpoint)
    assert read("--policy.lr=0.2", f"--policy.path={checkpoint}").policy == wanted
    assert read(f"--config={file}").policy == wanted
    assert read(policy={"path": str(checkpoint), "lr": 0.2}).policy == wanted
    assert read(f"--policy.path={checkpoint.parent}", "--policy.lr=0.2").policy == wanted


def test_checkpoint_over_file(checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A checkpoint named by flag goes over the file's settings; its unknown fields are warned about."""
    file = tmp_path / "c.yaml"
    file.write_text("policy: {type: diffusion, horizon: 3}\n")
    found = problems(f"--config={file}", f"--policy.path={checkpoint}")
    assert "unknown name" in found["policy.horizon"]
    assert str(file) in found["policy.horizon"]
    with caplog.at_level(logging.WARNING):
        resolved = read_options(Train, [f"--policy.path={checkpoint}"], title="training")
    assert "gone_field" in caplog.text
    assert resolved.origins["policy.chunk_size"] == f"checkpoint {checkpoint / 'config.json'}"
    assert resolved.origins["policy.pretrained_path"] == "--policy.path"


def test_checkpoint_without_type(checkpoint: Path) -> None:
    """Field problem 41: where the file lacks its type, the flag gives it; without it the problem says so."""
    (checkpoint / "config.json").write_text('{"chunk_size": 20}')
    assert read("--policy.type=act", f"--policy.path={checkpoint}").policy == Act(
        chunk_size=20, pretrained_path=checkpoint
    )
    assert "needs a type" in problems(f"--policy.path={checkpoint}")["policy.type"]


def test_missing_files_are_problems(tmp_path: Path) -> None:
    """A file or checkpoint that is not there, or is broken, is told by the setting that names it."""
    assert "does not exist" in problems(f"--policy.path={tmp_path / 'none'}")["policy.path"]
    assert "cannot be read" in problems(f"--config={tmp_path / 'none.yaml'}")["config"]
    (tmp_path / "list.yaml").write_text("[1, 2]")
    assert "expected a map" in problems(f"--config={tmp_path / 'list.yaml'}")["config"]
    (tmp_path / "bad.json").write_text("{")
    assert "not a valid file" in problems(f"--config={tmp_path / 'bad.json'}")["config"]
    assert "not valid YAML" in problems("--cameras={front: [")["cameras"]


def test_all_problems_at_once() -> None:
    """Each has its path, the value, where it came from, what is accepted and the nearest name."""
    found = problems(
        "--policy.type=act",
        "--policy.chunk_sise=4",
        "--chunk_size=3",
        "--mode=fats",
        "--steps=x",
        "--optimizer.type=opencw",
    )
    assert set(found) == {"policy.chunk_sise", "chunk_size", "mode", "steps", "optimizer.type"}
    assert "got 4 from --policy.chunk_sise" in found["policy.chunk_sise"]
    assert "did you mean 'chunk_size'" in found["policy.chunk_sise"]
    assert "did you mean 'policy.chunk_size'" in found["chunk_size"]
    assert "'fast' or 'slow'" in found["mode"]
    assert "did you mean 'opencv'" in found["optimizer.type"]


def test_what_is_no_flag() -> None:
    """Stray words and a value where a section is are told, not dropped."""
    assert "is no flag" in problems("train", "--steps=1")["train"]
    assert "is not a map" in problems("--steps=1", "--steps.x=2")["steps"]


def test_broken_chosen_plugin_is_its_own_error(registry: Registry) -> None:
    """A plugin that cannot be imported is told as such, not as a wrong setting."""
    entries = [FoundEntryPoint("ulna.policies", "rude", "no_such_module:X", "acme")]
    with (
        use_registry(Registry(lambda: entries, environ={})),
        pytest.raises(PluginLoadError, match="policies/rude of acme"),
    ):
        read("--policy.type=rude")


def test_render_reads_back(tmp_path: Path) -> None:
    """What --print-config shows is a settings file that gives the same configuration."""
    flags = [
        "--policy.type=act",
        "--policy.extra={a b: {}}",
        "--cameras={front: {type: sim}}",
        "--note=# no: 'x'",
        "--tag=é",
    ]
    resolved = read_options(Train, flags, title="training")
    text = render(resolved)
    (tmp_path / "printed.yaml").write_text(text)
    assert read(f"--config={tmp_path / 'printed.yaml'}") == resolved.config
    lines = {line.split("#")[0].strip(): line.rpartition("# ")[2] for line in text.splitlines()}
    assert lines['type: "act"'] == "--policy.type"
    assert lines["chunk_size: 100"] == "default"
    assert lines['type: "sim"'] == "--cameras"


def test_describe_shows_chosen_plugins() -> None:
    """Fields of chosen plugins are listed with type, default and words; where none is chosen, the installed types."""
    fields = {
        field.path: field for field in describe(Train, {"policy": {"type": "act"}, "cameras": {"top": {"type": "sim"}}})
    }
    chunk = fields["policy.chunk_size"]
    assert (chunk.type, chunk.default, chunk.description) == ("int", "100", "Actions at once.")
    assert chunk.section == "policy (act)"
    assert fields["policy.device"].description == "Where it runs; two lines of text."
    assert fields["cameras.top.scene"].default == "table"
    assert fields["optimizer.index_or_path"].section == "optimizer (opencv)"
    assert fields["optimizer.fps"].default == "25"
    assert fields["dataset.fps"].default == "10"
    assert fields["dataset.episodes"].type == "list of int | null"
    assert fields["dataset.shape"].type == "[int, int]"
    assert fields["mode"].choices == ("fast", "slow")
    bare = {field.path: field for field in describe(Train)}
    assert bare["policy.type"].choices == ("act", "diffusion")
    assert bare["cameras.<name>.type"].choices == ("opencv", "sim")
    assert "policy.chunk_size" not in bare


plain = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12).filter(
    lambda text: not NUMBER.match(text)  # PyYAML writes the text `1e-4` without quotes, as YAML 1.1 allows
)
number = st.floats(allow_nan=False, allow_infinity=False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    steps=st.integers(-(10**9), 10**9),
    rate=number,
    resume=st.booleans(),
    note=plain,
    tag=st.none() | plain.filter(lambda text: text not in NULLS),
    mode=st.sampled_from(["fast", "slow"]),
    episodes=st.none() | st.lists(st.integers(0, 99), max_size=4),
    chunk=st.integers(1, 999),
    extra=st.dictionaries(plain, st.integers() | number | st.booleans() | plain, max_size=3),
)
def test_same_settings_by_every_way(tmp_path: Path, **given: Any) -> None:
    """Field problem 49: flags, YAML, JSON and Python give equal configurations."""
    top = {key: given[key] for key in ("steps", "rate", "resume", "note", "tag", "mode")}
    data = {
        **top,
        "dataset": {"episodes": given["episodes"]},
        "policy": {"type": "act", "chunk_size": given["chunk"], "extra": given["extra"]},
    }

    def text(value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value)

    flags = [f"--{key}={text(value)}" for key, value in top.items()]
    flags += [f"--dataset.episodes={text(given['episodes'])}", "--policy.type=act"]
    flags += [f"--policy.chunk_size={given['chunk']}", f"--policy.extra={json.dumps(given['extra'])}"]
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(data, allow_unicode=True), encoding="utf-8")
    (tmp_path / "c.json").write_text(json.dumps(data), encoding="utf-8")
    wanted = read(**data)
    assert wanted == read(*flags)
    assert wanted == read(f"--config={tmp_path / 'c.yaml'}")
    assert wanted == read(f"--config={tmp_path / 'c.json'}")


def test_without_yaml_the_rest_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without PyYAML, flags, JSON and JSON files work; a YAML file says what to install."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    _loader.cache_clear()
    (tmp_path / "c.json").write_text('{"steps": 3}')
    (tmp_path / "c.yaml").write_text("steps: 3")
    assert read(f"--config={tmp_path / 'c.json'}", '--cameras={"top": {"type": "sim"}}').steps == 3
    with pytest.raises(MissingDependencyError, match="pip install 'ulna-core"):
        read(f"--config={tmp_path / 'c.yaml'}")
    _loader.cache_clear()


@pytest.mark.parametrize("name", ["deep.yaml", "deep.json"])
def test_a_file_nested_without_end_is_not_valid(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("[" * 100_000)
    with pytest.raises(ConfigError, match=r"is not (a )?valid") as caught:
        read(f"--config={tmp_path / name}")
    assert len(str(caught.value)) < 2_000  # the file is not repeated in the message
