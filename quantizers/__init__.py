"""Post-training quantizers, one module or package per scheme, registered by entry points like any plugin."""
