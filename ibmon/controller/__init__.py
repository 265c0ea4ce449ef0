"""The fleet side: what many nodes report, weighed against limits that hold for all of them.

It holds no truth: that a node is drained the scheduler knows, that it is unfit the node does.
"""
