"""Presets, and what turns a table of the paper into runs."""
