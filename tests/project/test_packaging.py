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


RECIPES = ["benchmark.yaml", "recipes"]
needs_git = pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="this is no git checkout: only git knows which files belong to it"
)


def tracked(*folders: str) -> list[str]:
    """All files of these folders (default: of the project) that are not ignored by git."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]
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


@needs_git
def test_the_wheel_holds_every_file_of_the_packages_and_the_recipes(built: Path) -> None:
    packaged = tracked(*FOLDERS)
    expected = {f"{FOLDERS[name.split('/')[0]]}/{name.split('/', 1)[1]}" for name in packaged}
    expected |= {f"tta_bench/recipes/{Path(name).name}" for name in tracked(*RECIPES)}
    with zipfile.ZipFile(next(built.glob("wheel/*"))) as wheel:
        found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == expected
    assert {f"{package}/py.typed" for package in FOLDERS.values()} <= found


@needs_git
def test_the_recipes_of_a_wheel_are_listed_and_name_its_schema(built: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(next(built.glob("wheel/*"))) as wheel:
        wheel.extractall(tmp_path)
    lines = (
        "from tta_bench.commands.recipes import *",
        "print(*recipes())",
        "print(recipe('cost').split()[2])",
    )
    script = "\n".join(lines)
    environment = {"PYTHONPATH": str(tmp_path), "PATH": ""}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    names, schema = done.stdout.splitlines()
    assert set(names.split()) == {Path(name).stem for name in tracked(*RECIPES) if name.endswith(".yaml")}
    assert schema == f"$schema={tmp_path}/tta_bench/assets/benchmark.schema.json"


@needs_git
def test_the_sdist_holds_every_file_of_the_project(built: Path) -> None:
    """Tests, examples, tools, documentation and recipes too: its tests run."""
    with tarfile.open(next(built.glob("sdist/*"))) as sdist:
        found = {name.split("/", 1)[1] for name in sdist.getnames()}
    assert found == {"PKG-INFO", *tracked()}
    folders = ("tests", "examples", "tools", "bench", "docs", "recipes")
    assert all(any(name.startswith(f"{folder}/") for name in found) for folder in folders)


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
