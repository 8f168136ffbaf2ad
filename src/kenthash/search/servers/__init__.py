"""Indexes on servers: Milvus and PostgreSQL, and their addresses."""
