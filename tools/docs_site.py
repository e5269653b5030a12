"""What mkdocs does not do by itself: pages from files outside docs/, and the style sheet of highlighted code.

Pages keep the links that work in the repository (`docs/data.md` in README.md, `../results/README.md` in
docs/design.md); they are rewritten for the site. A link to anything that is not on the site stays as it is,
so that `mkdocs build --strict` refuses it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from pygments.formatters import HtmlFormatter

ROOT = Path(__file__).parents[1]
OUTSIDE = {  # file in the repository -> file of the site
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "results/README.md": "results-folder.md",
    "CITATION.cff": "CITATION.cff",
}
REPOSITORY_PATHS = {page: path for path, page in OUTSIDE.items()}
STYLE = """
.wy-nav-content { max-width: 1000px }
.rst-content div.highlight pre { border: none }
"""
LINK = re.compile(r"(\]\()([^)#:\s]+)(?=[)#])")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside docs/ and the style sheet."""
    for path, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text(encoding="utf-8")))
    style = HtmlFormatter(style="default").get_style_defs(".highlight") + STYLE
    files.append(File.generated(config, "highlight.css", content=style))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with its links rewritten for the site."""
    source = REPOSITORY_PATHS.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return LINK.sub(lambda match: match[1] + site_path(posixpath.dirname(source), match[2]), markdown)


def site_path(folder: str, link: str) -> str:
    """Where a link of a file in `folder` leads on the site, whose pages are all in one folder."""
    target = posixpath.normpath(posixpath.join(folder, link))
    return OUTSIDE.get(target, target.removeprefix("docs/") if target.startswith("docs/") else link)
