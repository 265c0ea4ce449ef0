"""ibmon: fabric health of one node, from the kernel's RDMA port files to the scheduler."""

__version__ = "0.1.0"
