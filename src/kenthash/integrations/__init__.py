"""kenthash behind the interfaces of other libraries, each an extra: vector stores of LangChain (`langchain`) and
LlamaIndex (`llamaindex`), tools for assistants (`mcp`), and a model for the benchmarks MTEB and MIEB (`mteb`)."""
