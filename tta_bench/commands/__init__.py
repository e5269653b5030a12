"""One function for each thing that tta-bench does. The command line and the Python API both call these."""
