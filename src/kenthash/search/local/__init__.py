"""The local engine: one SQLite file as the truth, a code file beside it for speed, exact search on all cores.

`local_engine` is the engine; `store` with `schema`, `sqlite` and `idorder` is the SQLite file, and `fulltext` the words
in it; `codefile` with `checksums` the code file; `searcher` and `snapshot` are what is searched; `scan`, `mih` and
their compiled `kernels` and `weighted_kernels` are the search itself; `verify` and `backup` are the two commands on
whole indexes.
"""
