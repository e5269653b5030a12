"""A build hook for `pip install --editable`: finds methods/ and quantizers/ by their import names.

Hatchling renames folders in a wheel, but an editable install is only a list of paths. So an editable
install gets two more files: a finder that knows the import names, and a .pth file that starts the finder
with Python.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FINDER = '''"""Finds the packages of tta-bench whose import name is not the name of their folder."""

import sys
from importlib.util import spec_from_file_location

FOLDERS = {folders!r}


class EditableFinder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        folder = FOLDERS.get(name)
        if folder:
            file = folder + "/__init__.py"
            return spec_from_file_location(name, file, submodule_search_locations=[folder])


sys.meta_path.append(EditableFinder)
'''


class EditableInstall(BuildHookInterface):  # type: ignore[misc]
    """Adds the finder to editable installs and does nothing in other builds."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the two files and tell Hatchling to include them."""
        if version != "editable":
            return
        names = self.build_config.target_config["force-include"]
        packages = {folder: name for folder, name in names.items() if "/" not in name}
        folders = {name: str(Path(self.root, folder)) for folder, name in packages.items()}
        files = {
            "_tta_bench_finder.py": FINDER.format(folders=folders),
            "_tta_bench_finder.pth": "import _tta_bench_finder\n",
        }
        self.temporary = tempfile.TemporaryDirectory()
        for name, text in files.items():
            path = Path(self.temporary.name, name)
            path.write_text(text)
            build_data["force_include_editable"][str(path)] = name

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the files, which are in the wheel by now."""
        if version == "editable":
            self.temporary.cleanup()
