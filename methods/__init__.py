"""Test-time adaptation methods, one file or package each; pyproject.toml registers them as entry points."""
