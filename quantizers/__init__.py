"""Post-training quantisers, one file each; registered in pyproject.toml like anybody's."""
