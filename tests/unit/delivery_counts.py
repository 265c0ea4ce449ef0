"""What a sender tells of its deliveries, kept to be looked at."""


class Metrics:
    """`DeliveryMetrics` as lists: each attempt with how it ended, and what waits for each target."""

    def __init__(self):
        self.attempts, self.pending = [], {}

    def delivery(self, target, *, arrived):
        self.attempts.append((target, arrived))

    def outbox(self, target, pending):
        self.pending[target] = pending
