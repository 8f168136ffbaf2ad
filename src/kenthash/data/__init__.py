"""Data sets: the table of items, its readers, checks and splits, pictures, and the generated scenes."""
