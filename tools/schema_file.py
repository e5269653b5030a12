"""Write tta_bench/assets/benchmark.schema.json, the JSON Schema of benchmark files with the built-in plugins.

python tools/schema_file.py
"""

from __future__ import annotations

import json

from tta_bench.config.json_schema import SHIPPED, json_schema
from tta_bench.plugins import registry


def content() -> str:
    """The file."""
    return json.dumps(json_schema(registry.built_in), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SHIPPED.write_text(content(), "utf-8")
    print(SHIPPED)
