"""The fleet side: what one process does for all nodes. It holds no truth that the scheduler or the nodes hold."""
