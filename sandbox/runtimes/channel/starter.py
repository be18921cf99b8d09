"""Finds the interpreter of the command channel's init, staged so that every sandbox can run it."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sandbox import staging
from sandbox.errors import RuntimeUnavailable
from sandbox.ports import Mount
from sandbox.settings import Settings

INSIDE = "/.autoclave"
_PARTS = ("wire", "init_system", "init_files", "init_outbox", "init")
_IMPORT_OF_OURS = re.compile(r"^from sandbox\.[\w.]+ import (?:\([^)]*\)|[^(\n]*)\n", re.MULTILINE)
_SURVEY = """
import os, select, time, _signal, errno, sys
try:
    import _ctypes
except ImportError:
    pass
print(*sys.version_info[:2])
print(sys.prefix)
for m in list(sys.modules.values()):
    if getattr(m, "__file__", None): print(m.__file__)
print(os.path.join(os.path.dirname(os.__file__), "encodings"))
print("--")
for line in open("/proc/self/maps"):
    parts = line.split()
    if len(parts) > 5 and parts[5].startswith("/") and ".so" in parts[5]: print(parts[5])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """How the init is started in a sandbox: its argv, and what must be mounted for it."""

    argv: tuple[str, ...]
    mount: Mount
    label: str


@functools.lru_cache(maxsize=8)
def starter(settings: Settings, root: str) -> Starter:
    """Return how the init starts: by the root's own /usr/bin/python3 where the root is the host's, else by a staged copy."""
    system = Path("/usr/bin/python3")
    if root == "host" and system.exists():
        survey = _survey(str(system))
        if survey is not None and survey[0] >= (3, 9):
            folder = _compiled(settings, str(system), survey[0])
            argv = (str(system), "-I", "-S", f"{INSIDE}/init.pyc")
            return Starter(argv=argv, mount=_mount(folder), label=f"python {survey[0][0]}.{survey[0][1]} of the root")
    interpreter = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    survey = _survey(interpreter)
    if survey is None:
        raise RuntimeUnavailable(
            f"the interpreter {interpreter} does not run by itself", fix="install Python 3.9 or newer as /usr/bin/python3"
        )
    folder, loader = _bundled(settings, interpreter, *survey)
    loading = (f"{INSIDE}/libraries/{loader}", "--library-path", f"{INSIDE}/libraries")
    return Starter(
        argv=(*loading, f"{INSIDE}/bin/python3", "-I", "-S", f"{INSIDE}/init.pyc"),
        mount=_mount(folder),
        label=f"python {survey[0][0]}.{survey[0][1]} of the manager",
    )


def _mount(folder: Path) -> Mount:
    return Mount(target=INSIDE, layers=(str(folder),), readonly=True)


def _survey(interpreter: str) -> tuple[tuple[int, int], str, list[str], list[str]] | None:
    """Ask an interpreter for its version, prefix, and every module and library that the init loads."""
    try:
        done = subprocess.run([interpreter, "-I", "-S", "-c", _SURVEY], capture_output=True, timeout=20, check=True, text=True)
    except (OSError, subprocess.SubprocessError):
        return None
    version, prefix, *rest = done.stdout.splitlines()
    split = rest.index("--")
    major, minor = version.split()
    return (int(major), int(minor)), prefix, rest[:split], sorted(set(rest[split + 1 :]))


@functools.cache
def joined() -> str:
    """Join the modules of the init into one program: their imports of each other are dropped, the last one's main runs."""
    # By text, not by ast: CPython 3.11 keeps one recursion counter for the trees that all threads build, and fails when two do.
    folder = Path(__file__).parent
    return "\n\n".join(_IMPORT_OF_OURS.sub("", (folder / f"{name}.py").read_text()) for name in _PARTS)


def _compile(interpreter: str, target: Path) -> None:
    """Compile the init by the interpreter that will run it: a script is compiled anew at each start otherwise."""
    code = (
        "import py_compile, sys; py_compile.compile(sys.argv[1], cfile=sys.argv[2], dfile='init.py', doraise=True,"
        " invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)"
    )
    source = target.with_suffix(".py")
    source.write_text(joined())
    subprocess.run([interpreter, "-I", "-c", code, str(source), str(target)], check=True, timeout=30, capture_output=True)


def _key(*parts: object) -> str:
    text = "\0".join(str(part) for part in parts).encode()
    return hashlib.blake2b(joined().encode() + text, digest_size=16).hexdigest()


def _compiled(settings: Settings, interpreter: str, version: tuple[int, int]) -> Path:
    status = os.stat(interpreter)
    return staging.place(
        settings,
        _key("init", version, status.st_mtime_ns, status.st_size),
        lambda folder: _compile(interpreter, folder / "init.pyc"),
    )


def _names(library: Path) -> set[str]:
    """Every name by which a library may be asked for: its own, and those of the links beside it that lead to it."""
    prefix = library.name.split(".so")[0].split("-")[0]
    return {library.name, *(p.name for p in library.parent.glob(f"{prefix}*.so*") if p.resolve() == library.resolve())}


def _bundled(
    settings: Settings, interpreter: str, version: tuple[int, int], prefix: str, modules: list[str], libraries: list[str]
) -> tuple[Path, str]:
    """Copy the interpreter with the few modules and libraries that the init needs, and the loader that starts it anywhere."""
    loader = next(Path(path).name for path in libraries if Path(path).name.startswith("ld-"))
    status = os.stat(interpreter)

    def fill(folder: Path) -> None:
        (folder / "bin").mkdir()
        shutil.copy2(interpreter, folder / "bin" / "python3")
        (folder / "libraries").mkdir()
        for path in libraries:
            for name in _names(Path(path)):
                shutil.copy2(path, folder / "libraries" / name)
        standard = folder / "lib" / f"python{version[0]}.{version[1]}"
        for source in map(Path, modules):
            below = Path(*source.parts[source.parts.index(standard.name) + 1 :])
            (standard / below).parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, standard / below, dirs_exist_ok=True)
            else:
                shutil.copy2(source, standard / below)
        (standard / "lib-dynload").mkdir(exist_ok=True)
        _compile(interpreter, folder / "init.pyc")

    digest = _key("bundle", interpreter, version, prefix, status.st_mtime_ns, *libraries)
    return staging.place(settings, digest, fill), loader
