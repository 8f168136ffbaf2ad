"""Grids of runs to tables and figures."""
