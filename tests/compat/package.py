"""The package in an environment that has nanobot: installed as users do it, and uninstalled again."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python/nanobot_tools"


@contextlib.contextmanager
def installed(python: Path) -> Iterator[None]:
    """Install the package with pip, and uninstall it at the end."""
    with tempfile.TemporaryDirectory(prefix="nanobot-tools-wheel-") as folder:
        wheel = built() or made(Path(folder))
        command = [python, "-m", "pip", "--disable-pip-version-check", "-q"]
        subprocess.run(
            [*command, "install", "--no-deps", "--no-index", "--force-reinstall", wheel], check=True
        )
    try:
        yield
    finally:
        subprocess.run([*command, "uninstall", "--yes", "nanobot-tools"], check=True)


def built() -> Path | None:
    """The newest wheel in ``dist``, if nothing of the package is newer."""
    wheels = sorted(ROOT.glob("dist/nanobot_tools-*.whl"), key=lambda path: path.stat().st_mtime)
    newest = max(path.stat().st_mtime for path in files())
    return wheels[-1] if wheels and wheels[-1].stat().st_mtime > newest else None


def files() -> list[Path]:
    """The files of the package as it is here."""
    return [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def made(folder: Path) -> Path:
    """A wheel of the package as it is here, with its native module as it was built last."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    version = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["package"]["version"]
    info = f"nanobot_tools-{version}.dist-info"
    tag = "py3-none-any"
    lines = []
    for group, named in points.items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in named.items())]
    texts = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: nanobot-tools\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: {tag}\n",
        f"{info}/entry_points.txt": "\n".join(lines) + "\n",
    }
    wheel = folder / f"nanobot_tools-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in files():
            archive.write(path, path.relative_to(PACKAGE.parent).as_posix())
        for name, text in texts.items():
            archive.writestr(name, text)
        names = [*archive.namelist(), f"{info}/RECORD"]
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in names))
    return wheel
