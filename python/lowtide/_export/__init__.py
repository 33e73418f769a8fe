"""Plans as files of other tools: a trace for Chrome and Perfetto, a memory snapshot for PyTorch's viewer."""
