"""The runtimes: live, replay, one pass. Each turns its world into events for the engine and carries out its effects."""
