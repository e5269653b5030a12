"""A declarative benchmark of test-time adaptation on quantised image classifiers."""

__version__ = "0.2.0"
