"""Judging: inventory, history, the rule table, evaluation. Pure; knows no scheduler and no file."""
