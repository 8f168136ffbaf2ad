"""Makes the modules beside this file (packs, components) importable from every test."""
