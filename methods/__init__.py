"""Test-time adaptation methods, one file each; registered in pyproject.toml like anybody's."""
