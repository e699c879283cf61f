"""What a summary covers, what it keeps word for word, how a model is asked for it, and whether the answer is one."""
