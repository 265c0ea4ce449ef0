"""Telling the outside: Alertmanager and signed webhooks. It never drains."""
