"""A folder with Debian's Python for arm64 and the aarch64 wheels of what Svod needs.

`python -m tests.arm.sysroot FOLDER` fills it: packages come through apt with lists of its own, so
nothing of this system changes and nobody needs to be root. What is there already is kept.
"""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from pathlib import Path

RELEASE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
PACKAGES = """
    libc6 libc-bin libgcc-s1 libstdc++6 zlib1g libexpat1 libssl3 libffi8 libbz2-1.0 liblzma5
    libsqlite3-0 libuuid1 libtinfo6 libncursesw6 libreadline8 libcrypt1 libdb5.3 media-types
    python3.11-minimal libpython3.11-minimal libpython3.11-stdlib
"""
WHEELS = (
    "numpy",
    "llvmlite",
    "ml_dtypes",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "hypothesis",
)
LAUNCHER = "python"


def build(folder: Path) -> Path:
    """The sysroot; returns the program that starts its Python under qemu."""
    root = folder / "root"
    if not (root / "usr/bin/python3.11").exists():
        _unpack(_packages(folder), root)
    site = folder / "site"
    if not (site / "numpy").is_dir():
        _wheels(site)
    return _launcher(folder)


def _packages(folder: Path) -> list[Path]:
    lists, found = folder / "apt", folder / "packages"
    for name in ("state/lists/partial", "cache/archives/partial", "etc/preferences.d"):
        (lists / name).mkdir(parents=True, exist_ok=True)
    found.mkdir(parents=True, exist_ok=True)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (lists / "etc/sources.list").write_text(f"deb [signed-by={keys}] {MIRROR} {RELEASE} main\n")
    (lists / "state/status").touch()
    options = {
        "Dir::State": lists / "state", "Dir::State::status": lists / "state/status",
        "Dir::Cache": lists / "cache", "Dir::Etc": lists / "etc",
        "Dir::Etc::sourcelist": lists / "etc/sources.list", "Dir::Etc::sourceparts": "-",
        "Dir::Etc::preferencesparts": lists / "etc/preferences.d",
        "APT::Architecture": "arm64", "APT::Architectures": "arm64",
        "APT::Sandbox::User": "", "Acquire::Languages": "none",
    }  # fmt: skip
    apt = ["apt-get", "-qq", *[word for k, v in options.items() for word in ("-o", f"{k}={v}")]]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "download", *PACKAGES.split()], check=True, cwd=found)
    return sorted(found.glob("*.deb"))


def _unpack(packages: list[Path], root: Path) -> None:
    for package in packages:
        subprocess.run(["dpkg-deb", "-x", str(package), str(root)], check=True)


def _wheels(site: Path) -> None:
    platforms = [f"manylinux_2_{minor}_aarch64" for minor in (28, 27, 26, 24, 17)]
    tags = [word for name in (*platforms, "manylinux2014_aarch64") for word in ("--platform", name)]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--target", str(site), *tags,
         "--python-version", "3.11", "--implementation", "cp", "--only-binary=:all:", *WHEELS],
        check=True,
    )  # fmt: skip


def _launcher(folder: Path) -> Path:
    """A program that behaves like a Python of this machine, also for the processes it starts."""
    qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if qemu is None:
        raise SystemExit("qemu-aarch64 is not installed: apt-get install qemu-user")
    folder = folder.resolve()
    launcher = folder / LAUNCHER
    launcher.write_text(
        "#!/bin/sh\n"
        "export EMULATED=1\n"
        f'export PYTHONHOME="{folder}/root/usr"\n'
        f'export PYTHONPATH="{folder}/site${{PYTHONPATH:+:$PYTHONPATH}}"\n'
        f'exec "{qemu}" ${{ARM_CPU:+-cpu "$ARM_CPU"}} -L "{folder}/root" -0 "{launcher}" '
        f'"{folder}/root/usr/bin/python3.11" "$@"\n'
    )
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
    return launcher


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
