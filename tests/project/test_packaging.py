"""The wheel and the sdist hold everything that is in the tree, and an editable install finds all packages."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {"tta_bench": "tta_bench", "methods": "tta_bench_methods", "quantizers": "tta_bench_quantizers"}


def tracked() -> list[str]:
    """All files of the three packages that are not ignored by git."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *FOLDERS]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each of the wheel, the sdist and the wheel of an editable install."""
    folder = tmp_path_factory.mktemp("dist")
    for kind in ("wheel", "sdist", "editable"):
        (folder / kind).mkdir()
        script = f"import sys; from hatchling import build; build.build_{kind}(sys.argv[1])"
        subprocess.run([sys.executable, "-c", script, str(folder / kind)], cwd=ROOT, check=True)
    return folder


def test_the_wheel_holds_every_file_of_the_packages(built: Path) -> None:
    expected = {f"{FOLDERS[name.split('/')[0]]}/{name.split('/', 1)[1]}" for name in tracked()}
    with zipfile.ZipFile(next(built.glob("wheel/*"))) as wheel:
        found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == expected
    assert {f"{package}/py.typed" for package in FOLDERS.values()} <= found


def test_the_sdist_holds_every_file_of_the_packages_and_what_builds_them(built: Path) -> None:
    with tarfile.open(next(built.glob("sdist/*"))) as sdist:
        found = {name.split("/", 1)[1] for name in sdist.getnames()}
    besides = {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "PKG-INFO",
        ".gitignore",
        "tools/editable_install.py",
    }
    assert found == besides | set(tracked())


def test_an_editable_install_finds_every_package_in_the_tree(built: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(next(built.glob("editable/*"))) as wheel:
        wheel.extractall(tmp_path)
    script = (
        "import site, sys; from importlib.util import find_spec; site.addsitedir(sys.argv[1]);"
        "print(*(find_spec(name).origin for name in sys.argv[2:]), sep='\\n')"
    )
    names = [*FOLDERS.values(), "tta_bench_methods.tent", "tta_bench_quantizers.fp32"]
    # -S leaves out the packages of this environment, so that nothing else can answer.
    command = [sys.executable, "-I", "-S", "-c", script, str(tmp_path), *names]
    found = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    expected = [*(f"{folder}/__init__.py" for folder in FOLDERS), "methods/tent.py", "quantizers/fp32.py"]
    assert found == [str(ROOT / name) for name in expected]


def test_building_leaves_nothing_in_the_project_folder(built: Path) -> None:
    """A stale egg-info would be read before the installed entry points when Python runs in this folder."""
    assert not list(ROOT.glob("*.egg-info"))
