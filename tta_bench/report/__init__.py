"""`tta-bench report`: one self-contained HTML page about a results folder.

    stores ─data.gather→ plain data ─build.page→ HTML ─build.write→ report.html

Every number of the page comes from `tables.build` and `tables.render`, as in the tables.
"""

from tta_bench.report.build import page, write
from tta_bench.report.data import gather

__all__ = ["gather", "page", "write"]
