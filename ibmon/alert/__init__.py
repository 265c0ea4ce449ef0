"""Telling the outside: signed webhooks. It never drains."""
