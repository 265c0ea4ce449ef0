"""Rules for Prometheus, made from the rule table and from a table of what no node can say of itself."""
