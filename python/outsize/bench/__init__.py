"""Benches that ship with Outsize: `make demo`, and `python -m outsize.bench NAME`."""
