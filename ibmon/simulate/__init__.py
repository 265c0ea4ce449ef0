"""A simulated node: trees, the script that moves them, a directory to play it in, and a scheduler in memory.

Only `demo`, `simulate` and tests import this; it knows neither the engine nor the exporter.
"""
