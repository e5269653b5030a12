"""A declarative benchmark of test-time adaptation on quantised image classifiers."""

__version__ = "0.1.0"
