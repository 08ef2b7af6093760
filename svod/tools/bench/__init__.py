"""The bars of the project, measured: `python -m svod.tools.bench`."""
