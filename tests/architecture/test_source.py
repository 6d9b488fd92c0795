# SPDX-License-Identifier: Apache-2.0
"""How files read here: header, docstring, length, what shipped code never does."""

from __future__ import annotations

import ast
import re
import statistics
from pathlib import Path

import pytest

from tooling import files, tree

SPDX = "SPDX-License-Identifier: Apache-2.0"
WITH_HEADER = {".py", ".toml", ".sh", ".yml", ".yaml"}
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "shared"}
MODULE_LINES, MODULE_CEILING = 500, 600
FUNCTION_LINES, FUNCTION_CEILING, FUNCTION_P90 = 60, 80, 30
CORE_LINES = 5000

python_files = [path for path in files.tracked() if path.suffix == ".py" and not files.is_golden(path)]
with_module = [item for item in tree.distributions() if item.has_module]
every_distribution = pytest.mark.parametrize("distribution", with_module, ids=lambda item: item.path)


def test_license_line_comes_first() -> None:
    """Every source and settings file opens with the SPDX line (a script may have its interpreter line before it)."""
    wanted = [path for path in files.tracked() if path.suffix in WITH_HEADER and not files.is_golden(path)]
    missing = []
    for path in wanted:
        head = path.read_text(encoding="utf-8").splitlines()[:2]
        if not any(SPDX in line for line in head) and path.name not in {"pyproject.toml"}:
            missing.append(files.name_of(path))
    assert not missing


def test_modules_say_what_lives_in_them() -> None:
    """Every Python file that has code opens with a docstring."""
    silent = [
        files.name_of(path)
        for path in python_files
        if files.syntax(path).body and not ast.get_docstring(files.syntax(path))
    ]
    assert not silent


def test_modules_have_a_subject() -> None:
    """No module is called utils, common, helpers or the like."""
    assert not [files.name_of(path) for path in python_files if path.stem.lstrip("_") in VAGUE_NAMES]


def test_module_length() -> None:
    """At most 500 lines; up to 600 with the reason at the top (`# length: ...`)."""
    long = []
    for path in python_files:
        lines = files.line_count(path)
        excused = re.search(
            r"^# length: \w", "\n".join(path.read_text(encoding="utf-8").splitlines()[:12]), re.MULTILINE
        )
        if lines > (MODULE_CEILING if excused else MODULE_LINES):
            long.append(f"{files.name_of(path)}: {lines}")
    assert not long


@every_distribution
def test_function_length(distribution: tree.Distribution) -> None:
    """At most 60 lines of code and 80 with the docstring; nine in ten have at most 30 lines of code."""
    lengths = []
    for path in distribution.modules:
        for function in files.functions(path):
            code = files.code_lines(function)
            whole = (function.end_lineno or 0) - function.lineno + 1
            where = f"{files.name_of(path)}:{function.lineno} {function.name}"
            assert code <= FUNCTION_LINES, f"{where} has {code} lines of code"
            assert whole <= FUNCTION_CEILING, f"{where} has {whole} lines"
            lengths.append(code)
    if len(lengths) >= 10:
        assert statistics.quantiles(lengths, n=10)[-1] <= FUNCTION_P90


def test_core_stays_slim() -> None:
    """ulna-core has at most 5,000 lines of code, docstrings and comments not counted."""
    lines = sum(files.code_line_count(path) for path in tree.by_name()["ulna-core"].modules)
    assert lines <= CORE_LINES


def calls(path: Path) -> list[tuple[str, ast.Call]]:
    """Return every call of a file with the dotted text of what is called."""
    found = [node for node in ast.walk(files.syntax(path)) if isinstance(node, ast.Call)]
    return [(ast.unparse(node.func), node) for node in found]


@every_distribution
def test_only_commands_talk_to_the_user(distribution: tree.Distribution) -> None:
    """`print`, `input` and `sys.argv` are for command modules; the rest logs, yields prompts, takes arguments."""
    for path in distribution.modules:
        if files.is_command_module(path):
            continue
        for name, node in calls(path):
            assert name not in {"print", "input"}, f"{files.name_of(path)}:{node.lineno} calls {name}()"
        for attribute in ast.walk(files.syntax(path)):
            if isinstance(attribute, ast.Attribute):
                assert ast.unparse(attribute) != "sys.argv", f"{files.name_of(path)}:{attribute.lineno} reads sys.argv"


@every_distribution
def test_no_pickle(distribution: tree.Distribution) -> None:
    """Nothing is read or written that can run code on loading."""
    modules = {"pickle", "cPickle", "cloudpickle", "dill", "shelve", "joblib", "marshal"}
    for path in distribution.modules:
        where = files.name_of(path)
        for node in ast.walk(files.syntax(path)):
            if isinstance(node, ast.Import):
                assert not {alias.name.split(".")[0] for alias in node.names} & modules, f"{where}:{node.lineno}"
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in modules, f"{where}:{node.lineno}"
        for name, call in calls(path):
            assert name not in {"torch.load", "torch.save"}, f"{where}:{call.lineno} calls {name}: use safetensors"
            options = {word.arg: ast.unparse(word.value) for word in call.keywords if word.arg}
            assert options.get("allow_pickle") in {None, "False"}, f"{where}:{call.lineno}"


GLOBAL_SWITCHES = re.compile(
    r"^(logging\.(basicConfig|disable|captureWarnings)|warnings\.(filterwarnings|simplefilter)|random\.seed|np\.random\.seed"
    r"|numpy\.random\.seed|torch\.(manual_seed|set_\w+|use_deterministic_algorithms)|os\.environ\.\w+|os\.putenv"
    r"|signal\.signal|atexit\.register|cv2\.setNumThreads|mp\.set_start_method|multiprocessing\.set_start_method)$"
)


def run_at_import(path: Path) -> list[ast.stmt]:
    """Return the statements that run when a module is imported, those in `if` and `try` blocks and class bodies too."""
    found: list[ast.stmt] = []
    waiting = list(files.syntax(path).body)
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += [child for child in ast.walk(node) if isinstance(child, ast.stmt) and child is not node]
            inner = [child for child in ast.walk(node) if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)]
            below = {id(step) for function in inner for step in ast.walk(function)}
            waiting = [child for child in waiting if id(child) not in below]
    return found


@every_distribution
def test_importing_changes_nothing_global(distribution: tree.Distribution) -> None:
    """No import sets logging, seeds, threads, signals or the environment."""
    for path in distribution.modules:
        for statement in run_at_import(path):
            where = f"{files.name_of(path)}:{statement.lineno}"
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                assert not GLOBAL_SWITCHES.match(ast.unparse(statement.value.func)), where
            if isinstance(statement, ast.Assign):
                assert not any(ast.unparse(target).startswith("os.environ[") for target in statement.targets), where


def test_broad_except_has_a_reason() -> None:
    """ruff refuses `except Exception` that swallows; an exception to that rule says why on the same line."""
    bare = []
    for path in files.shipped():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(r"noqa:.*\b(BLE001|E722)\b", line) and not re.search(
                r"\b(BLE001|E722)\b\W+\w+(\W+\w+){2,}", line
            ):
                bare.append(f"{files.name_of(path)}:{number}")
    assert not bare, f"say why after the noqa: {bare}"


def test_no_todo() -> None:
    """Work left to do is in no comment."""
    mark = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    assert not [files.name_of(path) for path in python_files if mark.search(path.read_text(encoding="utf-8"))]


def test_no_machine_in_the_text() -> None:
    """No tracked text names a path of the machine it was written on."""
    # Written in pieces, so that this file does not match itself.
    places = ("roo" + "t", "wor" + "k")
    path_words = re.compile(r"(?<![\w.:/}-])/(?:" + "|".join(places) + r")(?=/|\s|[\"'`)]|$)", re.MULTILINE)
    folder_words = re.compile(r"\bshare" + r"d/(?:interop|spec|design|bench|facts|requirements)\b")
    found = []
    for path in files.tracked():
        text = files.text_of(path)
        if text is not None and (path_words.search(text) or folder_words.search(text)):
            found.append(files.name_of(path))
    assert not found


def test_no_large_file() -> None:
    """No file above 1 MB, recorded data for tests excepted."""
    large = [files.name_of(p) for p in files.tracked() if p.stat().st_size > 1_000_000 and not files.is_golden(p)]
    assert not large
