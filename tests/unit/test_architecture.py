"""Who may import what, read from the import statements; and the few things that only one file may do."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_LAYERS = ("api", "tasks", "providers", "models")  # each may import what stands to its right
_OURS = {*_LAYERS, "celeryconfig", "wsgi", "tests"}
_MAX_LINES = 400

# The library, and the files or folders (ending in /) that are its door.
_DOORS: dict[str, tuple[str, ...]] = {
    "flask": ("api/", "providers/sim/"),
    "werkzeug": ("api/", "providers/sim/"),
    "marshmallow": ("api/",),
    "flask_smorest": ("api/",),
    "click": ("api/",),
    "rich": ("api/",),
    "celery": ("tasks/", "celeryconfig.py"),
    "kombu": ("tasks/", "celeryconfig.py"),
    "requests": ("providers/http.py", "providers/fetch.py"),
    "urllib3": ("providers/http.py", "providers/fetch.py", "providers/wire.py"),
    "tenacity": ("providers/http.py", "providers/fetch.py"),
    "redis": ("providers/kv.py",),
    "limits": ("providers/kv.py",),
    "obstore": ("providers/storage.py",),
    "sqlalchemy": (
        *(f"models/{name}.py" for name in ("tables", "db", "store", "line", "accounts", "ledger")),
        "models/migrations/",
    ),
    "psycopg2": ("models/db.py", "models/migrations/"),
    "alembic": ("models/migrations/",),
    "tomllib": ("models/settings.py",),
}
# PURE modules: the standard library without its clocks, chances and doors, and other PURE modules.
_IMPURE = {
    "asyncio", "http", "importlib", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "shutil",
    "socket", "sqlite3", "subprocess", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
_HARMLESS = {"uuid.UUID", "urllib.parse"}  # a type; and text into its parts
_CLOCKS = {"now", "utcnow", "today"}


@cache
def _sources() -> dict[str, ast.Module]:
    """Every source file of the product by its path from the top, parsed."""
    files = [path for layer in _LAYERS for path in sorted((_ROOT / layer).rglob("*.py"))]
    files += [path for name in ("celeryconfig.py", "wsgi.py") if (path := _ROOT / name).exists()]
    return {path.relative_to(_ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in files}


def _imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Each imported module by its full name, with its line; `from a import b` counts as a and as a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are written out in full"
            yield node.module or "", node.lineno
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def _is_pure(tree: ast.Module) -> bool:
    return (ast.get_docstring(tree) or "").startswith("PURE")


def _inside(path: str, doors: tuple[str, ...]) -> bool:
    return any(path == door or (door.endswith("/") and path.startswith(door)) for door in doors)


def test_layers_import_only_to_their_right() -> None:
    wrong = []
    for path, tree in _sources().items():
        layer = path.split("/")[0].removesuffix(".py")
        allowed = {"celeryconfig": {"models"}, "wsgi": {"api"}}.get(layer)
        if allowed is None:
            allowed = set(_LAYERS[_LAYERS.index(layer) :])
        if path == "wsgi.py":
            allowed |= {"models"}  # create_app takes Settings
        wrong += [
            f"{path}:{line} imports {name}"
            for name, line in _imports(tree)
            if (top := name.split(".")[0]) in _OURS and top not in allowed
        ]
    assert wrong == []


def test_each_library_has_one_door() -> None:
    wrong = [
        f"{path}:{line} imports {name}"
        for path, tree in _sources().items()
        for name, line in _imports(tree)
        if (doors := _DOORS.get(name.split(".")[0])) is not None and not _inside(path, doors)
    ]
    assert wrong == []


def test_vendor_files_are_imported_by_the_registry_only() -> None:
    shared = {
        "port",
        "http",
        "fetch",
        "kv",
        "breaker",
        "gate",
        "pace",
        "storage",
        "verdicts",
        "calls",
        "presence",
        "sim",
    }
    vendors = {
        f"providers.{Path(path).stem}"
        for path in _sources()
        if path.startswith("providers/") and path.count("/") == 1 and Path(path).stem not in shared | {"__init__"}
    }
    wrong = [
        f"{path}:{line} imports {name}"
        for path, tree in _sources().items()
        for name, line in _imports(tree)
        if name in vendors and path != "providers/__init__.py" and not path.startswith("providers/")
    ]
    assert wrong == []


def test_pure_modules_import_only_pure_ones_and_know_no_clock_or_chance() -> None:
    pure = {path.removesuffix(".py").replace("/", ".") for path, tree in _sources().items() if _is_pure(tree)}
    wrong = []
    for path, tree in _sources().items():
        if not _is_pure(tree):
            continue
        for name, line in _imports(tree):
            top = name.split(".")[0]
            if top in _OURS:
                if name not in pure and name.rpartition(".")[0] not in pure and name not in _LAYERS:
                    wrong.append(f"{path}:{line} imports {name}, which is not PURE")
            elif (top not in sys.stdlib_module_names or top in _IMPURE) and not _harmless(name, tree):
                wrong.append(f"{path}:{line} imports {name}")
        wrong += [
            f"{path}:{node.lineno} reads a clock"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CLOCKS
        ]
    assert wrong == []


def _harmless(name: str, tree: ast.Module) -> bool:
    """`urllib.parse`, what comes from it, and `uuid` where nothing but the type is taken from it."""
    if name == "uuid":
        return all(other in ("uuid", "uuid.UUID") for other, _ in _imports(tree) if other.startswith("uuid"))
    return name in _HARMLESS or name.rpartition(".")[0] == "urllib.parse"


def test_only_the_unit_of_work_commits() -> None:
    wrong = [
        f"{path}:{node.lineno}"
        for path, tree in _sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "commit"
        and path != "models/db.py"
        and not path.startswith("models/migrations/")
    ]
    assert wrong == []


def test_only_the_store_writes_a_status() -> None:
    wrong = []
    for path, tree in _sources().items():
        if path == "models/store.py":
            continue
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else []
            wrong += [f"{path}:{t.lineno} assigns .status" for t in targets if _is_status(t) and _is_row(path)]
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _sets_status(node.value):
                wrong.append(f"{path}:{node.lineno} sets status in SQL")
    assert wrong == []


def _is_status(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and target.attr == "status"


def _is_row(path: str) -> bool:
    return not path.startswith("providers/sim/")  # jobs of the simulated vendor have a status of their own


def _sets_status(text: str) -> bool:
    words = " ".join(text.lower().split())
    return "update tasks" in words and any(f"{lead} status =" in words for lead in ("set", ","))


def test_no_file_is_longer_than_400_lines() -> None:
    files = [path for layer in (*_LAYERS, "tests") for path in (_ROOT / layer).rglob("*.py")]
    lengths = {p.relative_to(_ROOT).as_posix(): len(p.read_text(encoding="utf-8").splitlines()) for p in files}
    assert {path: length for path, length in lengths.items() if length > _MAX_LINES} == {}


def test_functions_are_short() -> None:
    lengths = sorted(
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{path}:{node.lineno} {node.name}")
        for path, tree in _sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    assert lengths[len(lengths) * 95 // 100][0] <= 40
    assert [name for length, name in lengths if length > 80] == []


# Calls at the top of a module that touch nothing outside: they make constants, patterns, types and routes.
_AT_IMPORT_ALLOWED = {
    "celeryconfig.py": {"Settings.load"},
    "wsgi.py": {"create_app", "Settings.load"},
    # Read once, by the programs they configure; celeryconfig.py is of the same kind.
    "api/gunicorn_conf.py": {"Settings.load"},
    "api/flower_conf.py": {"Settings.load"},
}
_OUTSIDE = {
    "open", "connect", "create_engine", "create_connection", "read_text", "read_bytes", "write_text", "getenv", "load",
    "from_url", "run", "Popen", "start", "mkdir",
}  # fmt: skip


@pytest.mark.parametrize("path", sorted(_sources()))
def test_nothing_happens_at_import(path: str) -> None:
    if path == "models/migrations/env.py":
        return  # a script that alembic runs, never imported
    allowed = _AT_IMPORT_ALLOWED.get(path, set())
    wrong = []
    for statement in _sources()[path].body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.If):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "os.environ" and not allowed:
                wrong.append(f"{path}:{node.lineno} reads the environment")
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called.split(".")[-1] in _OUTSIDE and called not in allowed and not called.startswith("func."):
                wrong.append(f"{path}:{node.lineno} calls {called} at import")
    assert wrong == []


def test_only_settings_reads_the_environment() -> None:
    # The entry points hand os.environ over as a mapping; nobody else looks.
    # The simulator asks Windows where its fonts are.
    doors = ("celeryconfig.py", "wsgi.py", "tasks/", "api/", "providers/sim/lettering.py")
    wrong = [
        f"{path}:{node.lineno}"
        for path, tree in _sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node) in ("os.environ", "os.getenv")
        and not _inside(path, doors)
    ]
    assert wrong == []
