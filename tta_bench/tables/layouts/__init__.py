"""The built-in layouts, each a function in a module of its own; see `tta_bench.tables.layout`."""
